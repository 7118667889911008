"""One broker, alone: what producers and consumers are told, and what survives its end."""

import json

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.clients.client_channel_info import ClientChannelInfo
from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.codec.batch import BatchEntry, encode_batch
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import QueueRequestHeader, SearchOffsetRequestHeader, ViewMessageRequestHeader, encode_header
from rmqha.codec.heartbeat import ConsumerData, build_subscription_data
from rmqha.codec.message_id import decode_message_id
from rmqha.codec.record.message import StoredMessage, decode_message
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.route import decode_route
from rmqha.codec.send_answers import decode_send_response
from rmqha.remoting.client import RemotingClient
from tests.broker.machines import Machine, ask, pull_request, send_request
from tests.sim.sim_net import SimNet


@pytest.fixture
def machine() -> Machine:
    return Machine(SimNet(), "10.0.0.1", {"brokerIP1": "10.0.0.1"})


def messages_of(answer: RemotingCommand) -> list[StoredMessage]:
    found, at = [], 0
    while at < len(answer.body):
        found.append(decode_message(answer.body, at))
        at += found[-1].store_size
    return found


async def test_a_message_comes_back_as_it_was_sent(client: RemotingClient, autojump_clock: MockClock) -> None:
    properties = "TAGS\x01TagA\x02WAIT\x01true\x02KEYS\x01k1 k2"
    answer = await ask(client, send_request(b"hello", properties=properties, h="7"))
    sent = decode_send_response(answer)
    assert (answer.code, sent.queue_id, sent.queue_offset) == (ResponseCode.SUCCESS, 0, 0)
    assert decode_message_id(sent.msg_id) == ("10.0.0.1:10911", 0)
    (message,) = messages_of(await ask(client, pull_request(0, suspend_ms=5000)))
    assert (message.body, message.topic, message.flag) == (b"hello", "t", 7)
    assert message.properties == {"TAGS": "TagA", "KEYS": "k1 k2", "CLUSTER": "DefaultCluster"}
    assert message.born_host.startswith("10.9.9.")


async def test_many_sends_at_once_are_answered_in_order(client: RemotingClient, autojump_clock: MockClock) -> None:
    answers: list[int] = []

    async def send(number: int) -> None:
        answer = await ask(client, send_request(b"%d" % number, queue_id=number % 4))
        answers.append(decode_send_response(answer).queue_offset)

    async with trio.open_nursery() as nursery:
        for number in range(400):
            nursery.start_soon(send, number)
    assert sorted(answers) == sorted([*range(100)] * 4)


async def test_a_batch_lies_together_and_is_told_every_id(client: RemotingClient, autojump_clock: MockClock) -> None:
    body = encode_batch([BatchEntry(1, b"a", b"TAGS\x01A"), BatchEntry(2, b"b", b""), BatchEntry(3, b"c", b"")])
    sent = decode_send_response(await ask(client, send_request(body, properties="WAIT\x01true", batch=True)))
    assert len(sent.msg_id.split(",")) == 3
    messages = messages_of(await ask(client, pull_request(0, suspend_ms=5000)))
    assert [(m.body, m.flag, m.queue_offset) for m in messages] == [(b"a", 1, 0), (b"b", 2, 1), (b"c", 3, 2)]
    assert messages[0].properties == {"TAGS": "A", "WAIT": "true", "CLUSTER": "DefaultCluster"}


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        (send_request(b"x", topic="../../etc/passwd"), ResponseCode.SYSTEM_ERROR, "may only hold"),
        (send_request(b"x", topic="a" * 128), ResponseCode.SYSTEM_ERROR, "longer than 127"),
        (send_request(b"x", topic="SCHEDULE_TOPIC_XXXX"), ResponseCode.NO_PERMISSION, "forbidden"),
        (send_request(b"x", topic="new", c="no-template"), ResponseCode.TOPIC_NOT_EXIST, "does not exist"),
        (send_request(b"x", queue_id=4), ResponseCode.SYSTEM_ERROR, "no queue 4"),
        (send_request(bytes(64_000)), ResponseCode.SUCCESS, ""),
        (send_request(bytes(65_000)), ResponseCode.MESSAGE_ILLEGAL, "body of 65000 bytes"),
        (send_request(b"x", properties="K\x01" + "v" * 33_000), ResponseCode.MESSAGE_ILLEGAL, "properties"),
        (send_request(b"x", properties="TRAN_MSG\x01true", batch=True), ResponseCode.MESSAGE_ILLEGAL, "transactional"),
        (send_request(b"x", properties="DELAY\x01three"), ResponseCode.MESSAGE_ILLEGAL, "'three'"),
        (send_request(b"no batch", batch=True), ResponseCode.SYSTEM_ERROR, "batch entry 0"),
        (send_request(b"", batch=True), ResponseCode.MESSAGE_ILLEGAL, "batch is empty"),
        (send_request(b"x", g="yesterday"), ResponseCode.SYSTEM_ERROR, "no number"),
        (RemotingCommand(9999), ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "9999"),
        (RemotingCommand(RequestCode.PULL_MESSAGE), ResponseCode.SYSTEM_ERROR, "absent"),
    ],
    ids=lambda value: value.value if isinstance(value, ResponseCode) else None,
)
async def test_what_cannot_be_done_is_refused_with_a_reason(
    client: RemotingClient, request_: RemotingCommand, code: ResponseCode, words: str, autojump_clock: MockClock
) -> None:
    answer = await ask(client, request_)
    assert answer.code == code
    assert words in (answer.remark or "")


async def test_sends_go_on_through_rolling_files(
    client: RemotingClient, broker: BrokerController, autojump_clock: MockClock
) -> None:
    for number in range(40):
        answer = await ask(client, send_request(bytes(9_000)))
        assert decode_send_response(answer).queue_offset == number
    assert broker.store.max_offset > 5 * 65536


async def test_a_held_pull_is_answered_by_the_next_message(client: RemotingClient, autojump_clock: MockClock) -> None:
    await ask(client, send_request(b"first"))
    started = trio.current_time()
    answers: list[RemotingCommand] = []

    async def pull() -> None:
        answers.append(await ask(client, pull_request(1, suspend_ms=20_000)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pull)
        await trio.sleep(8)
        assert answers == []
        await ask(client, send_request(b"second"))
    assert [m.body for m in messages_of(answers[0])] == [b"second"]
    assert trio.current_time() - started < 8.1


async def test_a_held_pull_ends_when_its_time_is_over(client: RemotingClient, autojump_clock: MockClock) -> None:
    await ask(client, send_request(b"first"))
    started = trio.current_time()
    answer = await ask(client, pull_request(1, suspend_ms=5_000))
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "1")
    assert 5.0 <= trio.current_time() - started < 5.1


async def test_another_tag_does_not_wake_a_held_pull(client: RemotingClient, autojump_clock: MockClock) -> None:
    await ask(client, send_request(b"first", properties="TAGS\x01A"))
    answers: list[RemotingCommand] = []

    async def pull() -> None:
        answers.append(await ask(client, pull_request(1, suspend_ms=20_000, subscription="A || B")))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pull)
        await trio.sleep(1)
        await ask(client, send_request(b"not wanted", properties="TAGS\x01C"))
        await trio.sleep(1)
        assert answers == []
        await ask(client, send_request(b"wanted", properties="TAGS\x01B"))
    assert [m.body for m in messages_of(answers[0])] == [b"wanted"]


async def test_a_long_queue_without_the_wanted_tag_is_looked_through_step_by_step(
    client: RemotingClient, autojump_clock: MockClock
) -> None:
    batch = send_request(encode_batch([BatchEntry(0, b"not wanted", b"TAGS\x01A")] * 200), batch=True)
    for _ in range(10):
        assert (await ask(client, batch)).code == ResponseCode.SUCCESS
    await ask(client, pull_request(1999, suspend_ms=5_000))
    started, offset, steps = trio.current_time(), "0", 0
    while (answer := await ask(client, pull_request(int(offset), suspend_ms=5_000, subscription="B"))).code == 20:
        offset = answer.ext_fields["nextBeginOffset"]
        steps += 1
    assert steps > 1
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "2000")
    assert 5.0 <= trio.current_time() - started < 5.1


@pytest.mark.parametrize(
    ("offset", "code", "next_offset"),
    [
        (3, ResponseCode.PULL_NOT_FOUND, "3"),
        (99, ResponseCode.PULL_OFFSET_MOVED, "3"),
        (-1, ResponseCode.PULL_OFFSET_MOVED, "0"),
    ],
)
async def test_a_pull_outside_the_queue_is_told_where_to_go(
    client: RemotingClient, offset: int, code: ResponseCode, next_offset: str, autojump_clock: MockClock
) -> None:
    for _ in range(3):
        await ask(client, send_request(b"x"))
    await ask(client, pull_request(2, suspend_ms=5_000))
    answer = await ask(client, pull_request(offset))
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (code, next_offset)
    assert {"suggestWhichBrokerId", "minOffset", "maxOffset"} <= answer.ext_fields.keys()


async def test_queues_that_are_no_longer_written_are_read_to_their_end(
    broker: BrokerController, client: RemotingClient, autojump_clock: MockClock
) -> None:
    """So an operator takes queues away: first no more messages come, and when consumers are done nobody reads them."""
    for queue_id in range(4):
        await ask(client, send_request(b"x", queue_id=queue_id))
    await ask(client, pull_request(0, queue_id=3, suspend_ms=1000))
    broker.topics.update_topic_config(TopicConfig("t", 3, 1))
    answers = [await ask(client, pull_request(0, queue_id=queue_id)) for queue_id in range(4)]
    assert [answer.code for answer in answers] == [ResponseCode.SUCCESS] * 3 + [ResponseCode.SYSTEM_ERROR]


async def test_offsets_and_single_messages_can_be_asked_for(client: RemotingClient, autojump_clock: MockClock) -> None:
    sent = [decode_send_response(await ask(client, send_request(b"%d" % n))) for n in range(3)]
    await ask(client, pull_request(2, suspend_ms=5_000))

    async def offset(code: RequestCode, header: object) -> str:
        return (await ask(client, RemotingCommand(code, ext_fields=encode_header(header)))).ext_fields["offset"]

    assert await offset(RequestCode.GET_MAX_OFFSET, QueueRequestHeader("t", 0)) == "3"
    assert await offset(RequestCode.GET_MIN_OFFSET, QueueRequestHeader("t", 0)) == "0"
    assert await offset(RequestCode.GET_MAX_OFFSET, QueueRequestHeader("unknown", 0)) == "0"
    assert await offset(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetRequestHeader("t", 0, 2**60)) == "2"
    _, physical = decode_message_id(sent[1].msg_id)
    view = encode_header(ViewMessageRequestHeader(physical))
    answer = await ask(client, RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, ext_fields=view))
    assert decode_message(answer.body).body == b"1"
    view = encode_header(ViewMessageRequestHeader(physical + 1))
    answer = await ask(client, RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, ext_fields=view))
    assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_the_broker_tells_its_own_route(client: RemotingClient, autojump_clock: MockClock) -> None:
    await ask(client, send_request(b"x", topic="routed"))
    request = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "routed"})
    route = decode_route(bytes((await ask(client, request)).body))
    assert route.broker_datas[0].broker_addrs == {0: "10.0.0.1:10911"}
    assert (route.queue_datas[0].write_queue_nums, route.queue_datas[0].perm) == (4, 6)
    request = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "unknown"})
    assert (await ask(client, request)).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_push_consumer_pulls_what_its_heartbeat_subscribed(
    client: RemotingClient, autojump_clock: MockClock
) -> None:
    await ask(client, send_request(b"x", properties="TAGS\x01A"))
    await ask(client, pull_request(0, suspend_ms=5_000))
    pull = pull_request(0)
    pull.ext_fields["sysFlag"] = "2"
    assert (await ask(client, pull)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    subscription = {"topic": "t", "subString": "A", "codeSet": ["65"], "subVersion": 5}
    group = {"groupName": "consumers", "subscriptionDataSet": [subscription]}
    body = json.dumps({"clientID": "c1", "consumerDataSet": [group], "producerDataSet": None}).encode()
    assert (await ask(client, RemotingCommand(RequestCode.HEART_BEAT, body=body))).code == ResponseCode.SUCCESS
    assert len(messages_of(await ask(client, pull))) == 1
    goodbye = {"clientID": "c1", "consumerGroup": "consumers"}
    await ask(client, RemotingCommand(RequestCode.UNREGISTER_CLIENT, ext_fields=goodbye))
    assert (await ask(client, pull)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST


async def test_a_one_way_send_is_stored_and_not_answered(client: RemotingClient, autojump_clock: MockClock) -> None:
    request = send_request(b"quiet")
    request.flag = 2
    request.opaque = 1 << 20
    client.put_nowait(request.encode())
    assert [m.body for m in messages_of(await ask(client, pull_request(0, suspend_ms=5_000)))] == [b"quiet"]
    assert client.in_flight == 0


async def test_a_one_way_pull_is_not_answered(client: RemotingClient, autojump_clock: MockClock) -> None:
    await ask(client, send_request(b"x"))
    await ask(client, pull_request(0, suspend_ms=5_000))
    outcomes: list[object] = []
    request = pull_request(0)
    request.flag = 2
    client.invoke_nowait(request, deadline=trio.current_time() + 60, on_outcome=outcomes.append)
    assert len(messages_of(await ask(client, pull_request(0)))) == 1
    assert outcomes == []


async def test_a_negative_consumer_offset_is_as_good_as_none(client: RemotingClient, autojump_clock: MockClock) -> None:
    queue = {"consumerGroup": "g", "topic": "t", "queueId": "0"}
    commit = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields={**queue, "commitOffset": "-1"})
    await ask(client, commit)
    answer = await ask(client, RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=queue))
    assert answer.ext_fields["offset"] == "0"


async def test_everything_is_there_after_a_clean_restart(machine: Machine, autojump_clock: MockClock) -> None:
    async with machine.broker() as broker, machine.client() as client:
        for number in range(30):
            await ask(client, send_request(b"%d" % number, topic="kept"))
        commit = {"consumerGroup": "g", "topic": "kept", "queueId": "0", "commitOffset": "12"}
        await ask(client, RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=commit))
        end = broker.store.max_offset
    assert "/store/abort" not in machine.disk.files
    async with machine.broker() as broker, machine.client() as client:
        assert broker.store.max_offset == end
        messages = messages_of(await ask(client, pull_request(0, topic="kept")))
        assert [m.body for m in messages] == [b"%d" % number for number in range(30)]
        query = {"consumerGroup": "g", "topic": "kept", "queueId": "0"}
        answer = await ask(client, RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=query))
        assert answer.ext_fields["offset"] == "12"


async def test_topics_come_back_from_the_log_if_their_file_is_lost(machine: Machine, autojump_clock: MockClock) -> None:
    async with machine.broker(), machine.client() as client:
        await ask(client, send_request(b"x", topic="lost", queue_id=3))
    for name in [name for name in machine.disk.files if "/config/" in name]:
        del machine.disk.files[name]
    async with machine.broker(), machine.client() as client:
        assert len(messages_of(await ask(client, pull_request(0, topic="lost", queue_id=3)))) == 1


async def test_after_a_failed_flush_nothing_is_acknowledged_and_what_is_durable_can_be_read(
    machine: Machine, autojump_clock: MockClock
) -> None:
    settings = {"flushDiskType": "SYNC_FLUSH"}
    async with machine.broker(**settings) as broker, machine.client() as client:
        assert (await ask(client, send_request(b"safe"))).code == ResponseCode.SUCCESS
        machine.disk.faults.sync_errors = 1
        assert (await ask(client, send_request(b"doubtful"))).code == ResponseCode.FLUSH_DISK_TIMEOUT
        refused = await ask(client, send_request(b"late", properties="WAIT\x01false"))
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "errno" in (refused.remark or "")
        assert [m.body for m in messages_of(await ask(client, pull_request(0)))] == [b"safe"]
        info = await ask(client, RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
        status = json.loads(json.loads(info.body)["table"]["rmqhaStatus"])
        assert "errno" in status["write_refusal"]
        assert broker.store.write_error is not None


async def test_a_read_only_broker_permission_is_respected(machine: Machine, autojump_clock: MockClock) -> None:
    async with machine.broker(brokerPermission="2"), machine.client() as client:
        await ask(client, send_request(b"x"))
        assert (await ask(client, pull_request(0))).code == ResponseCode.NO_PERMISSION


async def test_too_few_replicas_refuse_before_anything_is_stored(machine: Machine, autojump_clock: MockClock) -> None:
    settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "minInSyncReplicas": "2"}
    async with machine.broker(**settings) as broker, machine.client() as client:
        answer = await ask(client, send_request(b"x"))
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "1 of the 2 replicas" in (answer.remark or "")
        assert broker.store.max_offset == 0


async def test_a_second_port_that_is_taken_is_explained(autojump_clock: MockClock) -> None:
    """The operator named another one."""
    machine = Machine(SimNet(), "10.0.0.1")
    await machine.net.host(machine.address).mount().listen("10.0.0.1", 10909)
    with pytest.RaisesGroup(
        pytest.RaisesExc(OSError, match="listenPort - 2.*port 10909 is taken.*change listenPort"),
        flatten_subgroups=True,
    ):
        async with machine.broker():
            pass


async def test_a_shutdown_does_not_wait_for_held_pulls(machine: Machine, autojump_clock: MockClock) -> None:
    async with machine.broker() as broker, machine.client() as client:
        await ask(client, send_request(b"x"))
        answers: list[int] = []

        async def pull() -> None:
            answers.append((await ask(client, pull_request(1, suspend_ms=20_000))).code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pull)
            await trio.sleep(1)
            begun_at = trio.current_time()
            broker.stop()
        assert answers == [ResponseCode.PULL_NOT_FOUND]
        assert trio.current_time() - begun_at < 1


async def test_connections_that_are_no_slaves_are_no_replicas(machine: Machine, autojump_clock: MockClock) -> None:
    settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "minInSyncReplicas": "2"}
    async with machine.broker(**settings) as broker, machine.client() as client:
        await machine.net.host("10.0.0.2").mount().connect(machine.address, 10912, timeout_s=1)
        await trio.sleep(1)
        assert (await ask(client, send_request(b"x"))).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert broker.store.max_offset == 0


async def test_what_nobody_knows_is_said_to_be_unknown(client: RemotingClient, autojump_clock: MockClock) -> None:
    """Not that the broker is starting: a client would ask again."""
    assert (await ask(client, RemotingCommand(9999))).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_a_consumer_that_left_subscribes_to_nothing(machine: Machine, autojump_clock: MockClock) -> None:
    async with machine.broker() as broker:
        async with machine.client() as client:
            await ask(client, send_request(b"x"))
            assert broker.server is not None
            (connection,) = broker.server.connections
            subscriptions = [build_subscription_data("t", "*")]
            consumer = ConsumerData("g", subscription_data_set=tuple(subscriptions))
            broker.consumers.register(consumer, ClientChannelInfo(connection, "c"))
            assert broker.consumers.find_group("g") is not None
        await trio.sleep(1)
        assert broker.consumers.find_group("g") is None


async def test_nobody_is_sent_back_from_what_is_given_out_and_not_visible_yet(
    machine: Machine, autojump_clock: MockClock
) -> None:
    async with machine.broker(brokerRole="ASYNC_MASTER") as broker, machine.client() as client:
        await ask(client, send_request(b"visible"))
        await ask(client, pull_request(0, suspend_ms=5_000))
        machine.disk.faults.hung_until = trio.current_time() + 8
        for _ in range(2):
            await ask(client, send_request(b"not flushed"))
        assert broker.store.get_max_offset_in_queue("t", 0) < 3
        answer = await ask(client, pull_request(3))
        assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "3")
        answer = await ask(client, pull_request(4))
        assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "3"), (
            "from beyond what was ever given out: to the end of that, not of what is visible"
        )
