"""Unanswered: what no broker answers at present, so that a poll can bridge a restart, and say so when it cannot."""

import logging
from dataclasses import dataclass

from rmqha.client.message import MessageQueue
from rmqha.errors import RemotingError, RmqhaError

logger = logging.getLogger("rmqha.client")


@dataclass(slots=True)
class _Failure:
    error: RemotingError
    since: float
    """When it began, or when the caller was last told of it."""


class Unanswered:
    """The failures that nothing has made up for; the route's is kept under None."""

    def __init__(self) -> None:
        self._failures: dict[MessageQueue | None, _Failure] = {}
        self._is_route_kept = False

    def __contains__(self, queue: MessageQueue) -> bool:
        return queue in self._failures

    def note(self, queue: MessageQueue | None, error: RemotingError, *, now: float) -> None:
        """No broker answered."""
        known = self._failures.get(queue)
        self._failures[queue] = _Failure(error, now if known is None else known.since)

    def clear(self, queue: MessageQueue | None) -> None:
        """A broker has answered, or what was asked does not matter any more."""
        self._failures.pop(queue, None)
        if queue is None:
            self._is_route_kept = False

    def keep_route(self, topic: str, error: RmqhaError) -> None:
        """No new route is learned, and the addresses of the last one stay: logged once, until one is again."""
        if not self._is_route_kept:
            logger.warning("consumer.route_unknown: topic %s keeps the addresses it had: %r", topic, error)
        self._is_route_kept = True

    def raise_after(self, limit_s: float, *, now: float) -> None:
        """Raise what nobody has answered for ``limit_s``, unless it was raised since then.

        Raises:
            RemotingError: the failure of one queue, or of the route.
        """
        overdue = [failure for failure in self._failures.values() if now - failure.since >= limit_s]
        for failure in overdue:
            failure.since = now
        if overdue:
            raise overdue[0].error
