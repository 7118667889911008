"""Where many clients send a little each, what comes together is appended together, and answered one by one."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from rmqha.broker.puts.durability import Answer
from rmqha.broker.puts.put_service import Put, PutMessageService
from rmqha.codec.record.encoder import PreparedRecord
from rmqha.remoting.fence import Fence
from rmqha.store.log import PutRequest
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.status import AppendResult, PutMessageStatus
from tests.broker.puts import Caller, record, waiting_for_replicas

OK, LATE, ILLEGAL = (
    PutMessageStatus.PUT_OK,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.MESSAGE_ILLEGAL,
)


BUSY = 8
"""So many puts of several clients in a moment are appended by themselves."""


def note_appends(
    store: DefaultMessageStore, monkeypatch: pytest.MonkeyPatch, *, instead: Callable[[int], int] = lambda count: count
) -> list[int]:
    """How many messages each append is asked for; ``instead`` so many of them are put."""
    appends: list[int] = []
    put_messages = store.put_messages

    def put_some(requests: Sequence[PutRequest]) -> list[AppendResult]:
        appends.append(len(requests))
        return put_messages(requests[: instead(len(requests))])

    monkeypatch.setattr(store, "put_messages", put_some)
    return appends


def put_one(service: PutMessageService, name: str, caller: Caller, *, size: int = 1) -> None:
    service.put([Put(name, record(bytes(size)), wait=True, oneway=False)], caller)


async def test_many_that_send_a_little_share_an_append(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with waiting_for_replicas() as (service, store, replicas), trio.open_nursery() as nursery:
        nursery.start_soon(service.run)
        appends, callers = note_appends(store, monkeypatch), [Caller(f"10.0.0.9:{number}") for number in range(20)]
        for number, caller in enumerate(callers):
            put_one(service, f"from {number}", caller)
        assert appends == [1] * BUSY, "until it is known that there are many nobody waits for others"
        await trio.sleep(0.001)
        assert appends == [1] * BUSY + [20 - BUSY]
        replicas.acked.advance(store.max_offset)
        assert [caller.told for caller in callers] == [[(f"from {number}", OK)] for number in range(20)]
        nursery.cancel_scope.cancel()


async def test_while_many_share_appends_the_first_of_a_pass_wait_for_the_others(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passes of a loop that a thousand clients keep busy are longer than it takes to see that they are many."""
    async with waiting_for_replicas() as (service, store, _), trio.open_nursery() as nursery:
        nursery.start_soon(service.run)
        appends, callers = note_appends(store, monkeypatch), [Caller(f"10.0.0.9:{number}") for number in range(20)]
        for _ in range(3):
            for caller in callers:
                put_one(service, "a pass", caller)
            await trio.sleep(0.02)
        assert appends == [1] * BUSY + [20 - BUSY, 20, 20]
        put_one(service, "one of few", callers[0])
        await trio.sleep(0.06)
        put_one(service, "alone again", callers[0])
        assert appends[-2:] == [1, 1]
        nursery.cancel_scope.cancel()


async def test_who_sends_alone_or_much_waits_for_nobody(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with waiting_for_replicas() as (service, store, _):
        appends, callers = note_appends(store, monkeypatch), [Caller(f"10.0.0.9:{number}") for number in range(20)]
        for _ in range(20):
            put_one(service, "alone", callers[0])
        for number in range(20):
            put_one(service, "one of three", callers[number % 3])
        await trio.sleep(1)
        for caller in callers:
            put_one(service, "now and then", caller)
            await trio.sleep(0.0003)
        assert appends == [1] * 60
        for caller in callers[:10]:
            service.put([Put("many", record(b"x"), wait=True, oneway=False)] * 40, caller)
        assert appends[60:] == [40] * 10


async def test_each_is_told_what_became_of_his_own(autojump_clock: MockClock) -> None:
    """Of messages that were appended together the slave has some, one is refused, and one caller did not wait."""
    async with waiting_for_replicas() as (service, store, replicas), trio.open_nursery() as nursery:
        nursery.start_soon(service.run)
        for number in range(BUSY):
            put_one(service, "before", Caller(f"10.0.0.9:{number}"))
        first, refused, hasty, last = callers = [Caller() for _ in range(4)]
        put_one(service, "first", first)
        put_one(service, "too large", refused, size=5 << 20)
        service.put([Put("hasty", record(b"1"), wait=False, oneway=False)], hasty)
        held = store.max_offset + 2 * record(bytes(1)).size
        put_one(service, "last", last)
        await trio.sleep(0.001)
        assert [caller.told for caller in callers] == [[], [("too large", ILLEGAL)], [("hasty", OK)], []]
        replicas.acked.advance(held)
        await trio.sleep(4)
        replicas.acked.deadlines.expire(trio.current_time())
        assert [caller.told for caller in (first, last)] == [[("first", OK)], [("last", LATE)]]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("missing", range(4))
async def test_what_a_slave_was_not_sent_is_held_for_no_caller(autojump_clock: MockClock, missing: int) -> None:
    """It came back while they waited, and its stream began behind some of what was appended together."""
    async with waiting_for_replicas() as (service, store, replicas), trio.open_nursery() as nursery:
        nursery.start_soon(service.run)
        for number in range(BUSY):
            put_one(service, "before", Caller(f"10.0.0.9:{number}"))
        begin, callers = store.max_offset, [Caller() for _ in range(4)]
        for caller in callers:
            put_one(service, "together", caller)
        await trio.sleep(0.001)
        replicas.acked_from = begin + missing * record(bytes(1)).size
        replicas.acked.advance(store.max_offset)
        assert [caller.told for caller in callers] == [
            [("together", LATE if number < missing else OK)] for number in range(4)
        ]
        nursery.cancel_scope.cancel()


async def test_what_there_is_no_room_for_yet_stays_in_order(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with waiting_for_replicas() as (service, store, replicas), trio.open_nursery() as nursery:
        appends, callers = note_appends(store, monkeypatch, instead=lambda count: min(count, 3)), list[Caller]()
        nursery.start_soon(service.run)
        for number in range(16):
            callers.append(Caller(f"10.0.0.9:{number}"))
            pair = [Put(f"{number}.{part}", record(b"%d" % number), wait=True, oneway=False) for part in range(2)]
            service.put(pair, callers[-1])
        await trio.sleep(0.01)
        assert appends[BUSY:] == [16, 13, 10, 7, 4, 1]
        replicas.acked.advance(store.max_offset)
        assert [caller.told for caller in callers] == [
            [(f"{number}.{part}", OK) for part in range(2)] for number in range(16)
        ]
        assert [place for caller in callers for place in caller.places] == list(range(1, 33))
        nursery.cancel_scope.cancel()


async def test_what_came_in_one_pass_is_appended_in_the_next(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much it is: otherwise it would never go, and later puts would wait behind it."""
    async with waiting_for_replicas() as (service, store, _), trio.open_nursery() as nursery:
        passes, seen = 0, set[int]()
        put_messages = store.put_messages

        def put_and_note(requests: Sequence[PutRequest]) -> list[AppendResult]:
            seen.add(passes)
            return put_messages(requests)

        async def count_passes() -> None:
            nonlocal passes
            while True:
                passes += 1
                await trio.lowlevel.checkpoint()

        nursery.start_soon(service.run)
        nursery.start_soon(count_passes)
        await trio.lowlevel.checkpoint()
        for number in range(BUSY + 30):
            few = [Put("few", record(b"x"), wait=True, oneway=False)] * 16
            service.put(few, Caller(f"10.0.0.9:{number}"))
        monkeypatch.setattr(store, "put_messages", put_and_note)
        before = store.max_offset
        while passes < 20:
            await trio.lowlevel.checkpoint()
        assert len(seen) == 1
        assert store.max_offset == before + 30 * 16 * record(b"x").size
        nursery.cancel_scope.cancel()


class Talkative(Caller):
    """Who puts something itself once it is told."""

    def __init__(self, peer: str, service: PutMessageService) -> None:
        super().__init__(peer)
        self._service = service

    def prepare_answers(self, stored: list[tuple[str, AppendResult]]) -> Answer:
        if stored[0][0] != "more":
            self._service.put([Put("more", record(b"more"), wait=True, oneway=False)], self)
        return super().prepare_answers(stored)


async def test_what_was_begun_goes_on_before_anything_that_comes_of_an_answer(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log of entries forgets how far it is with a batch when it is given something else: it would be there twice."""
    async with waiting_for_replicas() as (service, store, _), trio.open_nursery() as nursery:
        bodies: list[list[bytes]] = []
        put_messages = store.put_messages

        def put_one_of_two(requests: Sequence[PutRequest]) -> list[AppendResult]:
            bodies.append([bytes(one.body) for one in requests if isinstance(one, PreparedRecord)])
            return put_messages(requests[:1] if len(bodies) == BUSY + 1 else requests)

        monkeypatch.setattr(store, "put_messages", put_one_of_two)
        nursery.start_soon(service.run)
        for number in range(BUSY):
            put_one(service, "before", Caller(f"10.0.0.9:{number}"))
        for peer, body in (("10.0.0.9:1", b"commit"), ("10.0.0.9:2", b"batch")):
            service.put([Put("one", record(body), wait=True, oneway=False)], Talkative(peer, service))
        await trio.sleep(0.01)
        assert bodies[BUSY:][:2] == [[b"commit", b"batch"], [b"batch", b"more"]]
        nursery.cancel_scope.cancel()


class Poison(PreparedRecord):
    """A message that the log stumbles over."""

    def append_to(self, *_args: object, **_kwargs: object) -> None:
        raise ZeroDivisionError("a bug")


class FencedCaller(Caller):
    """Whose connection ends with what goes wrong on its behalf."""

    def __init__(self, peer: str, fence: Fence) -> None:
        super().__init__(peer)
        self._fence = fence
        self.closed = ""

    def fenced(self) -> AbstractContextManager[None]:
        return self._fence.guard(self, None)  # type: ignore[arg-type]

    def close(self, reason: str) -> None:
        self.closed = reason


@pytest.mark.meets_bugs
async def test_a_bug_that_one_message_meets_costs_nobody_else_anything(autojump_clock: MockClock) -> None:
    async with waiting_for_replicas() as (service, store, replicas), trio.open_nursery() as nursery:
        nursery.start_soon(service.run)
        callers = [FencedCaller(f"10.0.0.9:{number}", Fence()) for number in range(20)]
        for number, caller in enumerate(callers):
            one = record(b"x")
            service.put([Put("one", Poison(*one) if number == 17 else one, wait=True, oneway=False)], caller)
        await trio.sleep(0.01)
        replicas.acked.advance(store.max_offset)
        assert [bool(caller.closed) for caller in callers] == [number == 17 for number in range(20)]
        assert [caller.told for caller in callers if not caller.closed] == [[("one", OK)]] * 19
        put_one(service, "later", callers[0])
        await trio.sleep(0.01)
        replicas.acked.advance(store.max_offset)
        assert callers[0].told[-1] == ("later", OK)
        nursery.cancel_scope.cancel()
