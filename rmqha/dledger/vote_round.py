"""What a member's elector has asked the others, and what came back."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from rmqha.dledger.vote import HeartBeatResponse, VoteResponse, VoteResult

_SAVES: Final = 3
"""Who asks saves the term, the others save it, and their votes."""
_QUICK_S: Final = 0.05
"""A save of a term that takes no longer disturbs no election."""
_SLOW_S: Final = 1.5
"""Nobody waits for votes that take longer: a disk that hung for a while says nothing of the next save."""


class ParseResult(Enum):
    """What a round of votes has come to."""

    WAIT_TO_REVOTE = 0
    REVOTE_IMMEDIATELY = 1
    PASSED = 2
    WAIT_TO_VOTE_NEXT = 3


@dataclass(slots=True)
class Round:
    """One question to all members, and their answers; UNKNOWN for those that gave none."""

    number: int
    waits_until: float
    answers: dict[str, VoteResponse] = field(default_factory=dict)


@dataclass(slots=True)
class Beat:
    """One heartbeat to all others."""

    sent_at: float
    number: int
    answers: dict[str, HeartBeatResponse] = field(default_factory=dict)


def count_larger(results: Sequence[VoteResult]) -> int:
    """How many have a larger log."""
    larger = {VoteResult.REJECT_EXPIRED_LEDGER_TERM, VoteResult.REJECT_SMALL_LEDGER_END_INDEX}
    return sum(result in larger for result in results)


def saves_of_a_round(took_s: float) -> float:
    """Seconds that the saves of a round add to it, where the last one here took so long."""
    return _SAVES * (min(took_s, _SLOW_S) - _QUICK_S) if took_s > _QUICK_S else 0.0
