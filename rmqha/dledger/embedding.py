"""Embedding: what a member knows of the broker that it is a part of."""

from typing import Protocol


class Embedding(Protocol):
    """A broker on a group's log."""

    @property
    def address(self) -> str:
        """``host:port`` where it serves clients; other members tell theirs."""
        ...

    @property
    def may_lead(self) -> bool:
        """Whether it could serve as a master; once it could not, it never can in this process."""
        ...

    def on_role(self) -> None:
        """Who leads may be somebody else; a leadership that has ended takes nothing any more from now on."""
        ...

    @property
    def due_at(self) -> float:
        """See :class:`~rmqha.dledger.push_service.Waiting`."""
        ...

    def step(self, *, now: float) -> None:
        """The log, or what of it is durable or committed, may have changed."""
        ...
