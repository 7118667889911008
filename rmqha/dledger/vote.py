"""What members ask one another to find a leader, and to keep it; and what they answer (spec: dledger §4)."""

from dataclasses import dataclass, field
from enum import Enum

from rmqha.codec.dledger_json import wire_name


class VoteResult(Enum):
    """The answers to a request for a vote."""

    UNKNOWN = 0
    ACCEPT = 1
    REJECT_UNKNOWN_LEADER = 2
    REJECT_UNEXPECTED_LEADER = 3
    REJECT_EXPIRED_VOTE_TERM = 4
    REJECT_ALREADY_VOTED = 5
    REJECT_ALREADY_HAS_LEADER = 6
    REJECT_TERM_NOT_READY = 7
    REJECT_TERM_SMALL_THAN_LEDGER = 8
    REJECT_EXPIRED_LEDGER_TERM = 9
    REJECT_SMALL_LEDGER_END_INDEX = 10
    REJECT_TAKING_LEADERSHIP = 11


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """``leader_id`` asks to lead in ``term``."""

    leader_id: str
    term: int
    ledger_end_index: int
    ledger_end_term: int


@dataclass(frozen=True, slots=True)
class VoteResponse:
    """The answer, and the term of who gives it."""

    result: VoteResult = field(metadata=wire_name("voteResult"))
    term: int


@dataclass(frozen=True, slots=True)
class HeartBeatRequest:
    """``leader_id`` leads in ``term``."""

    leader_id: str
    term: int


@dataclass(frozen=True, slots=True)
class HeartBeatResponse:
    """A DLedger code, and a term that matters with EXPIRED_TERM."""

    code: int
    term: int = -1


Send = VoteRequest | HeartBeatRequest


@dataclass(frozen=True, slots=True)
class Outgoing:
    """To be sent to ``peer``; hand its answer back with ``number``, None if there is none."""

    peer: str
    number: int
    request: Send
