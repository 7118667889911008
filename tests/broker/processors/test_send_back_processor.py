"""What a consumer sends back comes again, later and later, and in the end goes to the dead letters."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupConfig
from rmqha.broker.tables.topic_config import TopicTable
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.record.layout import SCHEDULE_TOPIC, total_size_at
from rmqha.codec.record.message import StoredMessage, decode_message
from rmqha.codec.remoting import FLAG_ONEWAY, RemotingCommand
from rmqha.codec.send_answers import decode_send_response
from rmqha.remoting.client import RemotingClient
from tests.broker.machines import Machine, ask, pull_request, send_request
from tests.sim.sim_net import SimNet

ALONE = {"brokerRole": "ASYNC_MASTER", "flushDiskType": "SYNC_FLUSH"}
RETRY, DLQ = "%RETRY%g", "%DLQ%g"
VERSION = 395
"""Of a client that says how often a message may come; it counts from 121 on."""


@pytest.fixture
def machine() -> Machine:
    return Machine(SimNet(), "10.0.0.1", ALONE)


def send_back(
    offset: int, *, level: int = 0, group: str = "g", version: int = VERSION, **fields: str
) -> RemotingCommand:
    ext = {"offset": str(offset), "group": group, "delayLevel": str(level), "unitMode": "false", "originTopic": "t"}
    return RemotingCommand(RequestCode.CONSUMER_SEND_MSG_BACK, ext_fields=ext | fields, version=version)


async def found(client: RemotingClient, topic: str, queue_id: int = 0) -> list[StoredMessage]:
    """All messages of a queue."""
    messages: list[StoredMessage] = []
    while True:
        answer = await ask(client, pull_request(len(messages), topic=topic, queue_id=queue_id))
        if answer.code != ResponseCode.SUCCESS:
            return messages
        at = 0
        while at < len(answer.body):
            messages.append(decode_message(answer.body, at))
            at += total_size_at(memoryview(answer.body), at)


async def consumed(client: RemotingClient, body: bytes = b"x", **fields: Any) -> StoredMessage:
    """A message as a consumer has it."""
    sent = await ask(client, send_request(body, properties="TAGS\x01a\x02KEYS\x01k", **fields))
    offset = decode_send_response(sent).queue_offset
    await trio.sleep(0.1)
    return decode_message((await ask(client, pull_request(offset))).body)


@pytest.mark.parametrize(("unit_mode", "topic_sys_flag"), [("true", 2), ("false", 0)])
async def test_the_retry_topic_of_a_group_in_unit_mode_says_so(
    broker: BrokerController, client: RemotingClient, unit_mode: str, topic_sys_flag: int, autojump_clock: MockClock
) -> None:
    """Name servers are asked for such topics (312)."""
    message = await consumed(client)
    answer = await ask(client, send_back(message.physical_offset, unitMode=unit_mode))
    assert answer.code == ResponseCode.SUCCESS
    retry = broker.topics.select(RETRY)
    assert retry is not None
    assert retry.topic_sys_flag == topic_sys_flag


async def test_i12_it_comes_again_after_ten_seconds(client: RemotingClient, autojump_clock: MockClock) -> None:
    """Invariant I12: level 0 is level 3 at the first time."""
    message = await consumed(client)
    assert (await ask(client, send_back(message.physical_offset))).code == ResponseCode.SUCCESS
    await trio.sleep(9.9)
    assert await found(client, RETRY) == []
    await trio.sleep(1)
    (again,) = await found(client, RETRY)
    assert (again.body, again.reconsume_times, again.topic, again.queue_id) == (b"x", 1, RETRY, 0)
    assert again.properties == {
        "TAGS": "a",
        "KEYS": "k",
        "CLUSTER": "DefaultCluster",
        "RETRY_TOPIC": "t",
        "ORIGIN_MESSAGE_ID": message.offset_msg_id,
        "WAIT": "false",
        "DELAY": "3",
        "REAL_TOPIC": RETRY,
        "REAL_QID": "0",
    }
    assert (again.born_timestamp_ms, again.born_host) == (message.born_timestamp_ms, message.born_host)


async def test_i12_a_negative_level_is_the_dead_letter_queue_at_once(
    client: RemotingClient, autojump_clock: MockClock
) -> None:
    """Invariant I12."""
    message = await consumed(client)
    assert (await ask(client, send_back(message.physical_offset, level=-1))).code == ResponseCode.SUCCESS
    await trio.sleep(0.1)
    (dead,) = await found(client, DLQ)
    assert (dead.body, dead.reconsume_times, dead.properties["RETRY_TOPIC"]) == (b"x", 1, "t")
    assert dead.properties["DELAY"] == "0"
    await trio.sleep(100)
    assert await found(client, RETRY) == []


async def test_each_time_it_comes_later_and_then_no_more(
    client: RemotingClient, broker: BrokerController, autojump_clock: MockClock
) -> None:
    """Its first topic and its first id stay with it."""
    first = message = await consumed(client)
    levels = list[str]()
    for times in range(3):
        command = send_back(message.physical_offset, maxReconsumeTimes="3")
        assert (await ask(client, command)).code == ResponseCode.SUCCESS
        await trio.sleep(70)
        message = (await found(client, RETRY))[times]
        assert message.reconsume_times == times + 1
        levels.append(message.properties["DELAY"])
    assert levels == ["3", "4", "5"]
    assert (await ask(client, send_back(message.physical_offset, maxReconsumeTimes="3"))).code == ResponseCode.SUCCESS
    await trio.sleep(0.1)
    (dead,) = await found(client, DLQ)
    assert (dead.properties["RETRY_TOPIC"], dead.properties["ORIGIN_MESSAGE_ID"]) == ("t", first.offset_msg_id)
    assert (dead.reconsume_times, len(await found(client, RETRY))) == (4, 3)
    dlq = broker.topics.select(DLQ)
    assert dlq is not None
    assert (dlq.read_queue_nums, dlq.write_queue_nums, dlq.perm) == (1, 1, 6)


@pytest.mark.parametrize(("version", "is_dead"), [(121, True), (120, False), (VERSION, True)])
async def test_old_clients_go_by_the_group(
    client: RemotingClient, version: int, is_dead: bool, autojump_clock: MockClock
) -> None:
    message = await consumed(client)
    await ask(client, send_back(message.physical_offset, version=version, maxReconsumeTimes="0"))
    await trio.sleep(20)
    assert (len(await found(client, DLQ)), len(await found(client, RETRY))) == (is_dead, not is_dead)


async def test_a_level_may_be_chosen(client: RemotingClient, autojump_clock: MockClock) -> None:
    message = await consumed(client)
    await ask(client, send_back(message.physical_offset, level=1))
    await trio.sleep(1.5)
    assert len(await found(client, RETRY)) == 1


async def test_trap_53_what_is_deleted_is_not_forgotten(
    client: RemotingClient, broker: BrokerController, autojump_clock: MockClock
) -> None:
    """Trap 53: the client sends such a message itself."""
    end = broker.store.max_offset
    for offset in (-1, end, end + 1, 2**62):
        answer = await ask(client, send_back(offset))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "look message by offset failed" in (answer.remark or "")
    assert broker.store.max_offset == end


async def test_a_group_that_may_not_be_made_is_told_so(machine: Machine, autojump_clock: MockClock) -> None:
    async with machine.broker(autoCreateSubscriptionGroup="false"), machine.client() as client:
        await ask(client, send_request(b"x"))
        answer = await ask(client, send_back(0))
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        answer = await ask(client, send_request(b"x", topic=RETRY))
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_a_group_without_a_retry_queue_wants_nothing_again(
    client: RemotingClient, broker: BrokerController, autojump_clock: MockClock
) -> None:
    broker.groups.update(SubscriptionGroupConfig("g", retry_queue_nums=0))
    message = await consumed(client)
    end = broker.store.max_offset
    assert (await ask(client, send_back(message.physical_offset))).code == ResponseCode.SUCCESS
    assert broker.store.max_offset == end
    assert broker.topics.select(RETRY) is None


@pytest.mark.parametrize("retry_queue_nums", [8, 2**31 - 1])
async def test_it_goes_to_a_queue_that_the_retry_topic_has(
    machine: Machine, retry_queue_nums: int, autojump_clock: MockClock
) -> None:
    """Each sent back made one more queue, whatever maxQueues said, and what came to those from 65,536 on nobody saw."""
    async with machine.broker() as broker, machine.client() as client:
        message = await consumed(client)
        broker.topics.create_topic_in_send_message_back_method(RETRY, queue_nums=2)
        broker.groups.update(SubscriptionGroupConfig("g", retry_queue_nums=retry_queue_nums))
        for _ in range(9):
            assert (await ask(client, send_back(message.physical_offset, level=1))).code == ResponseCode.SUCCESS
        await trio.sleep(2)
        assert sorted([len(await found(client, RETRY, queue_id)) for queue_id in range(9)]) == [0] * 7 + [4, 5]
        retry = broker.topics.select(RETRY)
        assert retry is not None
        assert retry.queue_nums == 2


async def test_a_retry_topic_that_may_not_be_written_is_not(
    client: RemotingClient, broker: BrokerController, autojump_clock: MockClock
) -> None:
    message = await consumed(client)
    broker.topics.create_topic_in_send_message_back_method(RETRY, queue_nums=1)
    table = broker.topics.to_json()
    table["topicConfigTable"][RETRY] = table["topicConfigTable"][RETRY].to_json() | {"perm": 4}
    topics = {name: one for name, one in table["topicConfigTable"].items() if name == RETRY}
    broker.topics.replace(TopicTable.from_json({"topicConfigTable": topics}))
    assert (await ask(client, send_back(message.physical_offset))).code == ResponseCode.NO_PERMISSION


async def test_a_broker_without_write_permission_takes_nothing_back(
    machine: Machine, autojump_clock: MockClock
) -> None:
    async with machine.broker(brokerPermission="4"), machine.client() as client:
        message = await consumed(client)
        assert (await ask(client, send_back(message.physical_offset))).code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize("reconsume_times", [16, 2**31 - 1, -5, -(2**31)])
async def test_any_count_that_a_producer_says_is_borne(
    client: RemotingClient, reconsume_times: int, autojump_clock: MockClock
) -> None:
    message = await consumed(client, j=str(reconsume_times))
    assert (await ask(client, send_back(message.physical_offset))).code == ResponseCode.SUCCESS
    await trio.sleep(0.1)
    is_dead = reconsume_times >= 16
    (again,) = await found(client, DLQ if is_dead else RETRY)
    assert again.reconsume_times == min(reconsume_times + 1, 2**31 - 1)


async def test_a_name_that_is_no_group_s_makes_no_topic(
    client: RemotingClient, broker: BrokerController, autojump_clock: MockClock
) -> None:
    message = await consumed(client)
    topics = len([*broker.topics])
    for name in ("", "a" * 125, "a b", "\xe9", "../x"):
        answer = await ask(client, send_back(message.physical_offset, group=name))
        assert answer.code == (ResponseCode.SUCCESS if not name else ResponseCode.SYSTEM_ERROR), name
    assert len([*broker.topics]) == topics + 1
    assert broker.fence.bugs == 0


async def test_bytes_inside_a_body_are_no_message_that_can_do_harm(
    client: RemotingClient, broker: BrokerController, autojump_clock: MockClock
) -> None:
    """A client names any offset, also that of a record that it wrote into a body itself."""
    at = 0
    for attempt in range(2):
        record = bytearray((await consumed(client)).encode())
        at = broker.store.max_offset + 88 if not attempt else at
        record[28:36] = at.to_bytes(8, "big")
        record[40:60] = b"\xff" * 20
        if not attempt:
            await ask(client, send_request(bytes(record)))
    await trio.sleep(0.1)
    for offset in range(at - 200, at + 200):
        answer = await ask(client, send_back(offset))
        assert answer.code in {ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR}
    assert broker.fence.bugs == 0


async def test_what_is_stored_is_taken_back_before_it_is_dispatched(
    machine: Machine, autojump_clock: MockClock
) -> None:
    """It may come from a slave, which dispatches earlier; clients that take any answer for success lost it."""
    async with machine.broker() as broker, machine.client() as client:
        await consumed(client)
        assert (await ask(client, send_back(0))).code == ResponseCode.SUCCESS
        await trio.sleep(1)
        for _ in range(20):
            begin = broker.store.max_offset
            answers = [await ask(client, send_request(b"x")), await ask(client, send_back(begin))]
            assert [answer.code for answer in answers] == [ResponseCode.SUCCESS] * 2
            view = RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, ext_fields={"offset": str(begin)})
            assert (await ask(client, view)).code == ResponseCode.SUCCESS


async def test_one_way_it_is_stored_and_not_answered(
    client: RemotingClient, broker: BrokerController, autojump_clock: MockClock
) -> None:
    message = await consumed(client)
    command = send_back(message.physical_offset, level=-1)
    command.flag = FLAG_ONEWAY
    client.put_nowait(command.encode())
    await trio.sleep(1)
    assert len(await found(client, DLQ)) == 1
    assert broker.server is not None
    assert broker.server.capacity.used_bytes == 0


async def test_it_is_answered_when_it_is_durable(machine: Machine, autojump_clock: MockClock) -> None:
    """The consumer counts the message as consumed then."""
    async with machine.broker() as broker, machine.client() as client:
        message = await consumed(client)
        await ask(client, send_back(message.physical_offset))  # the group's topic is saved
        machine.disk.faults.hung_until = trio.current_time() + 3
        begun_at = trio.current_time()
        assert (await ask(client, send_back(message.physical_offset))).code == ResponseCode.SUCCESS
        assert trio.current_time() - begun_at >= 2.9
        assert broker.store.flushed_offset == broker.store.max_offset


async def test_a_slave_takes_nothing_back(autojump_clock: MockClock) -> None:
    settings = {"brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": "10.0.0.9:10912"}
    machine = Machine(SimNet(), "10.0.0.1", settings)
    async with machine.broker() as slave, machine.client() as client:
        answer = await ask(client, send_back(0))
        assert (answer.code, "is a slave" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True), answer.remark
        assert slave.topics.select("%RETRY%g") is None, "its topics are its master's"


# ---- what a consumer sends itself when it cannot send it back


def own_retry(
    times: int, *, most: int, version: int = VERSION, topic: str = RETRY, delay: str | None = "3", queue_id: int = 0
) -> RemotingCommand:
    """As DefaultMQPushConsumerImpl does it."""
    properties = "RETRY_TOPIC\x01t\x02ORIGIN_MESSAGE_ID\x01AB" + (f"\x02DELAY\x01{delay}" if delay else "")
    fields: dict[str, Any] = {"j": str(times), "l": str(most), "d": "1", "queue_id": queue_id}
    command = send_request(b"x", topic=topic, properties=properties, **fields)
    command.version = version
    return command


async def test_a_consumer_s_own_retry_comes_again(client: RemotingClient, autojump_clock: MockClock) -> None:
    for _ in range(5):  # also when such sends have become usual
        answer = await ask(client, own_retry(0, most=16))
        assert (answer.code, decode_send_response(answer).queue_id) == (ResponseCode.SUCCESS, 0)
    await trio.sleep(11)
    messages = await found(client, RETRY)
    assert [(one.body, one.properties["REAL_TOPIC"]) for one in messages] == [(b"x", RETRY)] * 5


@pytest.mark.parametrize("delay", ["18", None])
@pytest.mark.parametrize("queue_id", [0, 3])
async def test_a_consumer_s_own_retry_that_came_too_often_is_a_dead_letter(
    client: RemotingClient, broker: BrokerController, queue_id: int, delay: str | None, autojump_clock: MockClock
) -> None:
    """At once, and in the one queue that those have, also when such sends have become usual."""
    broker.groups.update(SubscriptionGroupConfig("g", retry_queue_nums=4))
    broker.topics.create_topic_in_send_message_back_method(RETRY, queue_nums=4)
    for _ in range(5):
        answer = await ask(client, own_retry(0, most=0, delay=delay, queue_id=queue_id))
        assert (answer.code, decode_send_response(answer).queue_id) == (ResponseCode.SUCCESS, queue_id)
    await trio.sleep(1)
    assert (len(await found(client, RETRY, queue_id)), len(await found(client, DLQ))) == (0, 5)
    dlq = broker.topics.select(DLQ)
    assert dlq is not None
    assert dlq.read_queue_nums == 1


async def test_its_topic_is_made_also_where_clients_may_make_none(machine: Machine, autojump_clock: MockClock) -> None:
    async with machine.broker(autoCreateTopicEnable="false") as broker, machine.client() as client:
        assert (await ask(client, own_retry(0, most=16))).code == ResponseCode.SUCCESS
        topic = broker.topics.select(RETRY)
        assert topic is not None
        assert topic.read_queue_nums == 1
        assert (await ask(client, send_request(b"x", topic="other"))).code == ResponseCode.TOPIC_NOT_EXIST


async def test_the_schedule_topic_is_no_place_to_send_to(client: RemotingClient, autojump_clock: MockClock) -> None:
    answer = await ask(client, own_retry(0, most=16, topic=SCHEDULE_TOPIC))
    assert answer.code == ResponseCode.NO_PERMISSION
