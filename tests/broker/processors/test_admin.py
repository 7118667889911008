"""What mqadmin and the exporter ask of a broker, with the values that are true."""

import json
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from rmqha.broker.broker_status import _readable_time, readable_bytes
from rmqha.broker.processors import consume_admin_processor
from rmqha.broker.tables import consumer_offset_manager
from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.codec import java_json
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import UpdateConsumerOffsetRequestHeader, encode_header
from rmqha.codec.java_json import ObjectKey
from rmqha.codec.remoting import RemotingCommand
from rmqha.config.java_properties import parse_properties
from rmqha.remoting.client import RemotingClient
from tests.broker.group_members import member_of
from tests.broker.machines import Machine, ask, pull_request, send_request
from tests.broker.test_pair import Pair
from tests.sim.sim_clock import VirtualClock

WHOLE_NUMBERS = """
    msgPutTotalTodayNow msgGetTotalTodayNow msgPutTotalTodayMorning msgGetTotalTodayMorning msgPutTotalYesterdayMorning
    msgGetTotalYesterdayMorning sendThreadPoolQueueHeadWaitTimeMills queryThreadPoolQueueHeadWaitTimeMills
    pullThreadPoolQueueHeadWaitTimeMills queryThreadPoolQueueSize pullThreadPoolQueueSize sendThreadPoolQueueCapacity
    pullThreadPoolQueueCapacity commitLogMinOffset commitLogMaxOffset bootTimestamp brokerVersion dispatchMaxBuffer
    pageCacheLockTimeMills getMessageEntireTimeMax putMessageTimesTotal sendThreadPoolQueueSize
    startAcceptSendRequestTimeStamp putMessageEntireTimeMax earliestMessageTimeStamp remainTransientStoreBufferNumbs
    queryThreadPoolQueueCapacity putMessageSizeTotal dispatchBehindBytes
""".split()  # noqa: SIM905 - a paragraph reads better than thirty quoted lines
"""What RocketMQ's exporter reads as a long; it fails without any of them."""
COPIED_BY_EXPORT_CONFIGS = """
    brokerClusterName brokerId brokerName brokerRole fileReservedTime filterServerNums flushDiskType maxMessageSize
    messageDelayLevel msgTraceTopicName slaveReadEnable traceOn traceTopicEnable useTLS autoCreateTopicEnable
    autoCreateSubscriptionGroup
""".split()  # noqa: SIM905 - as above
NUMBERS = ("consumeQueueDiskRatio", "commitLogDiskRatio", "putMessageAverageSize", "putLatency99", "putLatency999")
RATES = ("putTps", "getMissTps", "getTransferedTps", "getTransferredTps", "getTotalTps", "getFoundTps")


def request(code: RequestCode, **fields: Any) -> RemotingCommand:
    return RemotingCommand(code, ext_fields={name: str(value) for name, value in fields.items()})


async def told(client: RemotingClient, code: RequestCode, **fields: Any) -> dict[Any, Any]:
    answer = await ask(client, request(code, **fields))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    value: dict[Any, Any] = java_json.loads(answer.body)
    return value


async def send_some(client: RemotingClient, count: int = 3, *, queue_id: int = 0) -> None:
    for number in range(count):
        await ask(client, send_request(b"%d" % number, queue_id=queue_id))
    await ask(client, pull_request(count - 1, queue_id=queue_id, suspend_ms=1000))


async def commit(client: RemotingClient, offset: int, *, group: str = "g", queue_id: int = 0) -> None:
    header = UpdateConsumerOffsetRequestHeader(group, "t", queue_id, offset)
    await ask(client, RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=encode_header(header)))


def queue(queue_id: int) -> ObjectKey:
    return ObjectKey(f'{{"brokerName":"broker-a","queueId":{queue_id},"topic":"t"}}')


async def test_the_runtime_table_has_what_the_exporter_reads_and_it_is_true(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    async with machine.broker() as broker, machine.client() as client:
        batch = b"".join(
            (4 * 5 + 1 + 2).to_bytes(4, "big") + bytes(12) + (1).to_bytes(4, "big") + b"x" + bytes(2) for _ in range(3)
        )
        await send_some(client, 3)
        await ask(client, send_request(batch, batch=True))
        await ask(client, send_request(b"x", queue_id=99))
        await trio.sleep(1)
        await ask(client, pull_request(0, suspend_ms=1000))
        await trio.sleep(5)
        table = (await told(client, RequestCode.GET_BROKER_RUNTIME_INFO))["table"]
        for name in WHOLE_NUMBERS:
            int(table[name])
        for name in NUMBERS:
            float(table[name])
        for name in RATES:
            assert len([float(rate) for rate in table[name].split(" ")]) == 3
        words = table["commitLogDirCapacity"].split(" ")
        assert (words[0], words[4], len(words)) == ("Total", "Free", 8)
        assert float(table["remainHowManyDataToFlush"].split(" ")[0]) == 0
        assert table["putMessageDistributeTime"].startswith("[<=0ms]:")
        assert table["putMessageTimesTotal"] == table["msgPutTotalTodayNow"] == "6"
        assert table["putMessageSizeTotal"] == str(broker.store.max_offset)
        assert float(table["putMessageAverageSize"]) == broker.store.max_offset / 6
        assert int(table["msgGetTotalTodayNow"]) == 1 + 6
        assert float(table["putTps"].split()[2]) > 0
        assert table["runtime"] == "[ 0 days, 0 hours, 0 minutes, 6 seconds ]"


async def test_counts_begin_with_the_process(machine: Machine, virtual_clock: VirtualClock) -> None:
    async with machine.broker(), machine.client() as client:
        await send_some(client)
    machine.disk.remove("/store/consumequeue")
    async with machine.broker(), machine.client() as client:
        table = (await told(client, RequestCode.GET_BROKER_RUNTIME_INFO))["table"]
        assert table["putMessageTimesTotal"] == "0", "dispatched by the start"


async def test_what_a_topic_gets_and_a_group_takes(machine: Machine, virtual_clock: VirtualClock) -> None:
    async with machine.broker(), machine.client() as client:
        await send_some(client, 3)
        await ask(client, pull_request(0))
        await trio.sleep(11)
        put = await told(client, RequestCode.VIEW_BROKER_STATS_DATA, statsName="TOPIC_PUT_NUMS", statsKey="t")
        assert put["statsMinute"]["sum"] == 3
        got = await told(client, RequestCode.VIEW_BROKER_STATS_DATA, statsName="GROUP_GET_NUMS", statsKey="t@consumers")
        assert got["statsMinute"]["sum"] == 4
        assert set(got) == {"statsMinute", "statsHour", "statsDay"}
        answer = await ask(client, request(RequestCode.VIEW_BROKER_STATS_DATA, statsName="no", statsKey="t"))
        assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_a_topics_queues(machine: Machine, virtual_clock: VirtualClock) -> None:
    async with machine.broker() as broker, machine.client() as client:
        await send_some(client, 3)
        table = (await told(client, RequestCode.GET_TOPIC_STATS_INFO, topic="t"))["offsetTable"]
        assert list(table) == [queue(number) for number in range(4)]
        stored_ms = broker.store.store_time_in_queue("t", 0, 2)
        assert table[queue(0)] == {"lastUpdateTimestamp": stored_ms, "maxOffset": 3, "minOffset": 0}
        assert stored_ms > 0
        assert table[queue(1)] == {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}
        answer = await ask(client, request(RequestCode.GET_TOPIC_STATS_INFO, topic="none"))
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_how_far_a_group_is(machine: Machine, virtual_clock: VirtualClock) -> None:
    async with machine.broker() as broker, machine.client() as client:
        await send_some(client, 3)
        await commit(client, 2)
        stats = await told(client, RequestCode.GET_CONSUME_STATS, consumerGroup="g")
        consumed_ms = broker.store.store_time_in_queue("t", 0, 1)
        assert stats["offsetTable"][queue(0)] == {
            "brokerOffset": 3, "consumerOffset": 2, "lastTimestamp": consumed_ms,
        }  # fmt: skip
        assert len(stats["offsetTable"]) == 4
        assert (await told(client, RequestCode.GET_CONSUME_STATS, consumerGroup="no"))["offsetTable"] == {}
        assert (await told(client, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="t"))["groupList"] == ["g"]
        every = await told(client, RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false")
        assert every["totalDiff"] == 1
        assert [list(one) for one in every["consumeStatsList"]] == [["g"]]
        assert [one["offsetTable"] for one in every["consumeStatsList"][0]["g"]] == [stats["offsetTable"]]
        (span, *_) = (await told(client, RequestCode.QUERY_CONSUME_TIME_SPAN, topic="t", group="g"))[
            "consumeTimeSpanSet"
        ]
        assert (span["consumeTimeStamp"], span["minTimeStamp"]) == (
            consumed_ms, broker.store.store_time_in_queue("t", 0, 0),
        )  # fmt: skip


async def test_a_group_whose_next_messages_have_expired_is_as_late_as_the_oldest_that_is_there(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    """What it has to consume begins there: of what is gone nobody knows when it was stored."""
    async with machine.broker(fileReservedTime="1") as broker:
        async with machine.client() as client:
            for _ in range(8):
                await ask(client, send_request(bytes(30_000)))
            await commit(client, 1)
        await trio.sleep(1.5 * 3600)
        broker.store.cleaner.execute_delete_files_manually()
        assert await broker.store.cleaner.clean() > 0
        first, end = broker.store.queues.readable_range_of("t", 0)
        assert 1 < first < end
        async with machine.client() as client:
            spans = await told(client, RequestCode.QUERY_CONSUME_TIME_SPAN, topic="t", group="g")
    (span, *_) = spans["consumeTimeSpanSet"]
    assert span["minTimeStamp"] > 0
    assert 1.4 * 3_600_000 < span["delayTime"] < 1.6 * 3_600_000


async def test_of_topics_in_order_alone_is_told_if_that_is_asked(machine: Machine, virtual_clock: VirtualClock) -> None:
    async with machine.broker() as broker, machine.client() as client:
        await send_some(client, 3)
        await commit(client, 2)
        none = await told(client, RequestCode.GET_BROKER_CONSUME_STATS, isOrder="true")
        assert (none["totalDiff"], none["consumeStatsList"]) == (0, [{"g": []}])
        broker.topics.update_topic_config(TopicConfig("t", 4, 4, order=True))
        assert (await told(client, RequestCode.GET_BROKER_CONSUME_STATS, isOrder="true"))["totalDiff"] == 1


async def test_an_answer_that_no_frame_would_hold_is_not_made_to_its_end(
    machine: Machine, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets of one queue each, of many groups, asked for all queues of a large topic: gigabytes."""
    monkeypatch.setattr(consume_admin_processor, "ENTRIES_MAX", 7)
    async with machine.broker() as broker, machine.client() as client:
        await send_some(client, 1)
        await commit(client, 1)
        for code in (RequestCode.GET_CONSUME_STATS, RequestCode.GET_BROKER_CONSUME_STATS):
            await told(client, code, consumerGroup="g", isOrder="false")
        await commit(client, 1, group="h")
        broker.offsets.commit_offset("g", "BenchmarkTest", 0, offset=0)
        for code in (RequestCode.GET_CONSUME_STATS, RequestCode.GET_BROKER_CONSUME_STATS):
            answer = await ask(client, request(code, consumerGroup="g", isOrder="false"))
            assert (answer.code, "do not fit" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)


async def test_a_groups_offsets_are_cloned(machine: Machine, virtual_clock: VirtualClock) -> None:
    async with machine.broker() as broker, machine.client() as client:
        await send_some(client, 3)
        await commit(client, 2)
        fields = {"srcGroup": "g", "destGroup": "h", "topic": "t", "offline": "false"}
        assert (await ask(client, request(RequestCode.CLONE_GROUP_OFFSET, **fields))).code == ResponseCode.SUCCESS
        assert broker.offsets.query_offset("h", "t", 0) == 2


async def test_offsets_that_are_cloned_are_on_the_account_of_who_asks(
    machine: Machine, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if its host had committed them: it leaves room for all others."""
    monkeypatch.setattr(consumer_offset_manager, "ENTRIES_MAX", 6)
    async with machine.broker() as broker, machine.client() as client:
        await send_some(client, 3)
        await commit(client, 2)
        for group, code in (("h", ResponseCode.SUCCESS), ("i", ResponseCode.SUCCESS), ("j", ResponseCode.SYSTEM_ERROR)):
            fields = {"srcGroup": "g", "destGroup": group, "topic": "t"}
            assert (await ask(client, request(RequestCode.CLONE_GROUP_OFFSET, **fields))).code == code
        broker.offsets.commit_offset("another", "t", 0, offset=2, peer="10.6.6.6:1")


async def test_a_group_that_is_offline_is_not_reset_and_is_said_to_be(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    """With this answer mqadmin commits the offsets itself."""
    async with machine.broker(), machine.client() as client:
        await send_some(client, 3)
        fields = {"topic": "t", "group": "g", "timestamp": -1, "isForce": "true"}
        answer = await ask(client, request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **fields))
        assert answer.code == ResponseCode.SYSTEM_ERROR, "it never committed"
        for queue_id in range(4):
            await commit(client, 0, queue_id=queue_id)
        answer = await ask(client, request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **fields))
        assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
        answer = await ask(client, request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **fields | {"topic": "other"}))
        assert "no topic in this broker. topic=other" in (answer.remark or "")


async def test_a_slave_resets_and_clones_nothing_that_its_master_would_undo(virtual_clock: VirtualClock) -> None:
    """Its answer was that nobody is online: mqadmin then committed there, and printed success."""
    pair = Pair()
    async with pair.running() as (_master, slave), pair.master.client() as client, pair.slave.client() as other:
        await send_some(client, 3)
        for queue_id in range(4):
            await commit(client, 0, queue_id=queue_id)
        while slave.offsets.query_offset("g", "t", 3) is None:  # noqa: ASYNC110 - virtual time
            await trio.sleep(1)
        fields = {"topic": "t", "group": "g", "timestamp": -1, "isForce": "true"}
        answer = await ask(other, request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **fields))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "from slave broker, please execute it from master broker" in (answer.remark or "")
        names = {"srcGroup": "g", "destGroup": "h", "topic": "t"}
        answer = await ask(other, request(RequestCode.CLONE_GROUP_OFFSET, **names))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "from slave broker" in (answer.remark or "")
        assert slave.offsets.query_offset("h", "t", 0) is None


async def test_the_units_of_a_queue(machine: Machine, virtual_clock: VirtualClock) -> None:
    async with machine.broker(), machine.client() as client:
        await send_some(client, 3)
        units = await told(client, RequestCode.QUERY_CONSUME_QUEUE, topic="t", queueId=0, index=1, count=10)
        assert (units["minQueueIndex"], units["maxQueueIndex"], len(units["queueData"])) == (0, 3, 2)
        assert set(units["queueData"][0]) == {"physicOffset", "physicSize", "tagsCode", "eval"}
        assert "filterData" not in units, "no group is named"
        answer = await ask(client, request(RequestCode.QUERY_CONSUME_QUEUE, topic="t", queueId=7, index=0, count=1))
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "7@t is not exist!")


async def test_what_a_group_subscribes_to_of_a_queue(machine: Machine, virtual_clock: VirtualClock) -> None:
    """``mqadmin queryCq -g`` shows both, or that the group has no member."""
    query = {"topic": "t", "queueId": 0, "index": 0, "count": 10, "consumerGroup": "g"}
    async with machine.broker(), machine.client() as client, member_of(machine, "one") as member:
        await send_some(client, 1)
        offline = await told(client, RequestCode.QUERY_CONSUME_QUEUE, **query)
        assert ("subscriptionData" in offline, offline["filterData"]) == (False, "g@t is not online!")
        await member.heartbeat("g")
        online = await told(client, RequestCode.QUERY_CONSUME_QUEUE, **query)
        assert (online["subscriptionData"]["topic"], online["subscriptionData"]["subString"]) == ("t", "*")
        assert (online["filterData"], len(online["queueData"])) == ("null", 1)


async def test_the_configuration_is_told_and_not_changed(machine: Machine, virtual_clock: VirtualClock) -> None:
    async with machine.broker(), machine.client() as client:
        answer = await ask(client, request(RequestCode.GET_BROKER_CONFIG))
        properties, problems = parse_properties(answer.body)
        keys = {one.key: one.value for one in properties}
        assert (keys["brokerName"], keys["listenPort"], problems) == ("broker-a", "10911", [])
        json.loads(answer.ext_fields["version"])
        origins = json.loads(answer.ext_fields["origins"])
        assert origins.keys() < keys.keys()
        assert (origins["listenPort"], "haAck" in origins) == ("command line", False)
        told = {name: keys.get(name) for name in COPIED_BY_EXPORT_CONFIGS}
        assert None not in told.values(), "mqadmin exportConfigs ends with a NullPointerException"
        assert (told["traceTopicEnable"], told["useTLS"]) == ("false", "false"), "as it is"
        assert int(keys["clientCallbackExecutorThreads"]) >= 1, "exportMetrics shows it as cpuNum"
        change = RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=b"flushDiskType=ASYNC_FLUSH\n")
        assert (await ask(client, change)).code == ResponseCode.NO_PERMISSION


async def test_cleaning_is_answered(machine: Machine, virtual_clock: VirtualClock) -> None:
    async with machine.broker(), machine.client() as client:
        codes = (
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
            RequestCode.CLEAN_UNUSED_TOPIC,
            RequestCode.DELETE_EXPIRED_COMMITLOG,
        )
        for code in codes:
            assert (await ask(client, request(code))).code == ResponseCode.SUCCESS
        topics = (await told(client, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER))["topicList"]
        assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "broker-a", "DefaultCluster"} <= set(topics)


@pytest.mark.parametrize("topic", ["RMQ_SYS_TRACE_TOPIC", "traces"])
async def test_the_topic_of_message_traces_is_there_from_the_start(
    machine: Machine, topic: str, virtual_clock: VirtualClock
) -> None:
    """As clients with a message trace expect of a broker that makes no topic by itself. It is nobody's to delete."""
    set_to = {"traceTopicEnable": "true", "msgTraceTopicName": topic, "autoCreateTopicEnable": "false"}
    async with machine.broker(**set_to) as broker, machine.client() as client:
        made = broker.topics.select(topic)
        assert made is not None
        assert (made.read_queue_nums, made.write_queue_nums, made.perm) == (1, 1, 6)
        assert topic in (await told(client, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER))["topicList"]
        assert (await ask(client, send_request(b"x", topic=topic))).code == ResponseCode.SUCCESS
        deletion = request(RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)
        assert (await ask(client, deletion)).code == ResponseCode.SYSTEM_ERROR
    async with machine.broker(autoCreateTopicEnable="false", msgTraceTopicName="other") as broker:
        assert broker.topics.select("other") is None, "not asked for"
    async with machine.broker(traceTopicEnable="true", msgTraceTopicName="SCHEDULE_TOPIC_XXXX") as broker:
        schedule = broker.topics.select("SCHEDULE_TOPIC_XXXX")
        assert schedule is not None
        assert schedule.queue_nums == 18, "a built-in one stays what it is"


async def test_how_replication_goes_is_told_to_rocketmq_5(virtual_clock: VirtualClock) -> None:
    pair = Pair()
    async with pair.running() as (master, _slave), pair.master.client() as client, pair.slave.client() as other:
        await send_some(client, 2)
        status = await told(client, RequestCode.GET_BROKER_HA_STATUS)
        assert (status["master"], status["inSyncSlaveNums"]) == (True, 1)
        assert status["masterCommitLogMaxOffset"] == master.store.max_offset
        (connection,) = status["haConnectionInfo"]
        assert (connection["slaveAckOffset"], connection["diff"], connection["inSync"]) == (
            master.store.max_offset, 0, True,
        )  # fmt: skip
        status = await told(other, RequestCode.GET_BROKER_HA_STATUS)
        assert (status["master"], status["haClientRuntimeInfo"]["masterAddr"]) == (False, "10.0.0.1:10912")


async def test_who_asks_for_more_than_is_made_is_put_off(machine: Machine, virtual_clock: VirtualClock) -> None:
    async with machine.broker(), machine.client() as client:
        await send_some(client, 1)
        codes: list[int] = []

        async def ask_once() -> None:
            codes.append((await ask(client, request(RequestCode.GET_TOPIC_STATS_INFO, topic="t"))).code)

        async with trio.open_nursery() as nursery:
            for _ in range(40):
                nursery.start_soon(ask_once)
        assert codes.count(ResponseCode.SUCCESS) >= 16
        assert set(codes) <= {ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY}


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536 << 20, "1.5 GiB"), (1 << 62, "4.0 EiB")],
)
def test_sizes_are_written_as_rocketmq_does(size_bytes: int, text: str) -> None:
    assert readable_bytes(size_bytes) == text


async def test_what_was_just_sent_is_in_the_answer(machine: Machine, virtual_clock: VirtualClock) -> None:
    """Nobody consumes, and the next flush is ten seconds away."""
    async with machine.broker(flushCommitLogThoroughInterval="10000"), machine.client() as client:
        await ask(client, send_request(b"x"))
        table = (await told(client, RequestCode.GET_TOPIC_STATS_INFO, topic="t"))["offsetTable"]
        assert table[queue(0)]["maxOffset"] == 1
        await ask(client, send_request(b"y"))
        assert (await told(client, RequestCode.GET_CONSUME_STATS, consumerGroup="g", topic="t"))["offsetTable"][
            queue(0)
        ]["brokerOffset"] == 2


async def test_members_of_a_group_are_told_where_to_go_on(machine: Machine, virtual_clock: VirtualClock) -> None:
    async with machine.broker(), machine.client() as client, member_of(machine, "c") as member:
        await send_some(client, 3)
        for queue_id in range(4):
            await commit(client, 2, queue_id=queue_id)
        await member.heartbeat("g")
        reset = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        answer = await told(client, reset, topic="t", group="g", timestamp=0, isForce="true")
        assert answer["offsetTable"][queue(0)] == 0
        await trio.sleep(1)
        (asked,) = member.asked
        assert (asked.code, asked.is_oneway) == (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, True)
        assert java_json.loads(asked.body) == answer
        assert (asked.ext_fields["topic"], asked.ext_fields["group"]) == ("t", "g")
        assert (await told(client, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="t"))["groupList"] == ["g"]


@pytest.mark.parametrize(
    ("given", "expected"), [({"offset": 0}, 0), ({"offset": 1}, 1), ({"offset": 3}, 3), ({"offset": -1}, 3), ({}, 3)]
)
async def test_one_queue_is_reset_and_no_other(
    machine: Machine, given: dict[str, int], expected: int, virtual_clock: VirtualClock
) -> None:
    """As RocketMQ 5's mqadmin asks for it; taken for all queues, a whole group's place was lost."""
    async with machine.broker(), machine.client() as client, member_of(machine, "c") as member:
        await send_some(client, 3)
        for queue_id in range(4):
            await commit(client, 2, queue_id=queue_id)
        await member.heartbeat("g")
        fields = {"topic": "t", "group": "g", "timestamp": -1, "isForce": "true", "queueId": 0} | given
        answer = await told(client, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **fields)
        assert answer["offsetTable"] == {queue(0): expected}
        await trio.sleep(1)
        (asked,) = member.asked
        assert java_json.loads(asked.body) == answer
        whole = fields | {"queueId": -1, "offset": -1}
        assert len((await told(client, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **whole))["offsetTable"]) == 4


@pytest.mark.parametrize(
    ("queue_id", "offset", "reason"), [(0, 4, "which has 0 to 3"), (4, 0, "has no queue 4, but 4")]
)
async def test_a_place_that_is_none_is_no_reset(
    machine: Machine, queue_id: int, offset: int, reason: str, virtual_clock: VirtualClock
) -> None:
    async with machine.broker(), machine.client() as client, member_of(machine, "c") as member:
        await send_some(client, 3)
        for number in range(4):
            await commit(client, 2, queue_id=number)
        await member.heartbeat("g")
        fields = {"topic": "t", "group": "g", "timestamp": -1, "isForce": "true", "queueId": queue_id, "offset": offset}
        answer = await ask(client, request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **fields))
        assert (answer.code, member.asked) == (ResponseCode.SYSTEM_ERROR, [])
        assert reason in (answer.remark or "")


async def test_only_by_force_a_reset_leaves_messages_out(machine: Machine, virtual_clock: VirtualClock) -> None:
    async with machine.broker(), machine.client() as client, member_of(machine, "c") as member:
        await send_some(client, 3)
        for queue_id in range(4):
            await commit(client, 2, queue_id=queue_id)
        await member.heartbeat("g")
        for force, expected in (("false", 2), ("true", 3)):
            reset = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
            answer = await told(client, reset, topic="t", group="g", timestamp=-1, isForce=force)
            assert answer["offsetTable"][queue(0)] == expected


async def test_a_table_too_large_for_every_member_is_sent_to_none(
    machine: Machine, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume_admin_processor, "TOLD_BYTES_MAX", 50)
    async with machine.broker(), machine.client() as client, member_of(machine, "c") as member:
        await send_some(client, 1)
        for queue_id in range(4):
            await commit(client, 0, queue_id=queue_id)
        await member.heartbeat("g")
        reset = request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, topic="t", group="g", timestamp=0, isForce="true")
        answer = await ask(client, reset)
        await trio.sleep(1)
        assert (answer.code, member.asked) == (ResponseCode.SYSTEM_ERROR, [])
        assert "limit" in (answer.remark or "")


LOGGED = {
    "broker_config.update_refused": request(RequestCode.UPDATE_BROKER_CONFIG),
    "commit_log.cleaning_requested": request(RequestCode.DELETE_EXPIRED_COMMITLOG),
    "topic.updated": request(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        topic="new", readQueueNums=1, writeQueueNums=1, perm=6, defaultTopic="TBW102", topicFilterType="SINGLE_TAG",
    ),
    "topic.deleted": request(RequestCode.DELETE_TOPIC_IN_BROKER, topic="new"),
    "consumer_offset.reset": request(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, topic="t", group="g", timestamp=0, isForce="true"
    ),
}  # fmt: skip


@pytest.mark.parametrize("event", LOGGED)
async def test_who_asks_again_and_again_fills_no_log(machine: Machine, event: str, virtual_clock: VirtualClock) -> None:
    async with machine.broker(), machine.client() as client, member_of(machine, "c") as member:
        await send_some(client, 1)
        for queue_id in range(4):
            await commit(client, 0, queue_id=queue_id)
        await member.heartbeat("g")
        begun_at = trio.current_time()
        with capture_logs() as logs:
            for _ in range(100):
                await ask(client, LOGGED[event])
        lines = [line for line in logs if line["event"] == event]
        assert 0 < len(lines) <= 20 + trio.current_time() - begun_at


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (59, "0 days, 0 hours, 0 minutes, 59 seconds"),
        (86_399, "0 days, 23 hours, 59 minutes, 59 seconds"),
        (86_400, "1 days, 0 hours, 0 minutes, 0 seconds"),
        (1_000 * 86_400 + 3_661, "1000 days, 1 hours, 1 minutes, 1 seconds"),
    ],
)
def test_times_are_written_as_mqadmin_shows_them(seconds: int, text: str) -> None:
    assert _readable_time(seconds) == f"[ {text} ]"
