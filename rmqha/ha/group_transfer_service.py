"""GroupTransferService: answers every send that waits for replication, at its deadline at the latest."""

from typing import Final

from rmqha.replication.in_sync import InSyncReplicas
from rmqha.replication.watermark import Watermark
from rmqha.waiting import DeadlineService

_NOBODY_IS_NEEDED: Final = 2**63 - 1


class GroupTransferService:
    """Hot path: an acknowledgement moves :attr:`acked`, and every put at or below it is answered.

    Put ``acked.add(next_offset, deadline, complete)`` for each put after :meth:`is_slave_ok` said yes. As every
    report was at most the log's end, and the watermark falls with that, nothing appended later can count as replicated
    by an acknowledgement given before.

    Invariant: at some moment enough slaves, all at once, held every byte of ``[acked_from, acked.value)``. A slave
    shows nothing about what lies before the place where its stream began, so a put that reaches back behind
    ``acked_from`` when it is answered is not known to be held. That befalls those under way when a slave comes back.

    Source: rocketmq-all-4.9.8 HAService.java:251-340; spec: ha §6.
    """

    def __init__(self, in_sync: InSyncReplicas, flushed: Watermark) -> None:
        self.acked: Final = Watermark(0 if in_sync.slaves_needed else _NOBODY_IS_NEEDED)
        self.acked_from = 0
        self._held_offset = 0
        self._taken_offset = 0
        self._in_sync: Final = in_sync
        self._flushed: Final = flushed
        self._deadlines: Final = DeadlineService(self.acked.deadlines)

    def is_slave_ok(self, next_offset: int) -> bool:
        """False: answer SLAVE_NOT_AVAILABLE at once, nobody acceptable is there to wait for."""
        return self._in_sync.is_slave_ok(next_offset)

    def notify_transfer_some(self) -> None:
        """A slave acknowledged something: answer those whom that satisfies."""
        if not self._in_sync.slaves_needed:
            self._taken_offset = max(self._taken_offset, self._in_sync.taken_max_offset())
        while (proof := self._in_sync.proof_beyond(self.acked.value)) is not None:
            held_offset, self.acked_from = self.held_offset, proof.begin
            if proof.begin <= held_offset:
                self._held_offset = proof.end
            self.acked.advance(proof.end)

    @property
    def held_offset(self) -> int:
        """Each byte before it is flushed here, or was held by enough slaves at some moment; falls only by a cut."""
        if self.acked_from <= self._flushed.value:
            self._held_offset = self.acked.value
        return max(self._held_offset, self._flushed.value)

    @property
    def proven_offset(self) -> int:
        """Up to here as many slaves took the log, at some moment, as a send waits for, and one at least.

        0 if none has since the start; falls only by a cut.
        """
        return self.acked.value if self._in_sync.slaves_needed else self._taken_offset

    def cut(self, end: int) -> None:
        """The log's tail behind ``end`` is gone, and the acknowledgements of it with their connections."""
        self._taken_offset = min(self._taken_offset, end)
        self.acked_from, self._held_offset = min(self.acked_from, end), min(self._held_offset, end)
        if self._in_sync.slaves_needed:
            self.acked.cut(end)

    async def run(self) -> None:
        """Expire waiters until cancelled; then answer the rest, as nobody may be left without an answer."""
        try:
            await self._deadlines.run()
        finally:
            self.acked.fail_all()
