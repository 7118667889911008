"""SyncProducer and SyncConsumer hand on all that they are given: each option of a client, and each of its calls."""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from inspect import Parameter, iscoroutinefunction, signature
from itertools import count
from types import FunctionType
from typing import Any, Final

import pytest
import trio

from rmqha.client import Consumer, Producer, SyncConsumer, SyncProducer, open_consumer, open_producer, sync

Plain = type[SyncProducer] | type[SyncConsumer]
Given = dict[str, object]
KINDS: Final = [
    pytest.param(SyncProducer, Producer, open_producer, id="producer"),
    pytest.param(SyncConsumer, Consumer, open_consumer, id="consumer"),
]
FOR_TESTS: Final = {"now_ms", "chance"}
"""Options of a client that plain code has no use for."""
OF_ITS_OWN: Final = {"close", "poll_in_asyncio", "send_many"}
"""What a client has not, or not as a call of this kind: below it is looked at by itself."""
NOT_OFFERED: Final = {
    *("render", "encode", "select_live", "connect", "select_queue", "note_outcome", "forget_route", "pipeline"),
    *("processed_offsets", "pull", "take_back", "refresh", "open"),
}
"""Parts of a client that others of its parts call, and what takes an event loop."""


class Recorder:
    """In place of a client: notes what it is called with, and answers with an object that tells the call."""

    def __init__(self, of: type) -> None:
        self._of = of
        self.called: list[tuple[str, Given]] = []

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._of, name)
        if isinstance(function, property):
            return f"answer of {name}"

        def call(*args: object, **kwargs: object) -> str:
            bound = signature(function).bind(self, *args, **kwargs)
            bound.apply_defaults()
            self.called.append((name, {key: value for key, value in bound.arguments.items() if key != "self"}))
            return f"answer of {name}"

        async def call_async(*args: object, **kwargs: object) -> str:
            return call(*args, **kwargs)

        return call_async if iscoroutinefunction(function) else call


class Opened:
    """What clients were opened with, and the last of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.given: list[Given] = []
        self.client: Recorder
        for opening, of in ((open_producer, Producer), (open_consumer, Consumer)):
            monkeypatch.setattr(sync, opening.__name__, self._opening(opening, of))

    def _opening(self, opening: Callable[..., Any], of: type) -> Callable[..., Any]:
        @asynccontextmanager
        async def opened(*args: object, **kwargs: object) -> AsyncIterator[Recorder]:
            bound = signature(opening).bind(*args, **kwargs)
            bound.apply_defaults()
            self.given.append(dict(bound.arguments))
            self.client = Recorder(of)
            yield self.client

        return opened


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    return Opened(monkeypatch)


def defaults(function: Callable[..., Any]) -> Given:
    """Of its parameters; those that must be given have none."""
    return {
        name: None if one.default is Parameter.empty else one.default
        for name, one in signature(function).parameters.items()
        if name != "self"
    }


def tokens(function: Callable[..., Any]) -> Given:
    """Something of its own for each parameter."""
    return {name: f"given as {name}" for name in defaults(function)}


def calls_of(kind: type) -> dict[str, Callable[..., Any]]:
    return {name: one for name, one in vars(kind).items() if isinstance(one, FunctionType) and not name.startswith("_")}


@pytest.mark.parametrize(("plain", "_of", "opening"), KINDS)
def test_each_option_arrives_and_has_the_same_default(
    plain: Plain, _of: type, opening: Callable[..., Any], opened: Opened
) -> None:
    wanted = {name: value for name, value in defaults(opening).items() if name not in FOR_TESTS}
    assert defaults(plain) == wanted
    needed = {name: f"given as {name}" for name in ("addresses", "topic") if name in wanted}
    for given in (needed, tokens(plain)):
        plain(**given).close()  # type: ignore[arg-type]
        arrived = {name: value for name, value in opened.given[-1].items() if name not in FOR_TESTS}
        assert arrived == wanted | given


@pytest.mark.parametrize(("plain", "of", "_opening"), KINDS)
def test_each_call_arrives_with_all_that_it_is_given(
    plain: Plain, of: type, _opening: Callable[..., Any], opened: Opened
) -> None:
    client = plain(**tokens(plain))  # type: ignore[arg-type]
    theirs, ours = calls_of(of), calls_of(plain)
    assert theirs.keys() - NOT_OFFERED - OF_ITS_OWN == ours.keys() - OF_ITS_OWN
    for name in ours.keys() - OF_ITS_OWN:
        assert defaults(ours[name]) == defaults(theirs[name]), name
        given = tokens(theirs[name])
        answer = getattr(client, name)(**given)
        assert opened.client.called.pop() == (name, given)
        is_none = signature(ours[name]).return_annotation is None
        assert answer == (None if is_none else f"answer of {name}"), name
        assert opened.client.called == []
    client.close()


def test_what_is_sent_together_has_the_window_and_the_time_that_it_is_given(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Pipeline:
        async def send(self, message: object) -> list[object]:
            return [message]

        async def finish(self) -> list[object]:
            return ["the last"]

    pipelines = list[Given]()

    def pipeline(**given: object) -> Pipeline:
        pipelines.append(given)
        return Pipeline()

    messages: Any = [f"message {number}" for number in range(700)]
    last: Any = ["the last"]
    with SyncProducer("given") as client:
        monkeypatch.setattr(opened.client, "pipeline", pipeline, raising=False)
        assert list(client.send_many(messages, window=300, timeout_s=2.5)) == messages + last
        assert list(client.send_many(())) == last
    assert defaults(SyncProducer.send_many) == defaults(Producer.send_many)
    assert pipelines == [{"window": 300, "timeout_s": 2.5}, {"window": 1000, "timeout_s": None}]


def test_messages_are_taken_as_they_are_sent_and_not_all_before(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A generator may make them without end; a few hundred together cost no more than one."""
    handed_over, taken = list[int](), list[int]()

    class Pipeline:
        async def send(self, message: object) -> list[object]:
            return [message]

    async def send_part(pipeline: Pipeline, messages: list[object]) -> list[object]:
        handed_over.append(len(messages))
        return messages

    def endless() -> Iterator[Any]:
        for number in count():
            taken.append(number)
            yield number

    with SyncProducer("given") as client:
        monkeypatch.setattr(opened.client, "pipeline", lambda **_: Pipeline(), raising=False)
        monkeypatch.setattr(sync, "_send_part", send_part)
        outcomes: Iterator[Any] = client.send_many(endless(), window=300)
        assert [next(outcomes) for _ in range(256)] == list(range(256))
        assert (len(taken), handed_over) == (256, [256])
        assert next(outcomes) == 256
        assert handed_over == [256, 256]
        next(client.send_many(endless(), window=20))
        assert handed_over[-1] == 20


async def test_what_comes_at_the_moment_when_nobody_waits_any_more_is_given_back_once() -> None:
    """Messages of a poll that a ctrl-c met just then came to nobody, and were committed."""
    given_back = list[str]()

    async def answer_too_late() -> str:
        await trio.lowlevel.checkpoint()
        call.abandon()
        return "messages"

    call = sync._Call(answer_too_late, on_unclaimed=given_back.append)
    await call.run()
    assert given_back == ["messages"]
    call.abandon()
    assert given_back == ["messages"]


@pytest.mark.parametrize(("plain", "_of", "_opening"), KINDS)
def test_a_client_that_nobody_closed_keeps_no_program_from_its_end(
    plain: Plain, _of: type, _opening: Callable[..., Any], opened: Opened
) -> None:
    before = set(threading.enumerate())
    client = plain(**tokens(plain))  # type: ignore[arg-type]
    (thread,) = set(threading.enumerate()) - before
    client.close()
    assert thread.daemon
    assert not thread.is_alive()
