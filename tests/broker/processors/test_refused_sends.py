"""Sends that would be stored and never seen, or that no broker can read: refused in words, and nothing is stored."""

from collections.abc import Iterator

import pytest
import trio

from rmqha.broker.processors.send_message_processor import LARGE_BATCHES_MAX, SendMessageProcessor
from rmqha.broker.puts.durability import Durability
from rmqha.broker.puts.put_service import PutMessageService
from rmqha.broker.puts.sent_records import SendRules
from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.codec.batch import BATCH_MESSAGES_MAX, BatchEntry, encode_batch
from rmqha.codec.codes import ResponseCode
from rmqha.codec.record.layout import SysFlag, enters_queue
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.send_answers import decode_send_response
from tests.broker.machines import Machine, Sender, ask, pull_request, retry_topics, send_request
from tests.broker.test_pair import SLAVE
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_net import SimNet

TRANSACTIONS = [SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK]


async def test_trap_39_queues_that_are_read_and_no_more_written_still_take_messages(
    virtual_clock: VirtualClock,
) -> None:
    """Of producers that know the topic as it was; who leaves the choice to the broker gets one that is written."""
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker() as broker, machine.client() as client:
        broker.topics.update_topic_config(TopicConfig("t", read_queue_nums=4, write_queue_nums=2))
        for queue_id, queues in ((3, {3}), (-1, {0, 1})):
            answers = [await ask(client, send_request(b"x", queue_id=queue_id)) for _ in range(4)]
            assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
            assert {decode_send_response(answer).queue_id for answer in answers} == queues
        assert (await ask(client, send_request(b"x", queue_id=4))).code == ResponseCode.SYSTEM_ERROR


async def test_what_is_answered_send_ok_is_seen_whatever_its_flags(virtual_clock: VirtualClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker(), machine.client() as client:
        for sys_flag in [*range(64), 0x40, 0x80, 0x300, 0x700, 0x7FFFFFFF, -1, -0x80000000]:
            answer = await ask(client, send_request(b"x", f=str(sys_flag)))
            assert answer.code in {ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL}, sys_flag
            if answer.code == ResponseCode.SUCCESS:
                offset = decode_send_response(answer).queue_offset
                pulled = await ask(client, pull_request(offset, suspend_ms=5000, max_num=1))
                assert pulled.code == ResponseCode.SUCCESS, f"sysFlag {sys_flag} was acknowledged and is never seen"


@pytest.mark.parametrize("sys_flag", [4, 5, 8, 12, 52, -1])
@pytest.mark.parametrize("batch", [False, True])
async def test_a_transactional_flag_is_refused(sys_flag: int, batch: bool, virtual_clock: VirtualClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker() as broker, machine.client() as client:
        answer = await ask(client, send_request(b"x", batch=batch, f=str(sys_flag)))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "transaction" in (answer.remark or "")
        assert broker.store.max_offset == 0


@pytest.mark.parametrize("batch", [False, True])
async def test_an_inner_batch_is_refused(batch: bool, virtual_clock: VirtualClock) -> None:
    """With INNER_NUM no start would read on behind it. RocketMQ 5 refuses the bit, too, but for topics made for it."""
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker() as broker, machine.client() as client:
        for _ in range(2):  # the second one would be a usual send
            answer = await ask(client, send_request(b"x", batch=batch, f="192", i="INNER_NUM\x012"))
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
            assert "an inner batch of RocketMQ 5" in (answer.remark or "")
        assert broker.store.max_offset == 0


def test_two_of_the_transaction_types_enter_no_queue() -> None:
    assert [enters_queue(flag) for flag in (0, *TRANSACTIONS)] == [True, False, True, False]
    assert [enters_queue(flag | SysFlag.COMPRESSED) for flag in (0, *TRANSACTIONS)] == [True, False, True, False]


DELAYS = ["2147483648", "9" * 4301, "9" * 30_000, "x", " 1", "1_0", "\uff11", "1.5"]


@pytest.mark.parametrize("delay", DELAYS)
async def test_what_is_no_level_is_refused_however_it_is_written(delay: str, virtual_clock: VirtualClock) -> None:
    """A number of more than 4,300 digits ended the broker; RocketMQ refuses all of these as well."""
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker() as broker, machine.client() as client:
        assert await code_of_delay(client, delay) == ResponseCode.MESSAGE_ILLEGAL
        assert broker.store.max_offset == 0
        assert await code_of_delay(client, "0") == ResponseCode.SUCCESS


@pytest.mark.parametrize("delay", ["0", "00", "-1", "-0", "-" + "9" * 4301])
async def test_a_delay_of_nothing_is_none(delay: str, virtual_clock: VirtualClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker(), machine.client() as client:
        assert await code_of_delay(client, delay) == ResponseCode.SUCCESS


async def code_of_delay(client: object, delay: str) -> int:
    answer: RemotingCommand = await ask(client, send_request(b"x", properties=f"DELAY\x01{delay}"))  # type: ignore[arg-type]
    return answer.code


@pytest.mark.parametrize(
    ("count", "properties", "code"),
    [
        (BATCH_MESSAGES_MAX, "", ResponseCode.SUCCESS),
        (BATCH_MESSAGES_MAX + 1, "", ResponseCode.MESSAGE_ILLEGAL),
        (180_000, "", ResponseCode.MESSAGE_ILLEGAL),
        (BATCH_MESSAGES_MAX, "K\x01" + "v" * 30_000, ResponseCode.MESSAGE_ILLEGAL),
    ],
)
async def test_a_batch_of_too_many_or_of_too_much_is_refused(
    count: int, properties: str, code: ResponseCode, virtual_clock: VirtualClock
) -> None:
    """Each of its messages costs time, and stores the properties of all: 4 MiB stood for gigabytes."""
    machine = Machine(SimNet(), "10.0.0.1", {"mappedFileSizeCommitLog": str(16 << 20)})
    body = encode_batch([BatchEntry(0, b"", b"")] * count)
    async with machine.broker(), machine.client() as client:
        answer = await ask(client, send_request(body, batch=True, properties=properties))
        assert answer.code == code
        assert (answer.code == ResponseCode.SUCCESS) == ("send them in several" not in (answer.remark or ""))


class LoneSender(Sender):
    """Nobody else prepares a batch, so nothing is waited for."""

    def work(self, steps: Iterator[bool]) -> None:
        assert not any(steps), "a batch waits for a place that nobody holds"


async def test_a_large_batch_that_is_refused_gives_its_place_back(virtual_clock: VirtualClock) -> None:
    """However many are refused, a good one does not wait for them."""
    machine, sender = Machine(SimNet(), "10.0.0.1"), LoneSender()
    good = encode_batch([BatchEntry(0, bytes(1000), b"")] * 100)
    async with machine.broker(mappedFileSizeCommitLog=str(1 << 20)) as broker, machine.client() as client:
        await ask(client, send_request(b"", topic="t"))
        durability = Durability(broker.store, clock=trio.current_time, flush=None, replica=None)
        rules = SendRules("cluster", bytes(8), 1 << 20)
        puts = PutMessageService(broker.store, broker.topics, durability, refusal=lambda: "")
        sends = SendMessageProcessor(puts, broker.topics, retry_topics(broker.topics), rules=rules)
        for opaque, body in enumerate([good[:-1]] * LARGE_BATCHES_MAX + [good]):
            request = send_request(body, batch=True)
            request.opaque = opaque
            sends.process(sender, [request])  # type: ignore[arg-type]
        codes = [answer.code for _, answer in sorted(sender.answers.items())]
    assert codes == [ResponseCode.SYSTEM_ERROR] * LARGE_BATCHES_MAX + [ResponseCode.SUCCESS]


async def test_each_send_that_is_refused_is_counted_once_and_no_other(virtual_clock: VirtualClock) -> None:
    """Operators have an alert on that (rmqha_sends_total)."""
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker() as broker, machine.client() as client:

        def refusals() -> int:
            return broker.store.stats.put_message_failed_times + broker.store.stats.sends_refused

        await ask(client, send_request(b"x"))
        assert refusals() == 0
        for count, refused in enumerate((send_request(b"x", f="4"), send_request(b"x", queue_id=99)), 1):
            assert (await ask(client, refused)).code != ResponseCode.SUCCESS
            assert refusals() == count
        broker.store.running_flags.refuse_puts("a peer is longer")
        client.put_nowait(b"".join(send_request(b"x").encode() for _ in range(3)))
        assert (await ask(client, send_request(b"x"))).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert refusals() == 2 + 4


@pytest.mark.parametrize("permission", [2, 4, 6])
async def test_without_write_permission_a_broker_takes_no_more_messages_in_order(
    permission: int, virtual_clock: VirtualClock
) -> None:
    """As RocketMQ's: producers of all others are led away by the route, and what they send meanwhile is taken."""
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker(brokerPermission=str(permission)) as broker, machine.client() as client:
        broker.topics.update_topic_config(TopicConfig("ordered", 1, 1, order=True))
        broker.topics.update_topic_config(TopicConfig("other", 1, 1))
        codes = [(await ask(client, send_request(b"x", topic=topic))).code for topic in ("ordered", "other")]
        assert codes == [ResponseCode.SUCCESS if permission & 2 else ResponseCode.NO_PERMISSION, ResponseCode.SUCCESS]


async def test_what_a_slave_refuses_makes_no_topic_there(virtual_clock: VirtualClock) -> None:
    """Its topics are its master's: one that nobody else knows was there until the next were taken over."""
    machine = Machine(SimNet(), "10.0.0.2", SLAVE)
    async with machine.broker() as broker, machine.client() as client:
        answer = await ask(client, send_request(b"x", topic="new"))
        assert (answer.code, broker.topics.select("new")) == (ResponseCode.SERVICE_NOT_AVAILABLE, None)
        assert "send to its master" in (answer.remark or "")
