"""CommitLogDispatcher: what is derived from the log's records, round by round, behind everything that is confirmed."""

from collections.abc import Sequence
from typing import Protocol

from rmqha.codec.record.dispatch import DispatchRequest


class Plan(Protocol):
    """What one round adds. Nothing is written before :meth:`write` or :meth:`write_here`."""

    async def write(self) -> None:
        """Write all of it, waiting for no device in the event loop.

        Raises:
            StoreError: the round comes again, or ends dispatch.
        """
        ...

    def write_here(self) -> None:
        """As :meth:`write`, here and now: for starting and stopping."""
        ...

    def announce(self) -> None:
        """Tell who waits for it: all builders have written, and dispatch has moved on."""
        ...


class CommitLogDispatcher(Protocol):
    """Builds one kind of derived files.

    A record may come again: after a crash, and when another builder failed in the same round. It then adds nothing.
    """

    def plan(self, requests: Sequence[DispatchRequest], *, at_start: bool) -> Plan:
        """Find the records' places.

        Args:
            requests: consecutive records of the log, all of which consumers may see.
            at_start: what is built may be damaged, as the process before may have crashed.

        Raises:
            CorruptLogError: the record at its ``offset`` has no place. Those before it, planned alone, have one.
            StoreError: what is built cannot be read or made at present.
        """
        ...

    def put_aside(self, *, misfits: bool) -> bool:
        """Between two rounds: take out what lost its files, so that all else goes on; whether there was any, or more.

        With ``misfits`` also that in which the last round's record had no place: it is what a crash left, and wrong.
        """
        ...
