"""Role: what this node is to its group at this moment; one object a broker, observed by everything that acts by it.

A classic broker is a master or a slave for its whole life. A node of a Raft group changes while it runs: what asks
:attr:`Role.is_master` at each decision, or :meth:`Role.subscribe`-s, needs no restart for that.
"""

from collections.abc import Callable
from enum import Enum


class RoleKind(Enum):
    """What a node may be."""

    MASTER = "master"
    """It takes messages, and the others copy it: RocketMQ's master, DLedger's leader."""
    SLAVE = "slave"
    """It copies ``master``: RocketMQ's slave, DLedger's follower."""
    CANDIDATE = "candidate"
    """Nobody is known to lead."""


class Role:
    """The role now.

    Attributes:
        kind: what it is.
        is_master: whether it takes messages.
        master: ``host:port`` that it copies; empty if that is unknown, or itself.
        term: of the leader's election; 0 where nobody is elected. It never falls.
    """

    def __init__(self, kind: RoleKind = RoleKind.MASTER, *, master: str = "", term: int = 0) -> None:
        self.kind = kind
        self.is_master = kind is RoleKind.MASTER
        self.master = master
        self.term = term
        self._observers: list[Callable[[], None]] = []

    def subscribe(self, observer: Callable[[], None]) -> None:
        """Call ``observer`` after each change, in the order of subscription."""
        self._observers.append(observer)

    def become(self, kind: RoleKind, *, master: str = "", term: int = 0) -> None:
        """Change, and tell the observers if anything did."""
        assert term >= self.term, f"the term of a role fell from {self.term} to {term}"
        before = (self.kind, self.master, self.term)
        self.kind, self.is_master, self.master, self.term = kind, kind is RoleKind.MASTER, master, term
        if before != (kind, master, term):
            for observer in self._observers:
                observer()

    def refusal(self) -> str:
        """Why a message cannot be stored by this node; empty for a master."""
        if self.is_master:
            return ""
        return "this broker is a slave: send to its master" if self.kind is RoleKind.SLAVE else "no master is known"
