"""A deleted topic is not made again by what was sent to it before: delayed messages, and half messages."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.tables import topic_config_manager
from rmqha.broker.transaction.half_message import CHECK_MAX_TIME_TOPIC
from rmqha.codec.codes import ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import RemoteProtocolError
from rmqha.replication.role import RoleKind
from tests.broker.machines import Machine, send_request
from tests.broker.producers import COMMIT, ROLLBACK, Half, Producer, producer_of, seen
from tests.broker.test_deleted_topics import delete_request, topic_manager, update_request
from tests.sim.sim_net import SimNet

TIMES = {"transactionCheckInterval": "4000", "transactionTimeOut": "3000", "transactionCheckMax": "3"}


@pytest.fixture
def machine() -> Machine:
    return Machine(SimNet(), "10.0.0.1", TIMES)


def delayed(body: bytes, *, level: int = 1) -> RemotingCommand:
    return send_request(body, queue_id=1, properties=f"DELAY\x01{level}")


async def code_of(producer: Producer, half: Half, how: int = COMMIT) -> int:
    answer = await producer.end(half, how)
    assert answer is not None
    return answer.code


@pytest.mark.parametrize("has_messages", [True, False])
@pytest.mark.parametrize("restarts", [True, False])
async def test_delayed_messages_and_commits_are_left_out(
    machine: Machine, has_messages: bool, restarts: bool, autojump_clock: MockClock
) -> None:
    """It was there again, with other queues and all permissions."""
    async with machine.broker() as broker, producer_of(machine) as producer:
        if has_messages:
            await producer.ask(send_request(b"there"))
        assert (await producer.ask(delayed(b"late", level=3))).code == ResponseCode.SUCCESS
        half = await producer.prepare(b"half", e="2")
        assert (await producer.ask(delete_request())).code == ResponseCode.SUCCESS
        if not restarts:
            await trio.sleep(20)
            assert await code_of(producer, half) == ResponseCode.TOPIC_NOT_EXIST
            await seen(broker)
            assert broker.topics.select("t") is None
    async with machine.broker() as broker, producer_of(machine) as producer:
        assert await code_of(producer, half) == ResponseCode.TOPIC_NOT_EXIST
        await trio.sleep(20)
        assert await seen(broker, queue_id=1) == await seen(broker, queue_id=2) == []
        assert broker.topics.select("t") is None
        end, offsets = broker.store.max_offset, dict(broker.metadata.delay_offsets)
        await trio.sleep(20)
        assert (broker.store.max_offset, offsets[3]) == (end, 1), "nothing is tried for ever"


async def test_who_is_asked_about_a_half_message_may_roll_it_back(machine: Machine, autojump_clock: MockClock) -> None:
    """And where he commits it at the place where it was written again meanwhile, the topic is deleted all the same."""
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        await producer.prepare(b"money")
        await producer.prepare(b"kept")
        await producer.ask(delete_request())
        for number in (1, 3):
            half, message = await producer.wait_asked(number)
            assert message.body == b"money"
            assert await code_of(producer, half) == ResponseCode.TOPIC_NOT_EXIST
        assert await code_of(producer, half, ROLLBACK) == ResponseCode.SUCCESS
        await trio.sleep(40)
        assert [aside.body for aside in await seen(broker, topic=CHECK_MAX_TIME_TOPIC)] == [b"kept"]
        assert broker.topics.select("t") is None


async def test_once_it_is_made_again_they_come(machine: Machine, autojump_clock: MockClock) -> None:
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.ask(delayed(b"late", level=3))
        half = await producer.prepare(b"half", e="2")
        await producer.ask(delete_request())
        assert (await producer.ask(update_request(queues=4))).code == ResponseCode.SUCCESS
        assert await code_of(producer, half) == ResponseCode.SUCCESS
        await trio.sleep(20)
        assert [message.body for message in await seen(broker, queue_id=1)] == [b"late"]
        assert [message.body for message in await seen(broker, queue_id=2)] == [b"half"]
        config = broker.topics.select("t")
        assert config is not None
        assert config.queue_nums == 4


async def test_what_was_sent_after_the_deletion_comes_to_a_master_that_only_heard_of_that(
    machine: Machine, autojump_clock: MockClock
) -> None:
    """A slave that is made master may not know yet that the topic was made again."""
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.ask(send_request(b"there"))
        await producer.ask(delete_request())
        await producer.ask(delayed(b"late", level=3))
        half = await producer.prepare(b"half", e="2")
        deleted = broker.topics.deleted.find("t")
        assert deleted is not None
        broker.topics.delete_topic_config("t", {}, before=deleted.before)
        broker.role.become(RoleKind.SLAVE, master="10.0.0.2:10911", term=1)
        broker.role.become(RoleKind.MASTER, term=2)
        assert await code_of(producer, half) == ResponseCode.SUCCESS
        await trio.sleep(20)
        assert [message.body for message in await seen(broker, queue_id=1)] == [b"late"]
        assert [message.body for message in await seen(broker, queue_id=2)] == [b"half"]


def test_topics_without_messages_are_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who makes topics and deletes them fills no memory; of one that there is not nothing is noted."""
    monkeypatch.setattr(topic_config_manager, "DELETED_QUEUES_MAX", 3)
    topics = topic_manager()
    for number in range(4):
        topics.create_topic_in_send_message_back_method(f"t{number}", queue_nums=2)
    for number in range(3):
        topics.delete_topic_config(f"t{number}", {}, before=1000)
    topics.delete_topic_config("none", {}, before=1000)
    assert topics.deleted.queue_count == 3
    with pytest.raises(RemoteProtocolError, match="at most 3 are remembered"):
        topics.delete_topic_config("t3", {}, before=1000)
    assert topics.select("t3") is not None
    topics.create_topic_in_send_message_back_method("t0", queue_nums=2)
    topics.delete_topic_config("t0", {0: 7}, before=2000)
    assert topics.deleted.queue_count == 3
    assert topics.was_deleted("t0", since=1999)
    assert not topics.was_deleted("t0", since=2000)
