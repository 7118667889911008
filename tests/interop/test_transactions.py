"""RocketMQ's transactional producers: on our broker, and on the stores that each broker leaves to the other."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
import trio

from rmqha.codec import java_json
from tests.e2e.processes import Broker, RmqhaBroker, reaping
from tests.interop.dledger_brokers import MixedBrokers
from tests.interop.dledger_groups import JAVA, OURS
from tests.interop.feature_table import BROKER, JAVA_CLIENT
from tests.interop.programs import Program, broker_of, names_of, programs
from tests.interop.test_tables import max_offset

pytestmark = pytest.mark.timeout(600)

CONF = {
    "brokerRole": "ASYNC_MASTER",
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 2_000,
    "transactionCheckInterval": 2_000,
    "transactionTimeOut": 1_000,
    "transactionCheckMax": 1_000,
}
"""By default a half message is given up after 15 checks, also of those in which no producer is there: half a minute."""
ENDED = [f"{end}-{number}" for number in range(20) for end in ("commit", "rollback")]
LATER = ["later_commit-1", "later_rollback-1", "later_commit-big", "never-1"]
HALF_TOPIC, OP_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"


class Transactions(Program):
    """``Transactions.java``."""

    def __init__(self, directory: Path, name: str, name_server: str, *words: str, **properties: str) -> None:
        super().__init__("Transactions.java", directory, name, name_server, "accounts", *words, **properties)

    def keys(self, word: str) -> list[str]:
        """Of the messages that it says this of."""
        return [facts[0] for facts in self.told(word)]

    async def wait_told(self, word: str, keys: set[str], *, others: tuple["Transactions", ...] = ()) -> None:
        """All of ``keys`` are in such lines: of any of these producers, as a broker asks one of their group."""
        missing = keys
        with trio.move_on_after(120):
            while missing := keys.difference(*(one.keys(word) for one in (self, *others))):  # noqa: ASYNC110 - another process
                await trio.sleep(0.2)
            return
        raise self.running.failed(f"{missing} are not {word}")


async def wait_ended(broker: Broker, count: int) -> None:
    """So many half messages are ended, and the broker has saved that it has done with all that lie before the end.

    One that it asked about lies further behind a second time. It would be asked about again if the first were not over.
    """
    offsets = broker.store / "config" / "consumerOffset.json"

    def done() -> int:
        try:
            table = java_json.loads(offsets.read_bytes())["offsetTable"]
        except FileNotFoundError:  # for a moment RocketMQ has no such file while it writes it
            return 0
        return int(table.get(f"{HALF_TOPIC}@CID_RMQ_SYS_TRANS", {}).get(0, 0))

    with trio.fail_after(120):
        while await max_offset(broker, OP_TOPIC) < count:  # noqa: ASYNC110 - another process
            await trio.sleep(0.2)
        end = await max_offset(broker, HALF_TOPIC)
        while done() < end:  # noqa: ASYNC110 - another process
            await trio.sleep(0.2)


def committed(keys: list[str]) -> set[str]:
    return {key for key in keys if "commit" in key}


@pytest.mark.tries(JAVA_CLIENT, "send in transactions", "be asked about transactions")
async def test_a_java_producer_s_transactions(tmp_path: Path) -> None:
    """Our broker is the name server as well. Each commit is consumed once, nothing else ever.

    Who has ten seconds for what takes a moment is not asked about what it has ended, nor once more about an answer.
    """
    broker = RmqhaBroker(tmp_path / "broker", CONF | {"transactionCheckInterval": 10_000, "transactionTimeOut": 10_000})
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
                await producer.running.wait_output("asked never-1 ([3-9]|[1-9][0-9]+) ")
                got = Counter(consumer.keys("got"))
                assert got == Counter(committed([*ENDED, *LATER]))
                for key, is_transaction, flag, mine, _ in consumer.told("got"):
                    assert (is_transaction, flag, mine) == ("true", "7", key)
                asked = Counter(producer.keys("asked"))
                assert set(asked) == set(LATER)
                assert {key: times for key, times in asked.items() if key != "never-1"} == dict.fromkeys(LATER[:3], 1)
                assert {facts[2] for facts in producer.told("asked")} == {"accounts"}
                assert {facts[4] for facts in producer.told("asked")} == {"true"}


@pytest.mark.tries(BROKER, "go on with the other's half messages")
@pytest.mark.parametrize("ending", ["stopped", "killed"])
@pytest.mark.parametrize(("first", "second"), [("rmqha", "java"), ("java", "rmqha")])
async def test_the_other_broker_goes_on_with_half_messages(
    tmp_path: Path, java_name_server: str, first: str, second: str, ending: str
) -> None:
    """It asks about what the first one left, and about nothing that was ended there."""
    writer = broker_of(first, tmp_path / "first", CONF, java_name_server)
    reader = broker_of(second, tmp_path / "second", CONF, java_name_server)
    with reaping(writer, reader):
        await writer.start()
        producer = Transactions(tmp_path, "producer", names_of(first, writer, java_name_server), *ENDED, *LATER[:3])
        with programs(producer):
            await producer.running.wait_output("ready")
        leaver = Transactions(tmp_path, "leaver", names_of(first, writer, java_name_server), "never-1", "never-2")
        with programs(leaver):
            await leaver.wait_told("asked", {"never-2"})
            await wait_ended(writer, len(ENDED) + 3)
        await (writer.stop() if ending == "stopped" else writer.kill())
        shutil.copytree(writer.store, reader.store)
        await reader.start()
        answering = Transactions(tmp_path, "answering", names_of(second, reader, java_name_server))
        with programs(answering):
            await answering.wait_told("asked", {"never-1", "never-2"})
            consumer = Transactions(tmp_path, "consumer", names_of(second, reader, java_name_server), "consume")
            with programs(consumer):
                await consumer.wait_told("got", committed(ENDED))
                assert set(answering.keys("asked")) <= {*LATER, "never-1", "never-2"}
                got = Counter(consumer.keys("got"))
                assert set(got) <= committed([*ENDED, *LATER])
                assert {key: times for key, times in got.items() if times > 1} == {}


@pytest.mark.tries(BROKER, "go on with the other's half messages as leader")
async def test_leaders_of_both_kinds_ask_about_what_the_other_left(tmp_path: Path, java_name_server: str) -> None:
    """A DLedger group: RocketMQ's leader is killed, then ours."""
    names = {"namesrvAddr": java_name_server, "registerNameServerPeriod": 10_000}
    times = {key: value for key, value in CONF.items() if key.startswith("transaction")}
    group = MixedBrokers(tmp_path, (JAVA, OURS, OURS), **names, **times)
    try:
        await group.start()
        await group.hand_over("n0")
        await _hand_on(tmp_path, group, java_name_server)
    finally:
        group.close()


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
            await second.wait_told("asked", {"never-2", "later_commit-2"}, others=(first,))
            await group.brokers["n0"].start()
            await group.brokers[leader].kill()
            await group.hand_over("n0")
            await _wait_asked_again(second, "never-2", other=first)
            await _wait_asked_again(second, "never-1", other=first)
            await consumer.wait_told("got", committed([*ENDED[:20], "later_commit-1", "later_commit-2"]))
            got = Counter(consumer.keys("got"))
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
