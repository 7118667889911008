"""Replication: how the log of this broker comes to other nodes and from them, as far as a broker sees it.

The classic pair is :class:`~rmqha.broker.classic.classic_replication.ClassicReplication`. A Raft group is another one:
what is confirmed there is what a quorum holds, and sends are refused by all but the leader.
"""

from typing import Any, Protocol

import trio

from rmqha.broker.group import ReplicationGroup
from rmqha.broker.puts.durability import ReplicaPromise
from rmqha.errors import StoreError


class Replication(Protocol):
    """One object a broker, made before anything is opened."""

    @property
    def opened(self) -> trio.Event:
        """Set once nothing is known to be missing here that other nodes hold: sends may be accepted."""
        ...

    @property
    def group(self) -> ReplicationGroup:
        """Who this broker is among the others of its name, and who else says to be one of them."""
        ...

    @property
    def port(self) -> int:
        """Where other nodes are served; the bound one once :meth:`run` has started."""
        ...

    @property
    def ha_address(self) -> str:
        """``ip:port`` where other nodes are told to connect, as :attr:`port`."""
        ...

    @property
    def final_error(self) -> StoreError | None:
        """Why this broker will follow nobody any more; None if nothing of the kind has happened."""
        ...

    @property
    def promise(self) -> ReplicaPromise | None:
        """What SEND_OK says about other nodes; None if nothing."""
        ...

    @property
    def follows_tables(self) -> bool:
        """Whether a master's tables come here every few seconds; not if that failed the last time."""
        ...

    def broker_addrs(self, own: str) -> dict[int, str]:
        """Addresses by brokerId for clients, as far as they are known here: ``own``, and the master's."""
        ...

    def confirmed_offset(self) -> int:
        """Consumers may be shown what lies before it: it cannot vanish any more, as far as the nodes promise."""
        ...

    def is_held_by(self, broker_id: int, offset: int) -> bool:
        """Whether the node with that id holds what lies at that offset of the log, as far as is known here."""
        ...

    def refusal(self) -> str:
        """Why no message may be stored now; empty if one may."""
        ...

    def doubt(self) -> str:
        """What a message that is stored now may do harm to, as far as is known; empty if nothing is."""
        ...

    def kept_from(self) -> int:
        """The lowest offset that another node still has to be sent; cleaning spares what follows."""
        ...

    def is_far_behind(self) -> bool:
        """Whether this log is catching up with another's: first the messages must be safe, then visible."""
        ...

    async def open(self) -> None:
        """Run beside everything else, from the opened store on: fetch what only other nodes hold. Until cancelled.

        Raises:
            StoreError: a person must decide whose log is right.
        """
        ...

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve other nodes, and follow them, until cancelled; reports when they are served.

        Raises:
            OSError: an address cannot be bound.
        """
        ...

    async def hand_over(self) -> None:
        """Before clients are let go: have another node take over what this one leads, if one can; for some seconds."""
        ...

    async def take_leave(self) -> None:
        """Before :meth:`run` is cancelled: give other nodes a moment to take what is stored; tell what they lack."""
        ...

    def facts(self) -> dict[str, Any]:
        """What an operator is shown: members of the status document."""
        ...
