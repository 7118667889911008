"""RocketMQ's producers of delayed messages, and consumers that fail: on our broker, and where one follows the other."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
import trio

from rmqha.codec import java_json
from rmqha.codec.codes import RequestCode
from rmqha.codec.record.layout import SCHEDULE_TOPIC
from rmqha.codec.remoting import RemotingCommand
from tests.e2e.name_servers import RmqhaNameServer
from tests.e2e.processes import Broker, RmqhaBroker, reaping
from tests.interop.dledger_brokers import MixedBrokers
from tests.interop.dledger_groups import JAVA, OURS
from tests.interop.feature_table import BROKER, JAVA_CLIENT
from tests.interop.programs import Program, broker_of, names_of, programs
from tests.interop.test_tables import ask, wait_end

pytestmark = pytest.mark.timeout(600)

CONF = {
    "brokerRole": "ASYNC_MASTER",
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 2_000,
    "messageDelayLevel": "1s 2s 3s 20m",
}
"""A consumer's own first retry has level 3. What has level 4 does not come, however slow the machine is."""
SOON = CONF | {"messageDelayLevel": "1s 2s 3s 3s"}
"""Here it does; what is to wait for longer, by the log of another broker, comes at once from brokers of both kinds."""
EARLY = [f"1:early-{number}" for number in range(20)]
LATE = [f"4:late-{number}" for number in range(20)]


class Delays(Program):
    """``Delays.java``."""

    def __init__(self, directory: Path, name: str, *words: object, **properties: str) -> None:
        super().__init__("Delays.java", directory, name, *words, **properties)

    def got(self) -> list[tuple[str, int, int, str, str]]:
        """Of each message that came: key, how often it had come before, ms since it was sent, topic, first topic."""
        told = self.told("got")
        assert all(facts[5] == "true" for facts in told), "a body is another one"
        return [(key, int(times), int(after), topic, first) for key, times, after, topic, first, _ in told]

    def times_got(self) -> Counter[str]:
        """How often each key came."""
        return Counter(key for key, *_ in self.got())

    async def wait_got(self, keys: set[str], *, times: int = 0) -> None:
        """All of them came, after so many earlier times."""
        missing = keys
        with trio.move_on_after(120):
            while missing := keys - {key for key, before, *_ in self.got() if before >= times}:  # noqa: ASYNC110 - another process
                await trio.sleep(0.2)
            return
        raise self.running.failed(f"{missing} did not come with {times} earlier times")


async def wait_left(broker: Broker) -> None:
    """What the other is to deliver is stored, a retry behind LATE, and this broker knows that it delivered EARLY."""
    await wait_end(broker, SCHEDULE_TOPIC, len(LATE) + 1, queue_id=3)
    with trio.fail_after(120):
        while True:
            answer = await ask(broker, RemotingCommand(RequestCode.GET_ALL_DELAY_OFFSET))
            if answer.body and java_json.loads(answer.body)["offsetTable"].get(1) == len(EARLY):
                return
            await trio.sleep(0.2)


def keys_of(*sent: str) -> set[str]:
    return {one.split(":")[1] for one in sent}


@pytest.mark.tries(JAVA_CLIENT, "send delayed", "push, later again", "push, dead letters")
async def test_a_java_producer_s_delays_and_a_consumer_s_retries(tmp_path: Path) -> None:
    """I12 and I13 with RocketMQ's own clients. Our broker is the name server as well."""
    broker = RmqhaBroker(tmp_path / "broker", CONF)
    with reaping(broker):
        await broker.start()
        consumer = Delays(tmp_path, "consumer", broker.address, "orders", "consume", "group", 3, 3)
        with programs(consumer):
            await consumer.running.wait_output("ready")
            sent = [*(f"{level}:good{level}-{number}" for level in (1, 2, 3) for number in range(5)), "0:now"]
            failing = ["0:twice-0", "1:twice-1", "0:bad-0", "2:bad-1"]
            producer = Delays(tmp_path, "producer", broker.address, "orders", "send", *sent, *failing)
            with programs(producer):
                await producer.running.wait_output("ready")
                assert producer.running.output().count("SEND_OK") == len(sent) + len(failing)
            await consumer.wait_got(keys_of(*sent, *failing))
            await consumer.wait_got({"twice-0", "twice-1"}, times=2)
            dead = Delays(tmp_path, "dead", broker.address, "%DLQ%group", "consume", "buriers", 3, 0)
            with programs(dead):
                await dead.wait_got({"bad-0", "bad-1"})
                assert {(key, times, first) for key, times, _, _, first in dead.got()} == {
                    ("bad-0", 4, "orders"), ("bad-1", 4, "orders")
                }  # fmt: skip
                got = consumer.got()
                times = {key: sorted(before for one, before, *_ in got if one == key) for key in keys_of(*failing)}
                assert times == {
                    "twice-0": [0, 1, 2], "twice-1": [0, 1, 2], "bad-0": [0, 1, 2, 3], "bad-1": [0, 1, 2, 3]
                }  # fmt: skip
                assert {
                    key: count for key, count in consumer.times_got().items() if key.startswith("good")
                } == dict.fromkeys(keys_of(*sent) - {"now"}, 1)
                for key, before, after_ms, topic, _ in got:
                    assert topic == "orders", "RocketMQ's consumer shows the first topic"
                    if key.startswith("good"):
                        assert after_ms >= 1000 * int(key[4])
                    if key == "twice-0" and before == 1:
                        assert after_ms >= 3000


@pytest.mark.tries(BROKER, "go on with the other's delayed messages")
@pytest.mark.parametrize("ending", ["stopped", "killed"])
@pytest.mark.parametrize(("first", "second"), [("rmqha", "java"), ("java", "rmqha")])
async def test_the_other_broker_goes_on_with_delayed_messages(
    tmp_path: Path, java_name_server: str, first: str, second: str, ending: str
) -> None:
    """It delivers what the first one left, and of what that had delivered nothing again, unless it was killed."""
    writer = broker_of(first, tmp_path / "first", CONF, java_name_server)
    reader = broker_of(second, tmp_path / "second", SOON, java_name_server)
    with reaping(writer, reader):
        await writer.start()
        names = names_of(first, writer, java_name_server)
        consumer = Delays(tmp_path, "before", names, "orders", "consume", "group", 16, 4)
        with programs(consumer):
            await consumer.running.wait_output("ready")
            producer = Delays(tmp_path, "producer", names, "orders", "send", *EARLY, *LATE, "0:twice-0")
            with programs(producer):
                await producer.running.wait_output("ready")
            await consumer.wait_got(keys_of(*EARLY, "0:twice-0"))
            await wait_left(writer)
            assert not keys_of(*LATE) & consumer.times_got().keys(), "they are for the other broker"
        await (writer.stop() if ending == "stopped" else writer.kill())
        shutil.copytree(writer.store, reader.store)
        await reader.start()
        names = names_of(second, reader, java_name_server)
        again = Delays(tmp_path, "after", names, "orders", "consume", "others", 16, 4)
        retrying = Delays(tmp_path, "retrying", names, "orders", "consume", "group", 16, 4)
        with programs(again, retrying):
            await again.wait_got(keys_of(*EARLY, *LATE))
            await retrying.wait_got({"twice-0"}, times=1)  # after a kill once more as if it had never come
            await trio.sleep(3)
            late = {key: count for key, count in again.times_got().items() if key.startswith("late")}
            early = {key: count for key, count in again.times_got().items() if key.startswith("early")}
            assert late == dict.fromkeys(keys_of(*LATE), 1)
            if ending == "stopped":
                assert early == dict.fromkeys(keys_of(*EARLY), 1)


@pytest.mark.tries(BROKER, "go on with the other's delayed messages as leader")
async def test_leaders_of_both_kinds_deliver_what_the_other_left(tmp_path: Path, java_name_server: str) -> None:
    """A DLedger group: RocketMQ's leader is killed, then ours."""
    names = {"namesrvAddr": java_name_server, "registerNameServerPeriod": 10_000}
    group = MixedBrokers(
        tmp_path, (JAVA, OURS, OURS), **names, messageDelayLevel="1s 2s 3s 20s", flushDelayOffsetInterval=1_000
    )
    try:
        await group.start()
        await group.hand_over("n0")
        await _hand_on(tmp_path, group, java_name_server)
    finally:
        group.close()


async def _hand_on(tmp_path: Path, group: MixedBrokers, name_server: str) -> None:
    consumer = Delays(tmp_path, "consumer", name_server, "orders", "consume", "group", 16, 4)
    with programs(consumer):
        first = Delays(tmp_path, "first", name_server, "orders", "send", *EARLY[:10], *LATE[:10])
        with programs(first):
            await first.running.wait_output("ready")
        await group.brokers["n0"].kill()
        leader = await group.leader(besides="n0")
        await consumer.wait_got(keys_of(*EARLY[:10], *LATE[:10]))
        second = Delays(tmp_path, "second", name_server, "orders", "send", *EARLY[10:], *LATE[10:], "0:twice-1")
        with programs(second):
            await second.running.wait_output("ready")
        await consumer.wait_got(keys_of(*EARLY[10:]))
        await group.brokers["n0"].start()
        await group.brokers[leader].kill()
        await group.hand_over("n0")
        await consumer.wait_got(keys_of(*EARLY, *LATE))
        with trio.fail_after(240):
            while consumer.times_got()["twice-1"] < 3:  # noqa: ASYNC110 - another process
                await trio.sleep(0.2)


@pytest.mark.tries(JAVA_CLIENT, "the first retry of a new group")
async def test_a_new_group_s_first_retry_comes_when_its_level_says(tmp_path: Path) -> None:
    """With RocketMQ's own intervals, of 30 s: who asks for a new topic in vain asks again after 20 s."""
    names = RmqhaNameServer(tmp_path / "namesrv")
    broker = RmqhaBroker(tmp_path / "broker", CONF | {"namesrvAddr": names.address, "messageDelayLevel": "1s 2s 10s"})
    try:
        await names.start()
        with reaping(broker):
            await broker.start()
            await names.knows(broker)
            producer = Delays(tmp_path, "producer", names.address, "orders", "send", "0:bad-0", "0:twice-0")
            with programs(producer):
                await producer.running.wait_output("ready")
            words = (names.address, "orders", "consume", "group", 16, 0)
            consumer = Delays(tmp_path, "consumer", *words, interval="30000")
            with programs(consumer):
                await consumer.wait_got({"bad-0", "twice-0"}, times=1)
                after = {(key, times): after for key, times, after, *_ in consumer.got()}
                waited_s = [(after[key, 1] - after[key, 0]) / 1000 for key in ("bad-0", "twice-0")]
                assert 9 < min(waited_s) <= max(waited_s) < 18, waited_s
    finally:
        names.close()
