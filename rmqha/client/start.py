"""Where a consumer begins to read a queue (RocketMQ: ConsumeFromWhere)."""

from datetime import datetime
from typing import Final, Literal

from rmqha.client.message import MessageQueue
from rmqha.client.pull_api import PullApi
from rmqha.codec.limits import group_problem
from rmqha.errors import MQClientError

Start = Literal["committed", "first", "last"] | int | datetime
"""``committed``: where the group's last commit is, else at the first message; ``first``: at the first message there is;
``last``: behind the last one; a time (milliseconds since 1970, or a datetime, local if it names no zone): see
:meth:`~rmqha.client.Consumer.seek_to_time`."""

_PLACES: Final = ("committed", "first", "last")


def check_start(start: Start | None, *, group: str | None) -> Start:
    """What a caller asked for, or the default: ``committed`` if a group is named, else ``first``.

    Raises:
        MQClientError: it is none of the places, or needs a group; or that is no group's name.
    """
    if group is not None and (problem := group_problem(group)):
        raise MQClientError(problem)
    if start is None:
        return "first" if group is None else "committed"
    if start == "committed" and group is None:
        raise MQClientError("start='committed' needs the name of the group that committed: give group=")
    if isinstance(start, datetime):
        return int(start.timestamp() * 1000)
    if start not in _PLACES and (not isinstance(start, int) or start < 0):
        places = ", ".join(map(repr, _PLACES))
        raise MQClientError(f"start={start!r}: expected {places}, a datetime, or milliseconds since 1970")
    return start


async def find_start(api: PullApi, queue: MessageQueue, start: Start, *, is_new: bool) -> int:
    """The offset to begin at.

    Args:
        api: whom to ask.
        queue: which queue.
        start: as :func:`check_start` returned it.
        is_new: the queue appeared while the consumer was running: ``last`` misses none of its messages.

    Raises:
        RemotingError, MQBrokerError: no answer, or a refusal.
    """
    if start == "committed" and (committed := await api.committed_offset(queue)) is not None:
        return committed
    if start == "last" and not is_new:
        return await api.max_offset(queue)
    if isinstance(start, int):
        return await api.search_offset(queue, start)
    return await api.min_offset(queue)
