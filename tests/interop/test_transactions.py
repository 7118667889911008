"""RocketMQ's transactional producers: on our broker, and on the stores that each broker leaves to the other."""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from tests.e2e.processes import Broker, Child, RmqhaBroker, reaping
from tests.interop.dledger_brokers import MixedBrokers
from tests.interop.dledger_groups import JAVA, OURS, java_argv
from tests.interop.peers import JavaNameServer
from tests.interop.test_live_pairs import KINDS

pytestmark = pytest.mark.timeout(600)

CONF = {
    "brokerRole": "ASYNC_MASTER",
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 2_000,
    "transactionCheckInterval": 2_000,
    "transactionTimeOut": 1_000,
}
ENDED = [f"{end}-{number}" for number in range(20) for end in ("commit", "rollback")]
LATER = ["later_commit-1", "later_rollback-1", "later_commit-big", "never-1"]


class Transactions:
    """``Transactions.java``."""

    def __init__(self, directory: Path, name: str, name_server: str, *words: str) -> None:
        (directory / name).mkdir(parents=True)
        argv = java_argv("Transactions.java", name_server, "accounts", *words, directory=directory / name)
        self.running = Child(argv, log=directory / name / f"{name}.log")

    def told(self, word: str) -> list[list[str]]:
        """The lines that begin with ``word``, without it, word by word."""
        lines = self.running.output().split("\n")[:-1]
        return [line.split()[1:] for line in lines if line.startswith(f"{word} ")]

    async def wait_told(self, word: str, keys: set[str]) -> None:
        """All of ``keys`` are in such lines."""
        with trio.move_on_after(120):
            while not keys <= {facts[0] for facts in self.told(word)}:  # noqa: ASYNC110 - another process
                await trio.sleep(0.2)
            return
        raise self.running.failed(f"{keys - {facts[0] for facts in self.told(word)}} are not {word}")


@contextmanager
def programs(*running: Transactions) -> Iterator[None]:
    """They end with the block."""
    try:
        yield
    finally:
        for one in running:
            one.running.reap()


def committed(keys: list[str]) -> set[str]:
    return {key for key in keys if "commit" in key}


async def test_a_java_producer_s_transactions(tmp_path: Path) -> None:
    """Our broker is the name server as well. Each commit is consumed once, nothing else ever."""
    broker = RmqhaBroker(tmp_path / "broker", CONF)
    with reaping(broker):
        await broker.start()
        producer = Transactions(tmp_path, "producer", broker.address, *ENDED, *LATER)
        with programs(producer):
            await producer.running.wait_output("ready")
            assert {tuple(facts[1:]) for facts in producer.told("sent")} == {
                ("SEND_OK", "COMMIT_MESSAGE"), ("SEND_OK", "ROLLBACK_MESSAGE"), ("SEND_OK", "UNKNOW")
            }  # fmt: skip
            consumer = Transactions(tmp_path, "consumer", broker.address, "consume")
            with programs(consumer):
                await consumer.wait_told("got", committed([*ENDED, *LATER]))
                await producer.running.wait_output("asked never-1 3 ")
                got = Counter(facts[0] for facts in consumer.told("got"))
                assert got == Counter(committed([*ENDED, *LATER]))
                for key, is_transaction, flag, mine, _ in consumer.told("got"):
                    assert (is_transaction, flag, mine) == ("true", "7", key)
                asked = Counter(facts[0] for facts in producer.told("asked"))
                assert set(asked) == set(LATER)
                assert {key: times for key, times in asked.items() if key != "never-1"} == dict.fromkeys(LATER[:3], 1)
                assert {facts[2] for facts in producer.told("asked")} == {"accounts"}
                assert {facts[4] for facts in producer.told("asked")} == {"true"}


@pytest.mark.parametrize("ending", ["stopped", "killed"])
@pytest.mark.parametrize(("first", "second"), [("rmqha", "java"), ("java", "rmqha")])
async def test_the_other_broker_goes_on_with_half_messages(
    tmp_path: Path, first: str, second: str, ending: str
) -> None:
    """It asks about what the first one left, and about nothing that was ended there."""
    name_server = JavaNameServer(tmp_path / "namesrv")
    try:
        await name_server.running.wait_output("boot success")
        await _go_on(tmp_path, first, second, ending, name_server.address)
    finally:
        name_server.close()


def _broker(kind: str, directory: Path, name_server: str, **conf: object) -> Broker:
    return KINDS[kind](directory, CONF | {"namesrvAddr": name_server, "registerNameServerPeriod": 10_000} | conf)


async def _go_on(tmp_path: Path, first: str, second: str, ending: str, name_server: str) -> None:
    writer = _broker(first, tmp_path / "first", name_server)
    reader = _broker(second, tmp_path / "second", name_server)
    with reaping(writer, reader):
        await writer.start()
        producer = Transactions(tmp_path, "producer", _names(first, writer, name_server), *ENDED, *LATER[:3])
        with programs(producer):
            await producer.running.wait_output("ready")
        leaver = Transactions(tmp_path, "leaver", _names(first, writer, name_server), "never-1", "never-2")
        with programs(leaver):
            await leaver.running.wait_output(r"asked never-2 1 ")
            await trio.sleep(6)  # consumerOffset.json is written every 5 s
        await (writer.stop() if ending == "stopped" else writer.kill())
        shutil.copytree(writer.store, reader.store)
        await reader.start()
        answering = Transactions(tmp_path, "answering", _names(second, reader, name_server))
        with programs(answering):
            await answering.wait_told("asked", {"never-1", "never-2"})
            consumer = Transactions(tmp_path, "consumer", _names(second, reader, name_server), "consume")
            with programs(consumer):
                await consumer.wait_told("got", committed(ENDED))
                assert {facts[0] for facts in answering.told("asked")} <= {*LATER, "never-1", "never-2"}
                got = Counter(facts[0] for facts in consumer.told("got"))
                assert set(got) <= committed([*ENDED, *LATER])
                assert {key: times for key, times in got.items() if times > 1} == {}


def _names(kind: str, broker: Broker, name_server: str) -> str:
    """Where clients look for it: ours answers for itself."""
    return broker.address if kind == "rmqha" else name_server


async def test_leaders_of_both_kinds_ask_about_what_the_other_left(tmp_path: Path) -> None:
    """A DLedger group: RocketMQ's leader is killed, then ours."""
    name_server = JavaNameServer(tmp_path / "namesrv")
    names = {"namesrvAddr": name_server.address, "registerNameServerPeriod": 10_000}
    times = {key: value for key, value in CONF.items() if key.startswith("transaction")}
    group = MixedBrokers(tmp_path, (JAVA, OURS, OURS), **names, **times)
    try:
        await name_server.running.wait_output("boot success")
        await group.start()
        await group.hand_over("n0")
        await _hand_on(tmp_path, group, name_server.address)
    finally:
        group.close()
        name_server.close()


async def _hand_on(tmp_path: Path, group: MixedBrokers, name_server: str) -> None:
    first = Transactions(tmp_path, "first", name_server, *ENDED[:10], "later_commit-1", "never-1")
    consumer = Transactions(tmp_path, "consumer", name_server, "consume")
    with programs(first, consumer):
        await first.wait_told("asked", {"never-1", "later_commit-1"})
        await group.brokers["n0"].kill()
        leader = await group.leader(besides="n0")
        await _wait_asked_again(first, "never-1")
        second = Transactions(tmp_path, "second", name_server, *ENDED[10:20], "later_commit-2", "never-2")
        with programs(second):
            await second.wait_told("asked", {"never-2", "later_commit-2"})
            await group.brokers["n0"].start()
            await group.brokers[leader].kill()
            await group.hand_over("n0")
            await _wait_asked_again(second, "never-2")
            await _wait_asked_again(second, "never-1", other=first)
            await consumer.wait_told("got", committed([*ENDED[:20], "later_commit-1", "later_commit-2"]))
            got = Counter(facts[0] for facts in consumer.told("got"))
            assert set(got) == committed([*ENDED[:20], "later_commit-1", "later_commit-2"])


async def _wait_asked_again(one: Transactions, key: str, *, other: Transactions | None = None) -> None:
    """Any producer of the group may be."""

    def times() -> int:
        programs_asked = (one, other) if other is not None else (one,)
        return sum(facts[0] == key for program in programs_asked for facts in program.told("asked"))

    before = times()
    with trio.fail_after(120):
        while times() == before:  # noqa: ASYNC110 - another process
            await trio.sleep(0.2)
