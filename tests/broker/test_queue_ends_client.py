"""QueueEndsClient: what a master may answer, and what a slave makes of it."""

import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.broker.tables import queue_ends_client
from rmqha.broker.tables.queue_ends import QueueEnds
from rmqha.broker.tables.queue_ends_client import QueueEndsClient
from rmqha.broker.tables.topic_config import TopicConfig, decode_topics
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import QueueEndsRequestHeader, QueueRequestHeader, decode_header
from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.client import RemotingClient
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.server import RemotingServer
from rmqha.store.message_store import DefaultMessageStore
from tests.settings import remoting_limits
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_net import SimNet
from tests.store.helpers import Clock, make_store, message, options, put, running

Answer = Callable[[RemotingCommand], RemotingCommand]
TOO_MANY_QUEUES = ",".join(f'"t{number}":{{"readQueueNums":2000000000}}' for number in range(16))
"""Of each topic 65,536 count, and a million of all."""


def says(text: str) -> Answer:
    return lambda _request: RemotingCommand(ResponseCode.SUCCESS, body=text.encode())


def pages(request: RemotingCommand) -> RemotingCommand:
    start = decode_header(QueueEndsRequestHeader, request).start
    following = {0: "7", 7: "9", 9: "null"}[start]
    return says(f'{{"queueEnds":{{"t":{{{start}:5}}}},"next":{following}}}')(request)


def log_end(offset: int) -> dict[RequestCode, Answer]:
    return {RequestCode.GET_BROKER_RUNTIME_INFO: says(f'{{"table":{{"commitLogMaxOffset":"{offset}"}}}}')}


def max_offset(request: RemotingCommand) -> RemotingCommand:
    queue_id = decode_header(QueueRequestHeader, request).queue_id
    return RemotingCommand(ResponseCode.SUCCESS, ext_fields={"offset": str(queue_id * 10)})


async def trust(_client: RemotingClient) -> None:
    """It is of our group."""


@asynccontextmanager
async def slave_of(
    answers: Mapping[RequestCode, Answer], *, store: DefaultMessageStore | None = None
) -> AsyncIterator[tuple[QueueEndsClient, QueueEnds]]:
    """A slave's client, and its table; the master answers so, and nothing else."""
    net, dispatcher = SimNet(), RequestDispatcher()
    for code, answer in answers.items():
        dispatcher.register(code, lambda _connection, request, answer=answer: answer(request))  # type: ignore[misc]
    store = store or make_store(options(), SimDisk().mount(), now_ms=Clock())
    ends = QueueEnds(store)
    async with trio.open_nursery() as nursery:
        listener = await net.host("10.0.0.1").mount().listen("10.0.0.1", 10911)
        nursery.start_soon(RemotingServer(dispatcher, limits=remoting_limits()).serve, listener)
        network = net.host("10.0.0.2").mount()
        client = QueueEndsClient(network, "10.0.0.1:10911", store=store, queue_ends=ends, check_group=trust)
        yield client, ends
        nursery.cancel_scope.cancel()


async def test_page_after_page(autojump_clock: MockClock) -> None:
    async with slave_of({RequestCode.GET_QUEUE_ENDS: pages}) as (client, ends):
        await ends.learn_later({"queueEnds": {"former": {0: 3}}}, log_end=1 << 30)
        assert await client.learn(before=4096)
        assert sorted(ends) == [("t", 0), ("t", 7), ("t", 9)]


async def test_a_slave_that_was_not_told_all_of_them_tells_what_it_knows_and_is_asked_again(
    autojump_clock: MockClock,
) -> None:
    """Its slave took that for all, was promoted, and gave positions twice."""
    unknown = ["its master has yet to be asked"]

    def tell(request: RemotingCommand) -> RemotingCommand:
        return says(f'{{"queueEnds":{{"t":{{0:5}}}},"next":null,"unknown":"{unknown[0]}"}}')(request)

    with capture_logs() as logs:
        async with slave_of({RequestCode.GET_QUEUE_ENDS: tell}) as (client, ends):
            for _ in range(2):
                assert await client.learn(before=4096)
                assert (list(ends), client.has_learned) == ([("t", 0)], False)
                assert client.why_unknown == f"10.0.0.1:10911 does not know all of them itself: {unknown[0]}"
            unknown[0] = ""
            assert await client.learn(before=4096)
            assert (client.has_learned, client.why_unknown) == (True, "")
    events = [entry["event"] for entry in logs if entry["event"].startswith("queue_ends")]
    assert events == ["queue_ends.unknown", "queue_ends.learned"]


async def test_a_slave_asks_until_the_answer_is_complete(autojump_clock: MockClock) -> None:
    """After one that was not it asked no more, and its status said for ever that it should not be made master."""
    asked_at = list[float]()

    def tell(request: RemotingCommand) -> RemotingCommand:
        asked_at.append(trio.current_time())
        unknown = "its master has yet to be asked" if len(asked_at) < 3 else ""
        return says(f'{{"queueEnds":{{}},"next":null,"unknown":"{unknown}"}}')(request)

    async with running(SimDisk(latency_s=(0, 0)).mount()) as store:
        await put(store, message())
        async with slave_of({RequestCode.GET_QUEUE_ENDS: tell}, store=store) as (client, _):
            with trio.fail_after(60):
                await client.run()
            assert client.has_learned
    assert [round(later - earlier) for earlier, later in pairwise(asked_at)] == [10, 10]


async def test_rocketmq_is_asked_queue_by_queue(autojump_clock: MockClock) -> None:
    """A queue that ends at 0 never had a message."""
    topics = says('{"topicConfigTable":{"t":{"readQueueNums":3,"writeQueueNums":2}}}')
    answers = {RequestCode.GET_ALL_TOPIC_CONFIG: topics, RequestCode.GET_MAX_OFFSET: max_offset, **log_end(0)}
    async with slave_of(answers) as (client, ends):
        assert await client.learn(before=4096)
        assert await ends.to_json_in_turns() == {"queueEnds": {"t": {1: 10, 2: 20}}}


async def test_nobody_is_sent_behind_messages_that_are_yet_to_come_from_rocketmq(autojump_clock: MockClock) -> None:
    """It tells where its queues end now: those of a log that was being copied seemed to hold nothing before that."""
    topics = says('{"topicConfigTable":{"t":{"readQueueNums":3,"writeQueueNums":2}}}')
    async with running(SimDisk(latency_s=(0, 0)).mount()) as store:
        await put(store, message(topic="other"))
        ends_at = 2 * store.max_offset + 1
        answers = {RequestCode.GET_ALL_TOPIC_CONFIG: topics, RequestCode.GET_MAX_OFFSET: max_offset, **log_end(ends_at)}
        async with slave_of(answers, store=store) as (client, ends), trio.open_nursery() as nursery:
            nursery.start_soon(client.run)
            await trio.sleep(30)
            assert [store.queues.range_of("t", queue_id) for queue_id in (1, 2)] == [(0, 0)] * 2
            assert client.why_unknown == "not all of its log is here yet, and its queues end where that does"
            assert store.next_queue_offset("t", 2) == 20, "who is made master nevertheless gives no place twice"
            await store.recover_topic_queue_table()
            ends.go_on_later()
            assert store.next_queue_offset("t", 2) == 20
            store.commit_log.learn_queue_offset("t", 1, 0)
            await put(store, message(topic="t", queue_id=1))
            await put(store, message(topic="other"))
            await trio.sleep(30)
            assert (client.has_learned, client.why_unknown) == (True, "")
            assert [store.queues.range_of("t", queue_id) for queue_id in (1, 2)] == [(0, 1), (20, 20)]
            assert await ends.to_json_in_turns() == {"queueEnds": {"t": {2: 20}}}


async def test_what_another_master_told_of_a_longer_log_is_not_awaited(autojump_clock: MockClock) -> None:
    """The one that is followed since has less: "not all of its log is here yet" stayed until that had grown."""
    topics = says('{"topicConfigTable":{"t":{"readQueueNums":3,"writeQueueNums":2}}}')
    rocketmqs = {RequestCode.GET_ALL_TOPIC_CONFIG: topics, RequestCode.GET_MAX_OFFSET: max_offset}
    answers = rocketmqs | log_end(1 << 30)
    async with slave_of(answers) as (client, ends):
        assert await client.learn(before=4096)
        assert not await ends.settle()
        await ends.learn_later({"queueEnds": {}}, log_end=0)
        assert await ends.settle()
        assert await client.learn(before=4096)
        assert not await ends.settle()
        ends.forget_later()
        assert await ends.settle()
        assert list(ends) == []


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {RequestCode.GET_QUEUE_ENDS: lambda _request: RemotingCommand(ResponseCode.SYSTEM_BUSY, remark="later")},
        *(
            {RequestCode.GET_QUEUE_ENDS: says(text)}
            for text in (
                "",
                "[]",
                '{"queueEnds":{},"next":0}',
                '{"queueEnds":{},"next":-5}',
                '{"queueEnds":{},"next":"9"}',
                '{"queueEnds":{},"next":true}',
                '{"queueEnds":{"t":{0:-1}}}',
                '{"queueEnds":{},"next":null}' + " " * 300_000,
            )
        ),
        *(
            {RequestCode.GET_ALL_TOPIC_CONFIG: says(text), RequestCode.GET_MAX_OFFSET: max_offset}
            for text in (
                "{}",
                f'{{"topicConfigTable":{{{TOO_MANY_QUEUES}}}}}',
                '{"topicConfigTable":{"../t":{"readQueueNums":3}}}',
            )
        ),
    ],
)
async def test_an_answer_that_is_none_is_told_once_and_asked_for_again(
    answers: Mapping[RequestCode, Answer], autojump_clock: MockClock
) -> None:
    with capture_logs() as logs:
        async with slave_of(answers) as (client, ends):
            assert not await client.learn(before=4096)
            assert not await client.learn(before=4096)
            assert list(ends) == []
    assert [entry["event"] for entry in logs if entry["event"].startswith("queue_ends")] == ["queue_ends.unknown"]


async def test_a_large_table_of_topics_is_read_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also RocketMQ's: to read it takes seconds, during which a slave would acknowledge nothing. Real ones, too."""
    read_by: list[bool] = []

    def noticed_decode_topics(value: dict[str, Any]) -> dict[str, TopicConfig]:
        read_by.append(threading.current_thread() is threading.main_thread())
        return decode_topics(value)

    monkeypatch.setattr(queue_ends_client, "decode_topics", noticed_decode_topics)
    entries = ",".join(f'"t{number:0200}":{{"readQueueNums":0,"writeQueueNums":0}}' for number in range(300))
    topics = says(f'{{"topicConfigTable":{{{entries}}}}}')
    answers = {RequestCode.GET_ALL_TOPIC_CONFIG: topics, RequestCode.GET_MAX_OFFSET: max_offset, **log_end(0)}
    async with slave_of(answers) as (client, _):
        assert await client.learn(before=4096)
    assert read_by == [False]


async def test_a_slave_whose_log_is_empty_asks_nobody_yet(autojump_clock: MockClock) -> None:
    """It is not settled where its log begins: what it would be told before that is not all."""
    asked: list[RemotingCommand] = []

    def note(request: RemotingCommand) -> RemotingCommand:
        asked.append(request)
        return says('{"queueEnds":{},"next":null}')(request)

    async with slave_of({RequestCode.GET_QUEUE_ENDS: note}) as (client, _):
        with trio.move_on_after(30) as patience:
            await client.run()
        assert patience.cancelled_caught
    assert asked == []
