"""ThreadAsker: questions to brokers in threads, each bounded in time, and so many at once to each broker.

A broker that lets an answer drip, or a resolver that does not come back, may keep a thread for longer than anybody
waits for it: it keeps one of its own broker's few places, until it ends, and nobody else's.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

import trio

from rmqha.cli.named_brokers import NamedBroker
from rmqha.cli.top_samples import Sample
from rmqha.dashboard import questions
from rmqha.dashboard.questions import Reading, Row, Wanted
from rmqha.threads import needing_a_thread

T = TypeVar("T")

_PLACES_PER_BROKER: Final = 3
_QUESTIONS_MAX: Final = 3
"""So many answers, one after the other, one of these functions waits for."""


class ThreadAsker:
    """Asks as :mod:`rmqha.dashboard.questions` does, from tasks."""

    def __init__(self, *, timeout_s: float) -> None:
        """``timeout_s`` is for each answer."""
        self._timeout_s: Final = timeout_s
        self._places: Final[dict[str, trio.CapacityLimiter]] = {}

    async def brokers_at(self, address: str) -> tuple[NamedBroker, ...]:
        """See :func:`~rmqha.dashboard.questions.brokers_at`."""
        return await self._in_thread(address, questions.brokers_at, address)

    async def read_broker(self, broker: NamedBroker, before: Sample | None, lags: dict[str, int] | None) -> Reading:
        """See :func:`~rmqha.dashboard.questions.read_broker`."""
        try:
            return await self._in_thread(broker.address, questions.read_broker, broker, before, lags)
        except OSError as error:
            at_s = trio.current_time()
            answered_at_s = None if before is None else before.answered_at_s
            return Reading(Sample(broker=broker, at_s=at_s, trouble=str(error), answered_at_s=answered_at_s), None)

    async def read_groups(self, broker: NamedBroker) -> list[Row]:
        """See :func:`~rmqha.dashboard.questions.read_groups`."""
        return await self._in_thread(broker.address, questions.read_groups, broker)

    async def read_topics(self, broker: NamedBroker) -> list[Row]:
        """See :func:`~rmqha.dashboard.questions.read_topics`."""
        return await self._in_thread(broker.address, questions.read_topics, broker)

    async def read_topic(self, broker: NamedBroker, topic: str) -> Row:
        """See :func:`~rmqha.dashboard.questions.read_topic`."""
        return await self._in_thread(broker.address, questions.read_topic, broker, topic)

    async def read_group(self, broker: NamedBroker, group: str) -> Row:
        """See :func:`~rmqha.dashboard.questions.read_group`."""
        return await self._in_thread(broker.address, questions.read_group, broker, group)

    async def read_config(self, broker: NamedBroker) -> Row:
        """See :func:`~rmqha.dashboard.questions.read_config`."""
        return await self._in_thread(broker.address, questions.read_config, broker)

    async def read_messages(self, broker: NamedBroker, wanted: Wanted) -> Row:
        """See :func:`~rmqha.dashboard.questions.read_messages`."""
        return await self._in_thread(broker.address, questions.read_messages, broker, wanted)

    async def _in_thread(self, address: str, ask: Callable[..., T], *arguments: Any) -> T:
        """Raises OSError, and what ``ask`` raises."""
        limiter = self._places.setdefault(address, trio.CapacityLimiter(_PLACES_PER_BROKER))
        within_s = _QUESTIONS_MAX * self._timeout_s + 1
        question = partial(ask, *arguments, timeout_s=self._timeout_s)
        try:
            with trio.fail_after(within_s), needing_a_thread():
                return await trio.to_thread.run_sync(question, abandon_on_cancel=True, limiter=limiter)
        except trio.TooSlowError:
            raise TimeoutError(f"the broker at {address} has not answered in {within_s:g} s") from None
        finally:
            if not limiter.statistics().borrowed_tokens and not limiter.statistics().tasks_waiting:
                self._places.pop(address, None)
