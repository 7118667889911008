"""GroupTransferService: tells whoever waits for replication, each within his own deadline."""

from typing import Final

from rmqha.replication.in_sync import InSyncReplicas
from rmqha.replication.watermark import Watermark
from rmqha.waiting import DeadlineService

_NOBODY_IS_NEEDED: Final = 2**63 - 1


class GroupTransferService:
    """Hot path, step 7: an acknowledgement moves :attr:`acked`, and every put at or below it is answered.

    Put ``acked.add(next_offset, deadline, complete)`` for each put after :meth:`is_slave_ok` said yes. As the
    watermark never falls and every report was at most the log's end, nothing appended later can count as replicated
    by an acknowledgement given before.

    Source: rocketmq-all-4.9.8 HAService.java:251-340; spec: ha §6.
    """

    def __init__(self, in_sync: InSyncReplicas) -> None:
        self.acked: Final = Watermark(0 if in_sync.slaves_needed else _NOBODY_IS_NEEDED)
        """Everything below it was held by enough live slaves at some moment."""
        self._in_sync: Final = in_sync
        self._deadlines: Final = DeadlineService(self.acked)

    def is_slave_ok(self, next_offset: int) -> bool:
        """False: answer SLAVE_NOT_AVAILABLE at once, nobody acceptable is there to wait for."""
        return self._in_sync.is_slave_ok(next_offset)

    def notify_transfer_some(self) -> None:
        """An acknowledgement came or went: answer those it satisfies."""
        self.acked.advance(self._in_sync.value())

    async def run(self) -> None:
        """Expire waiters until cancelled; then answer the rest, as nobody may be left without an answer."""
        try:
            await self._deadlines.run()
        finally:
            self.acked.fail_all()
