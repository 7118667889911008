"""What broker tables say of topics and their queues, in JSON: entries are checked before anything is taken over."""

from typing import Any, Final

from rmqha.codec.limits import topic_problem

_QUEUE_ID_MAX: Final = 2**31 - 1
_END_MAX: Final = 2**56
"""Twenty bytes each stay within a file name's digits and a signed 64-bit position."""


def decode_topic(name: object) -> str:
    """A topic's name. Raises ValueError: it is none."""
    if type(name) is not str or topic_problem(name):
        raise ValueError(f"{name!r:.40} is no topic")
    return name


def decode_number(value: object, *, limit: int) -> int:
    """A whole number from 0. Raises ValueError: it is none, or larger than ``limit``."""
    if type(value) is not int or not 0 <= value <= limit:
        raise ValueError(f"{value!r:.40} is no number up to {limit}")
    return value


def decode_ends(queues: Any) -> dict[int, int]:
    """Where the queues of a topic end, by queue id: ids are keys, so plain JSON has them as text.

    Raises:
        AttributeError, TypeError, ValueError: that is not what it says.
    """
    return {
        decode_number(int(queue_id), limit=_QUEUE_ID_MAX): decode_number(end, limit=_END_MAX)
        for queue_id, end in queues.items()
    }
