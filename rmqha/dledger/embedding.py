"""Embedding: what a member knows of the broker that it is a part of."""

from typing import Protocol


class Embedding(Protocol):
    """A broker on a group's log."""

    @property
    def address(self) -> str:
        """``host:port`` where it serves clients, which this member's metadata names."""
        ...

    @property
    def may_lead(self) -> bool:
        """Whether it could serve as a master; once False, it stays False until the process is restarted."""
        ...

    @property
    def store_refusal(self) -> str:
        """Why messages cannot be stored here at present, if not; else empty."""
        ...

    @property
    def damage(self) -> str:
        """What of the messages here was found not to be what was stored; else empty."""
        ...

    def on_role(self) -> None:
        """The role, the leader or the term may have changed; once this member no longer leads, puts are refused."""
        ...

    @property
    def due_at(self) -> float:
        """See :class:`~rmqha.dledger.push_service.Waiting`."""
        ...

    def step(self, *, now: float) -> None:
        """The log, or what of it is durable or committed, may have changed."""
        ...
