"""One digit wrong in a configuration: each protocol on the other's port, and what the operator reads then."""

from pathlib import Path

import pytest
import trio

from rmqha.codec.remoting import RemotingCommand, SerializeType
from rmqha.errors import RemotingError
from rmqha.remoting.client import open_remoting_client
from rmqha.transport import TcpNetwork
from tests.broker.machines import send_request
from tests.e2e.commands import rmqha
from tests.e2e.load import wait_in_sync
from tests.e2e.processes import RmqhaBroker, reaping

CONF = {"brokerRole": "SYNC_MASTER", "mappedFileSizeCommitLog": 1 << 20}
HTTP = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


async def talk(port: int, data: bytes) -> bytes:
    """What comes back until the end of the connection."""
    received = b""
    with trio.fail_after(60):
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(data)
            while some := await stream.receive_some(65_536):
                received += some
    return received


async def first_line(broker: RmqhaBroker, event: str) -> str:
    """The first line about this event, whole."""
    return (await broker.running.wait_output(f'.*"{event}".*\n')).group()


@pytest.mark.parametrize("serialize", list(SerializeType))
async def test_a_client_on_the_ha_port_is_named(tmp_path: Path, serialize: SerializeType) -> None:
    master = RmqhaBroker(tmp_path / "master", CONF)
    with reaping(master):
        await master.start()
        request = RemotingCommand(310, ext_fields=send_request(b"").ext_fields, body=b"x", serialize=serialize)
        with pytest.raises(RemotingError):
            async with open_remoting_client(TcpNetwork(), master.ha_address) as client:
                await client.invoke(request, timeout_s=60)
        line = await first_line(master, "ha_connection.refused")
        assert "a RocketMQ client or broker took this HA port" in line
        assert "check the port it was given" in line
        assert "slave ahead" not in master.running.output()
        _, out, _ = await rmqha("status", "-b", master.address, "--format", "json")
        assert "remoting protocol" in out


async def test_a_slave_on_the_clients_port_is_named_by_both_sides(tmp_path: Path) -> None:
    master = RmqhaBroker(tmp_path / "master", CONF)
    wrong = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": master.address}
    slave = RmqhaBroker(tmp_path / "slave", CONF | wrong)
    with reaping(master, slave):
        await master.start()
        await slave.start()
        line = await first_line(master, "remoting_connection.protocol_broken")
        assert "this is what a slave reports that has 0 bytes" in line
        assert "its haMasterAddress names this listenPort" in line
        await slave.running.wait_output("or this is not its HA port")
        await slave.stop()
        slave.conf["haMasterAddress"] = master.ha_address
        await slave.start()
        await wait_in_sync(master.ports.listen)


async def test_web_traffic_is_named_on_both_ports(tmp_path: Path) -> None:
    master = RmqhaBroker(tmp_path / "master", CONF)
    with reaping(master):
        await master.start()
        assert await talk(master.ports.ha, HTTP) == b""
        assert "an HTTP request" in await first_line(master, "ha_connection.refused")
        assert await talk(master.ports.listen, HTTP) == b""
        assert "this is an HTTP request" in await first_line(master, "remoting_connection.protocol_broken")
        assert await talk(master.ports.listen - 2, (1 << 30).to_bytes(8) + bytes(4)) == b""
