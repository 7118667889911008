"""Topics and consumer offsets between a RocketMQ broker and ours, in both directions (#2819: by which port)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from rmqha.codec import java_json
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.client import open_remoting_client
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.server import RemotingServer
from rmqha.transport import TcpNetwork
from tests.broker.machines import send_request
from tests.e2e.processes import Broker, RmqhaBroker, reaping
from tests.interop.feature_table import BROKER
from tests.interop.peers import JavaBroker
from tests.settings import remoting_limits

COMMON = {"mappedFileSizeCommitLog": 1 << 20}

MESSAGE = partial(send_request, b"x", topic="travels", d="7")


async def ask(broker: Broker, request: RemotingCommand) -> RemotingCommand:
    async with open_remoting_client(TcpNetwork(), broker.address) as client:
        return await client.invoke(request, timeout_s=60)


async def max_offset(broker: Broker, topic: str, queue_id: int = 0) -> int:
    """Where a queue ends, as far as it is built: what is stored may come a little later."""
    fields = {"topic": topic, "queueId": str(queue_id)}
    answer = await ask(broker, RemotingCommand(RequestCode.GET_MAX_OFFSET, ext_fields=fields))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return int(answer.ext_fields["offset"])


async def wait_end(broker: Broker, topic: str, end: int, *, queue_id: int = 0) -> None:
    """A queue ends there."""
    found = -1
    with trio.move_on_after(120):
        while (found := await max_offset(broker, topic, queue_id)) != end:  # noqa: ASYNC110 - another process
            await trio.sleep(0.2)
        return
    raise AssertionError(f"queue {queue_id} of {topic} ends at {found} and not {end}")


async def fill(master: Broker) -> None:
    """A topic of seven queues, and a group that consumed three messages of one."""
    taken = 0
    with trio.fail_after(120):
        while taken < 4:
            if (await ask(master, MESSAGE())).code == ResponseCode.SUCCESS:
                taken += 1
            else:  # RocketMQ takes no sends in its first moments
                await trio.sleep(0.2)
    commit = {"consumerGroup": "g", "topic": "travels", "queueId": "0", "commitOffset": "3"}
    await ask(master, RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=commit))


async def tables_of(slave: Broker) -> tuple[int, int]:
    """How many queues the slave gives the topic, and where the group goes on; 0 for what it does not know."""

    async def table(code: RequestCode, member: str) -> dict[Any, Any]:
        answer = await ask(slave, RemotingCommand(code))
        return java_json.loads(answer.body)[member] if answer.body else {}

    topics = await table(RequestCode.GET_ALL_TOPIC_CONFIG, "topicConfigTable")
    offsets = await table(RequestCode.GET_ALL_CONSUMER_OFFSET, "offsetTable")
    return topics.get("travels", {}).get("writeQueueNums", 0), offsets.get("travels@g", {}).get(0, 0)


async def wait_tables(slave: Broker) -> None:
    """RocketMQ asks every ten seconds."""
    found = (0, 0)
    with trio.move_on_after(120):
        while found != (7, 3):
            await trio.sleep(0.5)
            found = await tables_of(slave)
    assert found == (7, 3)


@asynccontextmanager
async def name_server(master: Broker) -> AsyncIterator[str]:
    """As much of one as a RocketMQ slave needs: it answers each registration with the master's two addresses."""
    names = RequestDispatcher()
    addresses = {"masterAddr": master.address, "haServerAddr": master.ha_address}

    def register(_connection: object, _request: RemotingCommand) -> RemotingCommand:
        return RemotingCommand(ResponseCode.SUCCESS, ext_fields=addresses)

    names.register(RequestCode.REGISTER_BROKER, register)
    async with trio.open_nursery() as nursery:
        listener = await TcpNetwork().listen("127.0.0.1", 0)
        nursery.start_soon(RemotingServer(names, limits=remoting_limits()).serve, listener)
        yield f"127.0.0.1:{listener.port}"
        nursery.cancel_scope.cancel()


@pytest.mark.tries(BROKER, "give our slave its tables")
async def test_our_slave_gets_them_from_a_java_master_by_its_one_port(tmp_path: Path) -> None:
    master = JavaBroker(tmp_path / "master", {"brokerRole": "ASYNC_MASTER", **COMMON})
    links = {"haMasterAddress": master.ha_address, "masterAddress": master.address}
    slave = RmqhaBroker(tmp_path / "slave", {"brokerRole": "SLAVE", "brokerId": 1, **links, **COMMON})
    with reaping(master, slave):
        await master.start()
        await fill(master)
        await slave.start()
        await wait_tables(slave)


@pytest.mark.tries(BROKER, "tell our slave where its queues end")
async def test_our_slave_learns_where_a_java_masters_silent_queues_end(tmp_path: Path) -> None:
    """RocketMQ does not know our request: it is asked queue by queue."""
    master = JavaBroker(tmp_path / "master", {"brokerRole": "ASYNC_MASTER", **COMMON})
    links = {"haMasterAddress": master.ha_address, "masterAddress": master.address}
    slave = RmqhaBroker(tmp_path / "slave", {"brokerRole": "SLAVE", "brokerId": 1, **links, **COMMON})
    with reaping(master, slave):
        await master.start()
        await fill(master)
        await wait_end(master, "travels", 4)
        for _ in range(3):
            assert (await ask(master, send_request(bytes(500_000), topic="busy"))).code == ResponseCode.SUCCESS
        await master.stop()
        (master.store / "commitlog" / f"{0:020d}").unlink()
        await master.start()
        await slave.start()
        saved = slave.store / "config" / "queueEnds.json"
        with trio.fail_after(120):
            while "travels" not in (ends := saved_ends(saved)):  # noqa: ASYNC110 - another process
                await trio.sleep(0.2)
        assert ends["travels"] == {0: 4}
        assert ends.keys() <= {"travels", "busy"}, "its last message may have been on the way"
        await wait_end(slave, "travels", 4)


def saved_ends(path: Path) -> dict[str, dict[int, int]]:
    """Of a slave's silent queues; empty as long as it has no such file."""
    return java_json.loads(path.read_bytes())["queueEnds"] if path.exists() else {}


@pytest.mark.tries(BROKER, "have our master's tables")
async def test_a_java_slave_gets_them_from_our_master(tmp_path: Path) -> None:
    """It asks for topics on listenPort - 2 and for the rest on listenPort, as its name server told it."""
    master = RmqhaBroker(tmp_path / "master", {"brokerRole": "ASYNC_MASTER", **COMMON})
    with reaping(master):
        await master.start()
        await fill(master)
        async with name_server(master) as address:
            slave = JavaBroker(
                tmp_path / "slave", {"brokerRole": "SLAVE", "brokerId": 1, "namesrvAddr": address, **COMMON}
            )
            with reaping(slave):
                await slave.start()
                await wait_tables(slave)
