"""RocketMQ's clients on groups with brokers of rmqha: a name server tells who leads; they go on when it is killed."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from rmqha.client.message import Message
from rmqha.client.producer import open_producer
from rmqha.client.results import SendStatus
from rmqha.codec import java_json
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import RemotingCommand
from tests.e2e.processes import Broker, Child
from tests.interop.dledger_brokers import MixedBrokers
from tests.interop.dledger_groups import JAVA, OURS, java_argv
from tests.interop.feature_table import JAVA_CLIENT
from tests.interop.peers import JavaNameServer
from tests.interop.test_tables import ask, fill, tables_of, wait_tables

pytestmark = pytest.mark.timeout(900)


class Clients:
    """``Numbers.java`` on a group."""

    def __init__(self, directory: Path, name_server: str) -> None:
        argv = java_argv("Numbers.java", name_server, "orders", directory=directory)
        self.running = Child(argv, log=directory / "clients.log")

    def _numbers(self, word: str) -> set[int]:
        lines = self.running.output().split("\n")[:-1]
        return {int(line.split()[1]) for line in lines if line.startswith(f"{word} ")}

    async def wait_more(self, count: int) -> None:
        """So many numbers are sent from now on; all that were sent are read."""
        until = max(self._numbers("sent"), default=0) + count
        await self.running.wait_output(rf"sent {until}\n")
        with trio.move_on_after(120):
            while missing := set(range(until + 1)) - self._numbers("got"):  # noqa: ASYNC110 - another process
                await trio.sleep(0.2)
        if missing:
            raise self.running.failed(f"these numbers were sent, and not read: {sorted(missing)}")


@asynccontextmanager
async def group_with_clients(directory: Path, kinds: Sequence[str]) -> AsyncIterator[tuple[MixedBrokers, Clients]]:
    """They send and read already."""
    name_server = JavaNameServer(directory / "namesrv")
    group = MixedBrokers(directory, kinds, namesrvAddr=name_server.address, registerNameServerPeriod=10_000)
    clients: Clients | None = None
    try:
        await name_server.running.wait_output("boot success")
        await group.start()
        await group.hand_over("n0")
        clients = Clients(directory, name_server.address)
        await clients.wait_more(20)
        yield group, clients
    finally:
        if clients is not None:
            clients.running.reap()
        group.close()
        name_server.close()


@pytest.mark.tries(JAVA_CLIENT, "go on with a DLedger group's next leader")
async def test_clients_go_on_with_the_next_leader(tmp_path: Path) -> None:
    """Two groups at once: most of the time goes by in waiting for what RocketMQ does every few seconds."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(of_rmqha_alone, tmp_path / "ours")
        nursery.start_soon(with_a_broker_of_rocketmq, tmp_path / "mixed")


async def our_client_sends(group: MixedBrokers) -> None:
    """To the leader, found at the name server; or at brokers of rmqha, of which followers name it, too."""
    for addresses in (str(group.brokers["n0"].conf["namesrvAddr"]), group.addresses):
        async with open_producer(addresses) as producer:
            result = await producer.send(Message("ours", b"ours"), retries=100, timeout_s=60)
            assert result.status is SendStatus.SEND_OK


async def of_rmqha_alone(directory: Path) -> None:
    """A leader is killed, and returns."""
    async with group_with_clients(directory, (OURS, OURS, OURS)) as (group, clients):
        await group.brokers["n0"].kill()
        await clients.wait_more(20)
        await group.brokers["n0"].start()
        await group.hand_over("n0")
        await clients.wait_more(20)


async def set_retries(leader: Broker, times: int) -> None:
    """Of the group "strict"."""
    body = b'{"groupName":"strict","retryMaxTimes":%d}' % times
    answer = await ask(leader, RemotingCommand(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def retries_of(broker: Broker) -> int | None:
    """As this broker knows; RocketMQ's followers ask for the table of groups last, and empty theirs before."""
    answer = await ask(broker, RemotingCommand(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
    table = java_json.loads(answer.body)["subscriptionGroupTable"] if answer.body else {}
    found = table.get("strict", {}).get("retryMaxTimes")
    return None if found is None else int(found)


async def with_a_broker_of_rocketmq(directory: Path) -> None:
    """Leaders of both kinds are killed; each kind's followers have the tables from the other's."""
    async with group_with_clients(directory, (JAVA, OURS, OURS)) as (group, clients):
        java = group.brokers["n0"]
        await fill(java)
        await set_retries(java, 3)
        for name in ("n1", "n2"):
            await wait_tables(group.brokers[name])
            with trio.fail_after(120):
                while await retries_of(group.brokers[name]) != 3:  # noqa: ASYNC110 - another process
                    await trio.sleep(0.5)
        await our_client_sends(group)
        await java.kill()
        await clients.wait_more(20)
        await our_client_sends(group)
        leader = await group.leader(besides="n0")
        await java.start()
        commit = {"consumerGroup": "g", "topic": "travels", "queueId": "0", "commitOffset": "4"}
        await ask(group.brokers[leader], RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=commit))
        await set_retries(group.brokers[leader], 4)
        with trio.fail_after(120):
            while (*await tables_of(java), await retries_of(java)) != (7, 4, 4):  # noqa: ASYNC110 - another process
                await trio.sleep(0.5)
        await group.brokers[leader].kill()
        await clients.wait_more(20)
