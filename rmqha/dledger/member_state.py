"""MemberState: what one member of a group knows of itself and of its leader."""

from dataclasses import dataclass
from enum import Enum


class Role(Enum):
    """What a member is at present."""

    CANDIDATE = "CANDIDATE"
    LEADER = "LEADER"
    FOLLOWER = "FOLLOWER"


@dataclass(slots=True)
class MemberState:
    """Role, term and log bounds of one member (spec: dledger §4.1).

    ``curr_term`` and ``curr_vote_for`` are durable before anybody hears of them
    (:class:`~rmqha.dledger.term_file.TermFile`).
    ``ledger_end_index`` and ``ledger_end_term`` are those of the log's last entry, -1 for an empty one.
    """

    self_id: str
    curr_term: int = 0
    curr_vote_for: str | None = None
    role: Role = Role.CANDIDATE
    leader_id: str | None = None
    transferee: str | None = None
    ledger_end_index: int = -1
    ledger_end_term: int = -1
    is_saved: bool = True
    """Whether the file has term and vote; until then nobody may count on what is stored here for a leader."""
    vote_floor: tuple[int, int] = (-1, -1)
    """Term and index: who has less gets no vote, though this log ends before (``LedgerCheckpoint.vote_floor``)."""

    @property
    def is_leader(self) -> bool:
        """Whether this member leads in its term."""
        return self.role is Role.LEADER

    @property
    def is_follower(self) -> bool:
        """Whether this member follows a leader in its term."""
        return self.role is Role.FOLLOWER

    def change_to_leader(self, term: int) -> None:
        """Lead in the present term."""
        assert term == self.curr_term, "who leads was elected in its term"
        self.role, self.leader_id, self.transferee = Role.LEADER, self.self_id, None

    def change_to_follower(self, term: int, leader_id: str) -> None:
        """Follow ``leader_id`` in the present term."""
        assert term == self.curr_term, "the term is taken over before its leader is"
        self.role, self.leader_id, self.transferee = Role.FOLLOWER, leader_id, None

    def change_to_candidate(self) -> None:
        """Neither lead nor follow; the term stays."""
        self.role, self.leader_id, self.transferee = Role.CANDIDATE, None, None

    def update_ledger_index_and_term(self, index: int, term: int) -> None:
        """The log's last entry is now this one."""
        self.ledger_end_index, self.ledger_end_term = index, term
