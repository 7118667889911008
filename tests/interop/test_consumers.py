"""RocketMQ's consumers of every kind share out the queues of a broker of rmqha's, and go on when others go."""

import re
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final

import pytest
import trio

from rmqha.codec import java_json
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import RemotingCommand
from tests.broker.machines import send_request
from tests.e2e.processes import Broker, Child, RmqhaBroker, reaping
from tests.interop.dledger_brokers import MixedBrokers
from tests.interop.dledger_groups import OURS, java_argv
from tests.interop.feature_table import JAVA_CLIENT
from tests.interop.mqadmin import mqadmin_until
from tests.interop.peers import VERSION, JavaNameServer, tools_libs
from tests.interop.programs import Program, programs
from tests.interop.test_tables import ask, fill, wait_tables

pytestmark = pytest.mark.timeout(900)

QUEUES = 8
CLUSTERING = ("concurrent", "orderly", "lite")
STORED = (ResponseCode.SUCCESS, ResponseCode.SLAVE_NOT_AVAILABLE)
"""A master that has just returned is not followed yet."""
WAYS = ("ordinary", "ordered", "committed")
TRANSACTION_TIMES = {"transactionCheckInterval": 2_000, "transactionTimeOut": 1_000}
KINDS = (*CLUSTERING, "broadcast")
WITHIN_S = 240.0
"""A queue of an orderly consumer that was killed stays locked for 60 s, and is asked for every 20 s; at leisure."""


class Consumers:
    """``Consumers.java``: one of each kind."""

    def __init__(
        self, directory: Path, name_server: str, name: str, *, header: str = "JSON", version: str = VERSION
    ) -> None:
        (home := directory / name).mkdir()
        argv = java_argv("Consumers.java", name_server, "orders", name, directory=home, libs=tools_libs(version))
        argv[1:1] = [f"-Duser.home={home}", f"-Drocketmq.serialize.type={header}"]
        self.running = Child(argv, log=home / f"{name}.log")
        self._client_log: Final = home / "logs" / "rocketmqlogs" / "rocketmq_client.log"

    def got(self, kind: str) -> list[tuple[int, int, str]]:
        """Queue, offset and body of all that this kind consumed, in that order."""
        found = re.findall(rf"^got {kind} (\d+) (\d+) (\S+)$", self.running.output(), re.MULTILINE)
        return [(int(queue), int(offset), body) for queue, offset, body in found]

    def told(self) -> Counter[str]:
        """How often a broker said that the members have changed, by kind. They look by themselves every 20 s."""
        log = self._client_log.read_text(errors="replace") if self._client_log.exists() else ""
        return Counter(re.findall(r"broker's notification\S+ the consumer group: group-(\w+) changed", log))

    async def wait_told(self, before: Counter[str]) -> None:
        """Of each kind once more than ``before``."""
        with trio.fail_after(WITHIN_S):
            while any(self.told()[kind] <= before[kind] for kind in KINDS):  # noqa: ASYNC110 - another process
                await trio.sleep(0.2)


class Rounds:
    """Sends a message to each queue of a broker, round by round, and sees who consumes them."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._number = 0

    async def send(self) -> set[str]:
        """The bodies."""
        self._number += 1
        bodies = [f"{self._number}-{queue}" for queue in range(QUEUES)]
        for queue, body in enumerate(bodies):
            request = send_request(body.encode(), topic="orders", queue_id=queue, d=str(QUEUES))
            with trio.fail_after(WITHIN_S):
                while (await ask(self.broker, request)).code not in STORED:  # noqa: ASYNC110 - it has yet to lead
                    await trio.sleep(0.2)
        return set(bodies)

    async def wait_all(self, *consumers: Consumers) -> None:
        """Each kind consumes all of a round: together, or each of them if it broadcasts."""
        await self.wait_consumed(await self.send(), *consumers)

    async def wait_consumed(self, bodies: set[str], *consumers: Consumers, kinds: tuple[str, ...] = KINDS) -> None:
        """As :meth:`wait_all`, of an earlier round."""
        for kind in kinds:
            with trio.move_on_after(WITHIN_S) as patience:
                while not self._has_all(kind, bodies, consumers):  # noqa: ASYNC110 - another process
                    await trio.sleep(0.1)
            if patience.cancelled_caught:
                got = [sorted({body for _, _, body in one.got(kind)} & bodies) for one in consumers]
                raise AssertionError(f"{kind}: of {sorted(bodies)} after {WITHIN_S} s only {got}")

    @staticmethod
    def _has_all(kind: str, bodies: set[str], consumers: tuple[Consumers, ...]) -> bool:
        got = [{body for _, _, body in one.got(kind)} for one in consumers]
        return all(bodies <= one for one in got) if kind == "broadcast" else bodies <= set().union(*got)

    async def wait_shared(self, kind: str, *consumers: Consumers) -> None:
        """Each consumes from as many queues as the others, and none from one of another's."""
        with trio.fail_after(WITHIN_S):
            while True:
                await self.wait_consumed(bodies := await self.send(), *consumers, kinds=(kind,))
                got = [[body for _, _, body in one.got(kind) if body in bodies] for one in consumers]
                if [len(one) for one in got] == [QUEUES // len(consumers)] * len(consumers):
                    assert set().union(*got) == bodies
                    return


def check_order(one: Consumers) -> None:
    """An orderly consumer gets each queue's messages in order, each once."""
    by_queue: dict[int, list[int]] = {}
    for queue, offset, _ in one.got("orderly"):
        by_queue.setdefault(queue, []).append(offset)
    assert by_queue
    for offsets in by_queue.values():
        assert all(former < latter for former, latter in pairwise(offsets)), offsets


def check_order_under_load(*consumers: Consumers) -> None:
    """They get each queue's messages in order. What comes out of turn has come before: a lock was lost meanwhile."""
    got = [[(queue, offset) for queue, offset, _ in one.got("orderly")] for one in consumers]
    for number, places in enumerate(got):
        known = {place for other in got[:number] + got[number + 1 :] for place in other}
        latest: dict[int, int] = {}
        for queue, offset in places:
            assert offset > latest.get(queue, -1) or (queue, offset) in known, (queue, offset, latest[queue])
            known.add((queue, offset))
            latest[queue] = max(offset, latest.get(queue, -1))
    in_order = sorted({place for one in consumers for place in one.got("orderly") if place[2].startswith("ordered-")})
    for _, placed in groupby(in_order, key=lambda place: place[0]):
        numbers = [int(body.removeprefix("ordered-")) for _, _, body in placed]
        assert numbers == sorted(numbers), "they were sent in another order"


class Senders(Program):
    """``Senders.java``."""

    def __init__(self, directory: Path, name_server: str) -> None:
        self._end: Final = directory / "end"
        super().__init__("Senders.java", directory, "senders", name_server, "orders", self._end)

    def acknowledged(self) -> set[str]:
        """The bodies of messages that were sent with SEND_OK; a transaction may have yet to be committed."""
        return {words[0] for words in self.told("acknowledged")}

    async def wait_more(self, count: int) -> None:
        """Of each way of sending so many more are acknowledged."""
        before = self._counts()
        with trio.fail_after(120):
            while any(self._counts()[way] < before[way] + count for way in WAYS):  # noqa: ASYNC110 - another process
                await trio.sleep(0.5)

    def _counts(self) -> Counter[str]:
        return Counter(body.partition("-")[0] for body in self.acknowledged())

    async def end(self) -> set[str]:
        """Have them send no more; returns what was acknowledged in all."""
        self._end.touch()
        await self.running.wait_output("(?m)^ended")
        return self.acknowledged()


@contextmanager
def ending(*started: Consumers) -> Iterator[None]:
    try:
        yield
    finally:
        for one in started:
            one.running.reap()


async def wait_clients(broker: Broker, kind: str, *names: str) -> None:
    """The members of a group are these, as this broker knows. They tell it as they begin, and every 30 s."""
    found: list[str] | None = None
    with trio.move_on_after(WITHIN_S):
        while (found := await clients_of(broker, kind)) != [f"{name}-{kind}" for name in names]:  # noqa: ASYNC110
            await trio.sleep(0.2)
        return
    raise AssertionError(f"members of group-{kind} are {found} and not {names}")


async def clients_of(broker: Broker, kind: str) -> list[str]:
    fields = {"consumerGroup": f"group-{kind}"}
    answer = await ask(broker, RemotingCommand(RequestCode.GET_CONSUMER_CONNECTION_LIST, ext_fields=fields))
    if answer.code == ResponseCode.CONSUMER_NOT_ONLINE:
        return []
    assert answer.code == ResponseCode.SUCCESS
    shown = java_json.loads(answer.body)
    assert set(shown["subscriptionTable"]) >= {"orders"}
    assert shown["messageModel"] == ("BROADCASTING" if kind == "broadcast" else "CLUSTERING")
    return sorted(one["clientId"].split("@")[1] for one in shown["connectionSet"])


@pytest.mark.tries(JAVA_CLIENT, "share out queues with others", "push, broadcasting")
async def test_java_consumers_share_out_queues_and_go_on_when_others_go(tmp_path: Path) -> None:
    """The broker itself is their name server. One speaks JSON, the other has binary headers."""
    broker = RmqhaBroker(tmp_path / "broker", {"brokerRole": "ASYNC_MASTER"})
    with reaping(broker):
        await broker.start()
        rounds = Rounds(broker)
        await rounds.send()
        a = Consumers(tmp_path, broker.address, "a")
        with ending(a):
            await rounds.wait_all(a)
            told = a.told()
            b = Consumers(tmp_path, broker.address, "b", header="ROCKETMQ")
            with ending(b):
                await b.running.wait_output("started")
                await a.wait_told(told)
                await others_come_and_go(broker, rounds, a, b)


async def others_come_and_go(broker: RmqhaBroker, rounds: Rounds, a: Consumers, b: Consumers) -> None:
    for kind in CLUSTERING:
        await rounds.wait_shared(kind, a, b)
    await rounds.wait_all(a, b)
    for kind in KINDS:
        await wait_clients(broker, kind, "a", "b")
    told = b.told()
    await a.running.kill()
    await b.wait_told(told)
    await rounds.wait_all(b)
    for kind in KINDS:
        await wait_clients(broker, kind, "b")
    await broker.kill()
    await broker.start()
    await rounds.wait_all(b)
    check_order(a)
    check_order(b)


@pytest.mark.tries(JAVA_CLIENT, "consume from a slave", "go on when a master is killed under load")
async def test_java_clients_go_on_when_the_master_is_killed_under_load(tmp_path: Path) -> None:
    """Consumers from the slave, all with the master's return; orderly consumers lock queues at the master alone.

    What was acknowledged is consumed, in each queue in its order, half messages included that were not committed yet.
    """
    name_server = JavaNameServer(tmp_path / "namesrv")
    common = {"namesrvAddr": name_server.address, "registerNameServerPeriod": 10_000, **TRANSACTION_TIMES}
    master = RmqhaBroker(tmp_path / "master", {"brokerRole": "SYNC_MASTER", **common})
    links = {"haMasterAddress": master.ha_address, "masterAddress": master.address}
    slave = RmqhaBroker(tmp_path / "slave", {"brokerRole": "SLAVE", "brokerId": 1, **links, **common})
    started: list[Consumers] = []
    try:
        await name_server.running.wait_output("boot success")
        with reaping(master, slave):
            for broker in (master, slave):
                await broker.start()
            await fill(master)
            await wait_tables(slave)
            await mqadmin_until(tmp_path, "clusterList", "-n", name_server.address, shows=slave.address)
            rounds = Rounds(master)
            await rounds.send()
            started += [Consumers(tmp_path, name_server.address, name) for name in ("a", "b")]
            await rounds.wait_all(*started)
            with programs(senders := Senders(tmp_path, name_server.address)):
                await senders.wait_more(10)
                for one in started:
                    one.running.signal(signal.SIGSTOP)  # they have a backlog, all of it to be read from the slave
                await senders.wait_more(50)
                await master.kill()
                for one in started:
                    one.running.signal(signal.SIGCONT)
                bodies = {body for body in senders.acknowledged() if not body.startswith("committed-")}
                await rounds.wait_consumed(bodies, *started, kinds=("concurrent", "lite", "broadcast"))
                await wait_clients(slave, "concurrent", "a", "b")
                await master.start()
                await senders.wait_more(20)
                bodies = await senders.end()
                await rounds.wait_consumed(bodies, *started)
            check_order_under_load(*started)
    finally:
        for one in started:
            one.running.reap()
        name_server.close()


@pytest.mark.tries(JAVA_CLIENT, "go on with a DLedger group's next leader")
async def test_java_consumers_go_on_with_the_next_leader_of_a_dledger_group(tmp_path: Path) -> None:
    """Its broker knows no members and no locks; all that was acknowledged is consumed."""
    name_server = JavaNameServer(tmp_path / "namesrv")
    conf = {"namesrvAddr": name_server.address, "registerNameServerPeriod": 10_000}
    group = MixedBrokers(tmp_path / "brokers", (OURS,) * 3, **conf)
    started: list[Consumers] = []
    try:
        await name_server.running.wait_output("boot success")
        await group.start()
        rounds = Rounds(group.brokers[leader := await group.leader()])
        await rounds.send()
        started += [Consumers(tmp_path, name_server.address, name) for name in ("a", "b")]
        await rounds.wait_all(*started)
        bodies = await rounds.send()
        await group.brokers[leader].kill()
        rounds.broker = group.brokers[await group.leader(besides=leader)]
        await rounds.wait_consumed(bodies, *started)
        await rounds.wait_all(*started)
        await wait_clients(rounds.broker, "orderly", "a", "b")
        check_order_under_load(*started)  # who has not found the new leader yet may lose its queues for a while
    finally:
        for one in started:
            one.running.reap()
        group.close()
        name_server.close()
