"""Our name server, and RocketMQ's brokers, clients and mqadmin; our brokers, and RocketMQ's name server."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqha.client.message import Message
from rmqha.client.producer import open_producer
from rmqha.client.results import SendStatus
from rmqha.codec.codes import ResponseCode
from tests.broker.machines import send_request
from tests.e2e.commitlog import wait_identical
from tests.e2e.name_servers import RmqhaNameServer
from tests.e2e.processes import Broker, RmqhaBroker, reaping
from tests.interop.feature_table import BROKER, JAVA_CLIENT, NAME_SERVER, mqadmin_of
from tests.interop.mqadmin import mqadmin, mqadmin_until
from tests.interop.peers import JavaBroker, JavaNameServer
from tests.interop.test_dledger_clients import Clients
from tests.interop.test_tables import ask, fill, wait_tables

pytestmark = pytest.mark.timeout(900)

COMMON = {"mappedFileSizeCommitLog": 1 << 20, "registerNameServerPeriod": 10_000}
KINDS: dict[str, type[Broker]] = {"rmqha": RmqhaBroker, "java": JavaBroker}


@pytest.fixture
def name_server(tmp_path: Path) -> Iterator[RmqhaNameServer]:
    server = RmqhaNameServer(tmp_path / "namesrv")
    yield server
    server.close()


def a_pair(directory: Path, kinds: str, name_server: str) -> tuple[Broker, Broker]:
    """A master, and a slave that knows the name server alone."""
    of_master, of_slave = (KINDS[word] for word in kinds.split())
    keys = {"namesrvAddr": name_server, **COMMON}
    master = of_master(directory / "master", {"brokerRole": "ASYNC_MASTER", **keys})
    return master, of_slave(directory / "slave", {"brokerRole": "SLAVE", "brokerId": 1, **keys})


@pytest.mark.tries(JAVA_CLIENT, "find brokers at our name server")
@pytest.mark.tries(BROKER, "register at our name server")
@pytest.mark.parametrize("kinds", ["java java", "java rmqha", "rmqha java"])
async def test_slaves_find_their_masters_and_clients_both(
    tmp_path: Path, name_server: RmqhaNameServer, kinds: str
) -> None:
    """Topics and offsets come along; the clients go on with a master that returns; mqadmin sees who is there."""
    await name_server.start()
    master, slave = a_pair(tmp_path, kinds, name_server.address)
    with reaping(master, slave):
        await slave.start()
        await master.start()
        await fill(master)
        await wait_tables(slave)
        await wait_identical(master.store / "commitlog", slave.store / "commitlog")
        clients = Clients(tmp_path, name_server.address)
        try:
            await clients.wait_more(20)
            listed = await mqadmin(tmp_path, "clusterList", "-n", name_server.address)
            found = re.findall(r"^cluster +pair +([01]) +127\.0\.0\.1:(\d+)", listed, re.MULTILINE)
            assert sorted(found) == [("0", str(master.ports.listen)), ("1", str(slave.ports.listen))], listed
            await master.stop()
            asked = ("topicRoute", "-t", "travels", "-n", name_server.address)
            alone = await mqadmin_until(tmp_path, *asked, shows=slave.address, hides=master.address)
            assert f'"brokerAddrs":{{1:"{slave.address}"' in re.sub(r"\s|\"(?=\d:)|(?<=\{\d)\"", "", alone), alone
            await master.start()
            await clients.wait_more(20)
        finally:
            clients.running.reap()


@pytest.mark.tries(
    mqadmin_of("4.9.7"),
    "clusterList",
    "topicList",
    "topicRoute",
    "topicClusterList",
    "updateKvConfig",
    "deleteKvConfig",
    "wipeWritePerm",
    "addWritePerm",
    "getNamesrvConfig",
)
async def test_mqadmin_manages_a_name_server(tmp_path: Path, name_server: RmqhaNameServer) -> None:
    await name_server.start()
    broker = JavaBroker(
        tmp_path / "master", {"brokerRole": "ASYNC_MASTER", "namesrvAddr": name_server.address, **COMMON}
    )
    with reaping(broker):
        await broker.start()
        await manage(tmp_path, broker, name_server.address)
        assert "orderMessageEnable" in await mqadmin(tmp_path, "getNamesrvConfig", "-n", name_server.address)
        await name_server.restart()
        kept = await mqadmin(tmp_path, "updateKvConfig", "-s", "n", "-k", "k2", "-v", "v", "-n", name_server.address)
        assert "success" in kept
        assert name_server.kept() == {"configTable": {"n": {"k": "v", "k2": "v"}}}


async def manage(directory: Path, broker: Broker, name_server: str) -> None:
    """Ask a name server for all that mqadmin can."""

    async def admin(*arguments: str) -> str:
        printed = await mqadmin(directory, *arguments, "-n", name_server)
        assert "Exception" not in printed, printed
        return printed

    await mqadmin_until(directory, "clusterList", "-n", name_server, shows=broker.address)
    await fill(broker)
    await mqadmin_until(directory, "topicList", "-n", name_server, shows="travels")
    assert "travels" in await admin("topicList", "-c")
    assert '"writeQueueNums":7' in re.sub(r"\s", "", await admin("topicRoute", "-t", "travels"))
    assert "cluster" in await admin("topicClusterList", "-t", "travels")
    assert "success" in await admin("updateKvConfig", "-s", "n", "-k", "k", "-v", "v")
    assert "success" in await admin("updateKvConfig", "-s", "n", "-k", "gone", "-v", "v")
    assert "success" in await admin("deleteKvConfig", "-s", "n", "-k", "gone")
    for _ in range(3):  # a broker that registers newer tables in between can be written to again, as at RocketMQ's
        assert "OK" in await admin("wipeWritePerm", "-b", "pair")
        route = re.sub(r"\s", "", await admin("topicRoute", "-t", "travels"))
        if '"perm":4' in route:
            break
    assert '"perm":4' in route
    assert "OK" in await admin("addWritePerm", "-b", "pair")
    assert '"perm":6' in re.sub(r"\s", "", await admin("topicRoute", "-t", "travels"))


@pytest.mark.tries(JAVA_CLIENT, "find brokers at our broker")
@pytest.mark.tries(BROKER, "register at our broker")
async def test_a_broker_does_for_a_name_server(tmp_path: Path) -> None:
    """Clients and mqadmin are given the addresses of both brokers, the slave its master's; the master ends."""
    master = RmqhaBroker(tmp_path / "master", {"brokerRole": "ASYNC_MASTER", **COMMON})
    keys = {"brokerRole": "SLAVE", "brokerId": 1, "namesrvAddr": master.address, **COMMON}
    slave = RmqhaBroker(tmp_path / "slave", keys)
    java = JavaBroker(tmp_path / "java", keys | {"brokerId": 2})
    with reaping(master, slave, java):
        await master.start()
        await manage(tmp_path, master, master.address)
        await slave.start()
        await java.start()
        await wait_tables(slave)
        await wait_tables(java)
        listed = await mqadmin_until(tmp_path, "clusterList", "-n", master.address, shows=java.address)
        assert slave.address in listed
        clients = Clients(tmp_path, f"{master.address};{slave.address}")
        try:
            await clients.wait_more(20)
            await master.stop()
            asked = ("clusterList", "-n", slave.address)
            await mqadmin_until(tmp_path, *asked, shows=slave.address, hides=master.address)
            await master.start()
            await clients.wait_more(20)
        finally:
            clients.running.reap()


@pytest.mark.tries(NAME_SERVER, "tell where our brokers are")
async def test_our_brokers_are_found_at_rocketmqs_name_server(tmp_path: Path) -> None:
    name_server = JavaNameServer(tmp_path / "namesrv")
    master, slave = a_pair(tmp_path, "rmqha rmqha", name_server.address)
    try:
        await name_server.running.wait_output("boot success")
        with reaping(master, slave):
            await slave.start()
            await master.start()
            await fill(master)
            await wait_tables(slave)
            await wait_identical(master.store / "commitlog", slave.store / "commitlog")
            async with open_producer(name_server.address) as producer:
                result = await producer.send(Message("ours", b"ours"), retries=100, timeout_s=60)
                assert result.status is SendStatus.SEND_OK
            await mqadmin_until(tmp_path, "topicList", "-n", name_server.address, shows="ours")
            answer = await ask(master, send_request(b"x", topic="ours"))
            assert answer.code == ResponseCode.SUCCESS
            await slave.stop()
            await master.stop()
            gone = await mqadmin_until(tmp_path, "topicList", "-n", name_server.address, hides="ours")
            assert "Exception" not in gone
    finally:
        name_server.close()
