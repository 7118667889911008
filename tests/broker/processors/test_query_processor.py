"""QueryProcessor: what is told of queues that are not what they were."""

from types import SimpleNamespace
from typing import Any

import pytest
from trio.testing import MockClock

from rmqha.broker.processors.pull_rules import PullRules
from rmqha.broker.processors.query_processor import QueryProcessor
from rmqha.broker.pull_request_hold_service import PullRequestHoldService
from rmqha.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import QueryConsumerOffsetRequestHeader, ViewMessageRequestHeader, encode_header
from rmqha.codec.remoting import FLAG_ONEWAY, RemotingCommand, decode_frames
from rmqha.errors import RemoteProtocolError
from tests.broker.machines import Machine, ask, pull_request, send_request
from tests.sim.sim_net import SimNet

RULES = PullRules(far_behind_bytes=1000)


class CleanedStore:
    """A queue whose first messages are gone."""

    queues = SimpleNamespace(deleted_end=lambda _topic, _queue_id: 0, find=lambda _topic, _queue_id: None)

    def get_min_offset_in_queue(self, _topic: str, _queue_id: int) -> int:
        return 5

    def get_max_offset_in_queue(self, _topic: str, _queue_id: int) -> int:
        return 9


def test_a_new_group_does_not_begin_at_0_if_the_queue_does_not() -> None:
    """It would be told to start over at what is there, as if it had lost messages."""
    processor = QueryProcessor(CleanedStore(), ConsumerOffsetManager(), PullRequestHoldService(), rules=RULES)  # type: ignore[arg-type]
    header = QueryConsumerOffsetRequestHeader("g", "t", 0)
    request = RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=encode_header(header))
    answer = processor.query_consumer_offset(None, request)  # type: ignore[arg-type]
    assert answer.code == ResponseCode.QUERY_NOT_FOUND


class WholeStore(CleanedStore):
    """A queue that has all its messages."""

    def get_min_offset_in_queue(self, _topic: str, _queue_id: int) -> int:
        return 0


@pytest.mark.parametrize(("store", "code"), [(WholeStore(), 0), (CleanedStore(), ResponseCode.QUERY_NOT_FOUND)])
def test_a_negative_commit_says_nothing(store: CleanedStore, code: int) -> None:
    """No queue has such a place: a consumer that was told of it would ask for it, and be sent elsewhere."""
    offsets = ConsumerOffsetManager()
    offsets.commit_offset("g", "t", 0, offset=-1)
    header = QueryConsumerOffsetRequestHeader("g", "t", 0)
    request = RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=encode_header(header))
    answer = QueryProcessor(store, offsets, PullRequestHoldService(), rules=RULES).query_consumer_offset(None, request)  # type: ignore[arg-type]
    assert (answer.code, answer.ext_fields.get("offset")) == (code, None if code else "0")


class LongStore(WholeStore):
    """A queue whose first message lies at 500, in a log that goes on to ``max_offset``."""

    def __init__(self, max_offset: int) -> None:
        self.max_offset = max_offset
        queue = SimpleNamespace(units=lambda index, count: iter([(500 + 100 * index, 100, 0)][:count]))
        self.queues = SimpleNamespace(
            deleted_end=lambda _topic, queue_id: queue_id, find=lambda _topic, _queue_id: queue
        )


@pytest.mark.parametrize(
    ("max_offset", "queue_id", "begins_at"), [(1500, 0, "0"), (1501, 0, None), (1600, 1, "1"), (1601, 1, None)]
)
def test_a_new_group_does_not_begin_where_the_queue_does_if_that_is_far_behind(
    max_offset: int, queue_id: int, begins_at: str | None
) -> None:
    """It chooses by itself, at the end by default: RocketMQ's would not have it go through days of what came before."""
    header = QueryConsumerOffsetRequestHeader("g", "t", queue_id)
    request = RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=encode_header(header))
    processor = QueryProcessor(LongStore(max_offset), ConsumerOffsetManager(), PullRequestHoldService(), rules=RULES)  # type: ignore[arg-type]
    answer = processor.query_consumer_offset(None, request)  # type: ignore[arg-type]
    assert (answer.ext_fields or {}).get("offset") == begins_at


class SomeQueues(WholeStore):
    """Queues whose messages lie at ``places`` of a log that gets a byte a second."""

    max_offset = 9000

    def __init__(self, places: dict[int, list[int]]) -> None:
        self.places, self.min_offset = places, 0
        self.queues = SimpleNamespace(deleted_end=lambda _topic, _queue_id: 0, find=self.find)

    def find(self, _topic: str, queue_id: int) -> SimpleNamespace | None:
        units = [(offset, 1, 0) for offset in self.places[queue_id]]

        def unit(index: int) -> tuple[int, int, int] | None:
            return units[index] if 0 <= index < len(units) else None

        return SimpleNamespace(
            units=lambda index, count: iter(units[index : index + count]),
            unit=unit,
            min_offset_in_queue=0,
            max_offset_in_queue=len(units),
        )

    def store_time_in_queue(self, _topic: str, queue_id: int, index: int) -> int:
        return self.places[queue_id][index] * 1000


@pytest.mark.parametrize(
    ("first_at", "commits", "begins_at"),
    [
        (500, {}, None),
        (500, {1: -1}, None),
        (500, {1: 3}, None),
        (500, {1: 3, 2: 2, 3: 0}, None),
        (500, {1: 9}, None),
        (2501, {1: 3, 2: 2}, "0"),
        (2501, {1: 3}, "0"),
        (1501, {1: 2, 2: 2}, "0"),
        (1400, {1: 2, 2: 2}, "0"),
        (1379, {1: 2, 2: 2}, None),
        (500, {3: 0}, None),
        (500, {3: 9}, None),
        (2501, {3: 0, 1: 3}, "0"),
        (270, {1: 0}, None),
        (500, {2: 0}, "0"),
        (2501, {1: 0}, "0"),
    ],
)
def test_only_a_queue_that_was_added_is_begun_by_a_group_that_consumes_others(
    first_at: int, commits: dict[int, int], begins_at: str | None
) -> None:
    """What came into it while the group was stopped would be passed over.

    The second member of a new group went through days of what idle queues held, once the first one had committed.
    """
    offsets = ConsumerOffsetManager()
    for queue_id, offset in commits.items():
        offsets.commit_offset("g", "t", queue_id, offset=offset)
    store = SomeQueues({0: [first_at, 7000], 1: [400, 1500, 2500], 2: [450, 2600], 3: []})
    processor = QueryProcessor(store, offsets, PullRequestHoldService(), rules=RULES)  # type: ignore[arg-type]
    header = QueryConsumerOffsetRequestHeader("g", "t", 0)
    request = RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=encode_header(header))
    answer = processor.query_consumer_offset(None, request)  # type: ignore[arg-type]
    assert (answer.ext_fields or {}).get("offset") == begins_at


@pytest.mark.parametrize(
    ("expired_to", "next_at", "begins_at"),
    [(300, 480, "0"), (470, 480, "0"), (470, 600, "0"), (470, 700, None), (1000, 480, None)],
)
def test_a_group_that_stands_before_what_is_left_of_a_queue_begins_one_that_was_added(
    expired_to: int, next_at: int, begins_at: str | None
) -> None:
    """It was stopped for days: of what it had last nothing is there. Where no other message is, nothing is known."""
    offsets = ConsumerOffsetManager()
    store: Any = SomeQueues({0: [500], 1: [400, next_at]})
    store.min_offset = expired_to
    offsets.commit_offset("g", "t", 1, offset=1)
    processor = QueryProcessor(store, offsets, PullRequestHoldService(), rules=RULES)
    header = QueryConsumerOffsetRequestHeader("g", "t", 0)
    request = RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=encode_header(header))
    answer = processor.query_consumer_offset(None, request)  # type: ignore[arg-type]
    assert (answer.ext_fields or {}).get("offset") == begins_at


class MappedStore:
    """Its log is mapped."""

    record = memoryview(bytes(1000))

    def look_message_by_offset(self, _offset: int) -> memoryview:
        return self.record


class Client:
    """A connection that notes what is sent over it."""

    def __init__(self) -> None:
        self.parts: list[object] = []

    def send_response(self, *parts: object, size: int) -> None:
        assert size == 200
        self.parts += parts


def test_a_message_that_is_looked_up_is_not_copied() -> None:
    """It may have 4 MiB, and a thousand clients that do not read may ask for it."""
    store: Any = MappedStore()
    processor, client = QueryProcessor(store, ConsumerOffsetManager(), PullRequestHoldService(), rules=RULES), Client()
    request = RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, 7, ext_fields=encode_header(ViewMessageRequestHeader(0)))
    request.size = 200
    assert processor.view_message_by_id(client, request) is None  # type: ignore[arg-type]
    header, body = client.parts
    assert body is MappedStore.record
    (answer,), _ = decode_frames(header + bytes(MappedStore.record))  # type: ignore[operator]
    assert (answer.code, answer.opaque, len(answer.body)) == (ResponseCode.SUCCESS, 7, 1000)


async def test_a_message_that_is_looked_up_one_way_is_not_sent(autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker() as broker, machine.client() as client:
        await ask(client, send_request(b"x"))
        await ask(client, pull_request(0, suspend_ms=5000))
        fields = encode_header(ViewMessageRequestHeader(0))
        for flag in (FLAG_ONEWAY, 0):
            request = RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, flag=flag, ext_fields=fields)
            if flag:
                client.put_nowait(request.encode())
            else:
                assert (await ask(client, request)).body
        assert broker.server is not None
        assert [connection.in_flight.requests for connection in broker.server.connections] == [0]


@pytest.mark.parametrize("store", [WholeStore(), CleanedStore()])
def test_while_it_is_unknown_where_groups_are_none_is_told_where_to_begin(store: CleanedStore) -> None:
    """A group that was told 0, as the queue begins there, consumed all of it again; one that was told nothing, none."""
    offsets = ConsumerOffsetManager()
    offsets.commit_offset("known", "t", 0, offset=7)
    offsets.why_unknown = lambda: "the master has yet to tell"
    processor = QueryProcessor(store, offsets, PullRequestHoldService(), rules=RULES)  # type: ignore[arg-type]

    def query(group: str) -> RemotingCommand:
        header = QueryConsumerOffsetRequestHeader(group, "t", 0)
        request = RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=encode_header(header))
        return processor.query_consumer_offset(None, request)  # type: ignore[arg-type]

    assert query("known").ext_fields["offset"] == "7"
    with pytest.raises(RemoteProtocolError, match="the master has yet to tell"):
        query("other")
