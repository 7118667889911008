"""What a checkpoint says, at the moment it is written: no more than the device holds."""

from typing import TYPE_CHECKING, Final

from rmqha.codec.checkpoint import Checkpoint, decode_checkpoint
from rmqha.store.mapped_file import file_name
from tests.sim.held import COMMIT_LOG
from tests.sim.node import STORE
from tests.sim.sim_disk import SECTOR, Inode

if TYPE_CHECKING:
    from tests.sim.invariants import Checker
    from tests.sim.node import Process, SimNode

_QUEUES: Final = f"{STORE}/consumequeue/"
_UNIT: Final = 20
_STORE_TIME: Final = slice(56, 64)
_CLOCKS: Final = {"skew", "clock_back"}


class Checkpoints:
    """Looks at each checkpoint that a broker writes."""

    def __init__(self, checker: "Checker") -> None:
        self._checker: Final = checker
        self._size: Final = checker.world.swarm.segment_size
        self._is_time_true: Final = all(fault.kind not in _CLOCKS for fault in checker.world.plan)
        """Store times never go back."""

    def on_written(self, node: "SimNode", process: "Process", data: bytes) -> None:
        """I3: the log is durable up to the offset, where a record ends, and queues up to the time."""
        checkpoint = decode_checkpoint(data)
        end, store = checkpoint.master_flushed_offset, process.broker.store
        if not self._is_durable(node, store.min_offset, end):
            self._violation(node, f"says that the log is durable up to {end}; its device does not hold that")
        if end > store.min_offset and not self._ends_record(node, end):
            self._violation(node, f"says that a record ends at {end}")
        if self._is_time_true:
            self._check_queues(node, process, checkpoint)

    def _violation(self, node: "SimNode", what: str) -> None:
        self._checker.violation("I3", f"{node.name} writes a checkpoint that {what}")

    def _segment(self, node: "SimNode", offset: int) -> Inode | None:
        return node.disk.files.get(COMMIT_LOG + file_name(offset - offset % self._size))

    def _is_durable(self, node: "SimNode", start: int, end: int) -> bool:
        for base in range(start - start % self._size, end, self._size):
            inode = self._segment(node, base)
            behind = min(self._size, end - base)
            if inode is None or inode.durable[:behind] != inode.cache[:behind]:
                return False
        return True

    def _ends_record(self, node: "SimNode", offset: int) -> bool:
        """Whether one leads there from the beginning of its segment, record by record."""
        inode, end, at = self._segment(node, offset), offset % self._size, 0
        while inode is not None and at < end:
            size = int.from_bytes(inode.cache[at : at + 4], "big")
            if not size:
                return False
            at += size
        return at == end

    def _check_queues(self, node: "SimNode", process: "Process", checkpoint: Checkpoint) -> None:
        for path, inode in node.disk.files.items():
            if not path.startswith(_QUEUES) or _is_deleted(process, path):
                continue
            for sector in (*inode.dirty, *inode.ghosts):
                if self._lacks_older(node, inode, sector, checkpoint.consume_queue_timestamp_ms):
                    self._violation(node, f"says that queues are durable; the device lacks older units of {path}")
                    return

    def _lacks_older(self, node: "SimNode", inode: Inode, sector: int, time_ms: int) -> bool:
        """Whether a sector has units in the cache alone whose records were stored before this time."""
        first = sector * SECTOR // _UNIT * _UNIT
        for at in range(first, min((sector + 1) * SECTOR, inode.size - _UNIT + 1), _UNIT):
            unit = inode.cache[at : at + _UNIT]
            if inode.durable[at : at + _UNIT] == unit or not any(unit[8:12]):
                continue
            offset = int.from_bytes(unit[:8], "big")
            segment, begin = self._segment(node, offset), offset % self._size
            record = segment.cache[begin : begin + 64] if segment is not None else b""
            if record and int.from_bytes(record[_STORE_TIME], "big") < time_ms:
                return True
        return False


def _is_deleted(process: "Process", path: str) -> bool:
    """Whether messages of this queue were deleted with their topic: the file is about to go, or to be made again."""
    topic, queue_id, _ = path.removeprefix(_QUEUES).split("/")
    return (topic, int(queue_id)) in process.broker.store.queues.deleted
