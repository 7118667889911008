"""What looks right to a broker and breaks clients: traps (docs/remoting-traps.md) that no other file tries."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.broker_controller import BrokerController
from rmqha.codec import java_json
from rmqha.codec.batch import BatchEntry, encode_batch
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.deleted_topic import DeletedQueue
from rmqha.codec.message_id import decode_message_id
from rmqha.codec.record.message import StoredMessage, decode_message
from rmqha.codec.remoting import RemotingCommand, SerializeType
from rmqha.codec.route import decode_route
from rmqha.codec.send_answers import decode_send_response
from rmqha.remoting.client import RemotingClient
from tests.broker.machines import Machine, ask, pull_request, send_request
from tests.broker.test_pair import Pair
from tests.sim.sim_net import SimNet

PULL_FIELDS = {"suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"}
COMMITS = 1
"""The bit of a pull's sysFlag that makes its commitOffset count."""


async def answer_to(client: RemotingClient, code: RequestCode, **fields: Any) -> RemotingCommand:
    """The answer to a request that has nothing but its fields."""
    return await ask(client, RemotingCommand(code, ext_fields={name: str(value) for name, value in fields.items()}))


async def told(client: RemotingClient, code: RequestCode, **fields: Any) -> Any:
    """What the body of a good answer says."""
    answer = await answer_to(client, code, **fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return java_json.loads(answer.body)


async def make_topic(client: RemotingClient, name: str, *, read: int = 4, write: int = 4, perm: int = 6) -> None:
    fields = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": read, "writeQueueNums": write, "perm": perm}
    answer = await answer_to(
        client, RequestCode.UPDATE_AND_CREATE_TOPIC, **fields, topicFilterType="SINGLE_TAG", order="false"
    )
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def pulled(client: RemotingClient, offset: int = 0, **options: Any) -> StoredMessage:
    """The message at this offset of a queue."""
    return decode_message((await ask(client, pull_request(offset, suspend_ms=20_000, **options))).body)


def assert_stored(answer: RemotingCommand, code: ResponseCode) -> None:
    assert answer.code == code
    sent = decode_send_response(answer)
    assert (decode_message_id(sent.msg_id), sent.queue_id, sent.queue_offset) == (("10.0.0.1:10911", 0), 0, 0)


@pytest.mark.parametrize("serialize", SerializeType)
async def test_trap_2_a_message_that_is_stored_and_not_safe_has_its_place_in_the_answer(
    serialize: SerializeType, autojump_clock: MockClock
) -> None:
    """Invariant I15 as well: 10, 11 and 12 have all fields, and the message can be read."""
    request = send_request(b"x")
    request.serialize = serialize
    hung, alone, pair = Machine(SimNet(), "10.0.0.1", {"flushDiskType": "SYNC_FLUSH"}), Pair(), Pair()
    async with hung.broker(), hung.client() as client:
        await make_topic(client, "t")
        hung.disk.faults.hung_until = trio.current_time() + 8
        assert_stored(await ask(client, request), ResponseCode.FLUSH_DISK_TIMEOUT)
        assert (await pulled(client)).body == b"x"
    async with alone.master.broker(), alone.master.client() as client:
        assert_stored(await ask(client, request), ResponseCode.SLAVE_NOT_AVAILABLE)
        assert (await pulled(client)).body == b"x"
    async with pair.running(), pair.master.client() as client:
        pair.net.cut("10.0.0.2", "10.0.0.1")
        assert_stored(await ask(client, request), ResponseCode.FLUSH_SLAVE_TIMEOUT)
        pair.net.heal()
        assert (await pulled(client)).body == b"x"


async def test_traps_3_and_4_each_pull_is_told_where_to_go_on_and_a_success_brings_messages(
    client: RemotingClient, autojump_clock: MockClock
) -> None:
    """Invariant I9 as well: on a master the next offset lies in the queue, and 21 only answers one outside."""
    for _ in range(3):
        await ask(client, send_request(b"x", properties="TAGS\x01A"))
    await pulled(client, 2)
    seen = set[int]()
    for queue_id, end in ((0, 3), (1, 0)):
        for offset in range(-1, 6):
            for subscription in ("*", "A", "B"):
                for max_num in (-1, 0, 1, 32):
                    answer = await ask(
                        client, pull_request(offset, queue_id=queue_id, subscription=subscription, max_num=max_num)
                    )
                    seen.add(answer.code)
                    assert answer.ext_fields.keys() == PULL_FIELDS
                    assert (answer.code == ResponseCode.SUCCESS) == bool(answer.body)
                    assert 0 <= int(answer.ext_fields["nextBeginOffset"]) <= end
                    assert (answer.code == ResponseCode.PULL_OFFSET_MOVED) == (not 0 <= offset <= end)
    assert seen == {0, 19, 20, 21}


@pytest.mark.parametrize("offset", [0, 99])
async def test_traps_5_and_33_a_slave_that_lacks_what_is_asked_for_has_its_consumer_wait(
    offset: int, autojump_clock: MockClock
) -> None:
    """Java's asks again at once, over and over, if it is answered; and it is sent to its master alone, which lives."""
    pair = Pair()
    async with pair.running() as (_, slave), pair.master.client() as master_client, pair.slave.client() as client:
        for _ in range(3):
            await ask(master_client, send_request(b"x"))
        await pulled(client, 2)
        slave.store.queues.deleted["t", 0] = DeletedQueue(2, slave.store.max_offset)
        assert slave.store.get_min_offset_in_queue("t", 0) == 2
        begun_at = trio.current_time()
        answer = await ask(client, pull_request(offset, suspend_ms=15_000))
        assert 0.1 <= trio.current_time() - begun_at < 1
        assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, str(offset))
        assert answer.ext_fields.keys() == PULL_FIELDS


async def test_traps_8_and_9_what_nobody_knows_begins_at_0(client: RemotingClient, autojump_clock: MockClock) -> None:
    """A refusal keeps consumers from the queue, and one told that it has no offset begins at the end."""
    queue: dict[str, Any] = {"topic": "unknown", "queueId": 0}
    for code in (RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET):
        assert (await answer_to(client, code, **queue)).ext_fields == {"offset": "0"}
    searched = await answer_to(client, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, **queue, timestamp=5)
    assert searched.ext_fields == {"offset": "0"}
    await ask(client, send_request(b"x"))
    for topic in ("unknown", "t"):
        question = queue | {"topic": topic, "consumerGroup": "new"}
        answer = await answer_to(client, RequestCode.QUERY_CONSUMER_OFFSET, **question)
        assert (answer.code, answer.ext_fields) == (ResponseCode.SUCCESS, {"offset": "0"})


async def test_trap_14_whether_it_is_a_batch_its_header_says_and_not_its_code(
    client: RemotingClient, autojump_clock: MockClock
) -> None:
    body = encode_batch([BatchEntry(0, b"a", b""), BatchEntry(0, b"b", b"")])
    batch = send_request(body, batch=True)
    batch.code = RequestCode.SEND_MESSAGE_V2
    single = send_request(body)
    single.code = RequestCode.SEND_BATCH_MESSAGE
    assert decode_send_response(await ask(client, batch)).msg_id.count(",") == 1
    assert decode_send_response(await ask(client, single)).msg_id.count(",") == 0
    assert [(await pulled(client, offset)).body for offset in range(3)] == [b"a", b"b", body]


async def test_trap_16_a_message_s_id_names_the_address_that_is_told_clients(
    machine: Machine, autojump_clock: MockClock
) -> None:
    """Whatever address and port it was sent to: mqadmin asks there for the message. In upper case."""
    async with machine.broker(brokerIP1="203.0.113.171"):
        async with machine.client(10909) as client:
            sent = decode_send_response(await ask(client, send_request(b"x")))
        assert sent.msg_id == "CB0071AB00002A9F0000000000000000"
        assert decode_message_id(sent.msg_id) == ("203.0.113.171:10911", 0)


async def test_trap_17_no_unique_key_is_dropped_or_made_up(client: RemotingClient, autojump_clock: MockClock) -> None:
    await ask(client, send_request(b"x", properties="UNIQ_KEY\x01AC1100010001"))
    await ask(client, send_request(b"x", properties="KEYS\x01k"))
    assert (await pulled(client, 0)).properties == {"UNIQ_KEY": "AC1100010001", "CLUSTER": "DefaultCluster"}
    assert (await pulled(client, 1)).properties == {"KEYS": "k", "CLUSTER": "DefaultCluster"}


async def test_trap_22_a_queue_that_is_a_key_is_written_as_an_object(
    client: RemotingClient, autojump_clock: MockClock
) -> None:
    """Which is no JSON; mqadmin, and Go's client for 220, read nothing else."""
    await ask(client, send_request(b"x"))
    queue: dict[str, Any] = {"consumerGroup": "g", "topic": "t", "queueId": 0}
    await answer_to(client, RequestCode.UPDATE_CONSUMER_OFFSET, **queue, commitOffset=0)
    for code in (RequestCode.GET_TOPIC_STATS_INFO, RequestCode.GET_CONSUME_STATS):
        answer = await answer_to(client, code, topic="t", consumerGroup="g")
        assert b'"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"t"}:{' in bytes(answer.body)


async def test_trap_27_a_topic_that_may_not_be_written_still_takes_what_is_sent(
    client: RemotingClient, autojump_clock: MockClock
) -> None:
    """Producers obey the route; a message that was on its way when it changed is not to fail."""
    await make_topic(client, "closed", perm=4)
    assert (await ask(client, send_request(b"x", topic="closed"))).code == ResponseCode.SUCCESS


async def test_trap_28_a_broker_that_takes_no_messages_says_so_with_a_code_that_is_tried_elsewhere(
    autojump_clock: MockClock,
) -> None:
    """Java's producers give up at SYSTEM_BUSY. Here: a slave, too few slaves, a failed disk, and one that hangs."""
    pair, lonely, failed, hung = Pair(), *(Machine(SimNet(), "10.0.0.1") for _ in range(3))
    codes = set[int]()
    async with lonely.broker(brokerRole="SYNC_MASTER", minInSyncReplicas="2"), lonely.client() as client:
        codes.add((await ask(client, send_request(b"x"))).code)
    async with pair.running(), pair.slave.client() as client:
        codes.add((await ask(client, send_request(b"x"))).code)
    async with failed.broker(flushDiskType="SYNC_FLUSH"), failed.client() as client:
        await make_topic(client, "t")
        failed.disk.faults.sync_errors = 1
        await ask(client, send_request(b"x"))
        codes.add((await ask(client, send_request(b"x"))).code)
    async with hung.broker(), hung.client() as client:
        hung.disk.faults.hung_until = trio.current_time() + 30
        codes.add((await ask(client, send_request(b"x"))).code)
    assert codes == {ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR}


async def test_trap_34_two_below_the_port_for_clients_they_are_served_as_well(
    machine: Machine, broker: BrokerController, autojump_clock: MockClock
) -> None:
    """RocketMQ's slaves ask there for topics, and clients up to 4.4 send there."""
    async with machine.client(10909) as client:
        assert (await ask(client, send_request(b"x"))).code == ResponseCode.SUCCESS
        assert "t" in (await told(client, RequestCode.GET_ALL_TOPIC_CONFIG))["topicConfigTable"]


async def test_trap_39_queues_to_read_and_to_write_are_counted_apart(
    client: RemotingClient, autojump_clock: MockClock
) -> None:
    await make_topic(client, "uneven", read=2, write=5)
    route = decode_route((await answer_to(client, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="uneven")).body)
    assert [(queues.read_queue_nums, queues.write_queue_nums) for queues in route.queue_datas] == [(2, 5)]
    written = await told(client, RequestCode.GET_TOPIC_STATS_INFO, topic="uneven")
    assert len(written["offsetTable"]) == 5
    commit = {"consumerGroup": "g", "topic": "uneven", "queueId": 0, "commitOffset": 0}
    await answer_to(client, RequestCode.UPDATE_CONSUMER_OFFSET, **commit)
    read = await told(client, RequestCode.GET_CONSUME_STATS, consumerGroup="g")
    assert len(read["offsetTable"]) == 2
    assert (await ask(client, pull_request(0, topic="uneven", queue_id=2))).code == ResponseCode.SYSTEM_ERROR
    assert (await ask(client, send_request(b"x", topic="uneven", queue_id=4))).code == ResponseCode.SUCCESS
    assert (await ask(client, send_request(b"x", topic="uneven", queue_id=5))).code == ResponseCode.SYSTEM_ERROR


async def test_trap_43_a_pull_commits_only_if_it_says_so(client: RemotingClient, autojump_clock: MockClock) -> None:
    """Consumers leave the offset at 0 if they do not."""
    await ask(client, send_request(b"x"))
    queue: dict[str, Any] = {"consumerGroup": "consumers", "topic": "t", "queueId": 0}
    await answer_to(client, RequestCode.UPDATE_CONSUMER_OFFSET, **queue, commitOffset=1)
    pull = pull_request(0)
    await ask(client, pull)
    answer = await answer_to(client, RequestCode.QUERY_CONSUMER_OFFSET, **queue)
    assert answer.ext_fields == {"offset": "1"}
    pull.ext_fields["sysFlag"] = str(int(pull.ext_fields["sysFlag"]) | COMMITS)
    await ask(client, pull)
    answer = await answer_to(client, RequestCode.QUERY_CONSUMER_OFFSET, **queue)
    assert answer.ext_fields == {"offset": "0"}


async def test_trap_49_nobody_needs_a_heartbeat_to_send_pull_or_ask(
    client: RemotingClient, broker: BrokerController, autojump_clock: MockClock
) -> None:
    assert (await ask(client, send_request(b"x"))).code == ResponseCode.SUCCESS
    assert (await pulled(client)).body == b"x"
    queue: dict[str, Any] = {"topic": "t", "queueId": 0}
    assert (await answer_to(client, RequestCode.GET_MAX_OFFSET, **queue)).ext_fields == {"offset": "1"}
    question = await answer_to(client, RequestCode.QUERY_CONSUMER_OFFSET, **queue, consumerGroup="g")
    assert question.code == ResponseCode.SUCCESS


@pytest.mark.parametrize("is_on", [True, False])
async def test_traps_50_and_52_the_template_of_topics_has_a_route_as_long_as_topics_are_made_of_it(
    machine: Machine, is_on: bool, autojump_clock: MockClock
) -> None:
    """Without it a new topic fails in the client. If there is none, that is an answer, and nobody is cut off."""
    async with machine.broker(autoCreateTopicEnable=str(is_on).lower()), machine.client() as client:
        answer = await answer_to(client, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="TBW102")
        assert answer.code == (ResponseCode.SUCCESS if is_on else ResponseCode.TOPIC_NOT_EXIST)
        for topic in ("new", "%RETRY%new"):
            answer = await answer_to(client, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
            assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        await make_topic(client, "made")
        assert (await ask(client, send_request(b"x", topic="made"))).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(("asked", "made"), [(4, 4), (8, 8), (100, 8), (0, 1)])
async def test_trap_51_a_topic_gets_as_many_queues_as_asked_for_and_no_more_than_its_template(
    client: RemotingClient, broker: BrokerController, asked: int, made: int, autojump_clock: MockClock
) -> None:
    await ask(client, send_request(b"x", topic="new", d=str(asked)))
    topic = broker.topics.select("new")
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (made, made, 6)


async def test_i7_a_message_is_pulled_where_its_answer_said(client: RemotingClient, autojump_clock: MockClock) -> None:
    for number in range(5):
        properties = f"KEYS\x01k{number}\x02own\x01x"
        sent = decode_send_response(await ask(client, send_request(b"x", queue_id=number % 2, properties=properties)))
        message = await pulled(client, sent.queue_offset, queue_id=sent.queue_id)
        assert decode_message_id(sent.msg_id)[1] == message.physical_offset
        assert {"KEYS": f"k{number}", "own": "x"}.items() <= message.properties.items()


async def test_i10_a_committed_offset_is_told_to_consumers_and_to_slaves(
    client: RemotingClient, autojump_clock: MockClock
) -> None:
    queue: dict[str, Any] = {"consumerGroup": "g", "topic": "t", "queueId": 3}
    await answer_to(client, RequestCode.UPDATE_CONSUMER_OFFSET, **queue, commitOffset=7)
    assert (await answer_to(client, RequestCode.QUERY_CONSUMER_OFFSET, **queue)).ext_fields == {"offset": "7"}
    assert (await told(client, RequestCode.GET_ALL_CONSUMER_OFFSET))["offsetTable"] == {"t@g": {3: 7}}
