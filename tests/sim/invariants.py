"""The invariants of reliability (I1 to I9), checked at every answer, every start, every death, and at the end.

The checker sees everything: what each device would hold after a power cut now, and what each process believes.
"""

import json
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

import trio

from rmqha.codec.codes import ResponseCode
from rmqha.codec.limits import FORBIDDEN_SEND_TOPICS
from rmqha.codec.record.layout import BLANK_MAGIC
from rmqha.errors import CorruptLogError, DivergedLogError, StoreReadError, StoreWriteError
from rmqha.ha.runtime_info import ClientState
from tests.sim.checkpoints import Checkpoints
from tests.sim.held import COMMIT_LOG, Acked, holds
from tests.sim.journal import CountingLogger
from tests.sim.node import STORE, Process, SimNode
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_net import CAPACITY
from tests.sim.visible import Visible
from tests.sim.workload import Message
from tests.store.helpers import commit_log

if TYPE_CHECKING:
    from tests.sim.world import World

LOG_LINES_AT_ONCE: Final = 60
LOG_LINES_A_SECOND: Final = 6
HA_CONNECTIONS_MAX: Final = 12
_BLANK_MAGIC: Final = BLANK_MAGIC.to_bytes(4, "big", signed=True)
_LEAVE_S: Final = 0.2
"""So long after its disk failed a slave may still be connected."""
_NOTHING: Final = memoryview(b"")
_SHOWN: Final = Message(-1, 0.0, "", 0, b"")
_START_EMPTY: Final = "nothing of it is left there to compare with. Move this store away and start empty"


class ViolationError(Exception):
    """An invariant does not hold: the run ends."""

    def __init__(self, invariant: str, message: str) -> None:
        self.invariant = invariant
        super().__init__(f"{invariant}: {message}")


@dataclass(slots=True)
class Remains:
    """What a dead process had: its log may come back shorter, never longer or different."""

    segments: dict[int, memoryview]
    max_offset: int
    flushed: int
    said: int
    """Where a slave said that its log ends, at most: what lay before it was as safe as ``haAck`` promises."""


@dataclass(eq=False)
class Checker:
    """Watches one run; :attr:`violations` is empty if all is well."""

    world: "World"
    violations: list[str] = field(default_factory=list)
    acked: list[Acked] = field(default_factory=list)
    _remains: dict[str, Remains] = field(default_factory=dict)
    _lives: dict[str, list[Remains]] = field(default_factory=dict)
    """By node: what its processes had, where an acknowledged message may go with a slave's memory."""
    expired: dict[str, int] = field(default_factory=dict)
    """By node: up to here segments were deleted because they expired."""
    visible: Visible = field(init=False)
    checkpoints: Checkpoints = field(init=False)
    _given: dict[tuple[str, int, int], Acked] = field(default_factory=dict)
    """Who was told SEND_OK with this topic, queue and queue offset."""

    def __post_init__(self) -> None:
        self.visible, self.checkpoints = Visible(self), Checkpoints(self)

    def violation(self, invariant: str, message: str) -> None:
        """Note that an invariant does not hold; the world stops at its next look."""
        self.world.journal.record("violation", invariant, message)
        self.violations.append(f"{invariant}: {message}")
        self.world.stop()

    # ---- at an answer

    def on_send_ok(self, process: Process, message: Message, *, offset: int, queue_offset: int) -> None:
        """I1, I6, I7, I8: SEND_OK says what is true, at the moment it is said."""
        world, swarm, node = self.world, self.world.swarm, process.node
        if offset < self.expired.get(node.name, 0):
            return  # every slave has it; the segment expired while this waited for what was stored with it
        record = bytes(commit_log(process.broker.store).view_range(offset, 4))
        record = bytes(commit_log(process.broker.store).view_range(offset, int.from_bytes(record, "big")))
        if message.body not in record:
            self.violation("I8", f"SEND_OK for message {message.number}, but it is not at {offset}")
            return
        acked = Acked(message, offset, queue_offset, record)
        self.acked.append(acked)
        other = self._given.setdefault((message.topic, message.queue_id, queue_offset), acked)
        if other is not acked:
            place = f"offset {queue_offset} of {message.topic}/{message.queue_id}"
            self.violation("I4", f"{place} is given to message {message.number}, and was to {other.message.number}")
        if node.disk.failed_in == node.disk.epoch and swarm.capacity >= CAPACITY:  # or it was said, and left later
            self.violation("I6", f"SEND_OK for message {message.number} after a write of this process failed")
        if message.topic not in FORBIDDEN_SEND_TOPICS:  # those are made at each start
            self._check_topic(process, node.disk, message.topic)
        if swarm.sync_flush and not holds(node.disk, acked, swarm.segment_size, durable=True):
            self.violation("I1", f"SEND_OK for message {message.number}, but {node.name} may still forget it")
        if swarm.sync_master:
            holders = sum(self._holds(other, acked) for other in world.nodes.values() if other is not node)
            if holders < swarm.in_sync_replicas - 1:
                self.violation(
                    "I1",
                    f"SEND_OK for message {message.number}, but only {holders} slaves hold [{offset}, +{len(record)})",
                )

    def check_whole(self, process: Process, messages: list[Message], offsets: list[int]) -> None:
        """I8: what was stored was stored with all its messages, one behind the other."""
        store, at = process.broker.store, offsets[0]
        if self.is_expired(at):
            return  # the answer took so long
        for message, offset in zip_longest(messages, offsets):
            size = int.from_bytes(commit_log(store).view_range(at, 4), "big")
            if message is None or offset != at or message.body not in bytes(commit_log(store).view_range(at, size)):
                self.violation("I8", f"messages from {messages[0].number} on are stored at {offsets}, not in a row")
                return
            at += size

    def check_absent(self, process: Process, messages: list[Message]) -> None:
        """I8: of a batch that was refused nothing is stored."""
        for mapped in commit_log(process.broker.store).queue.files:
            data = bytes(mapped.view[: mapped.wrote_position])
            if any(message.body in data for message in messages):
                self.violation("I8", f"the batch from message {messages[0].number} on was refused, and is stored")

    def _check_topic(self, process: Process, disk: SimDisk, topic: str) -> None:
        """Topics: a restart finds as many queues as clients may be told of, in the saved table or in the log."""
        told = process.broker.topics.select(topic)
        saved = disk.files.get(f"{STORE}/config/topics.json")
        table = json.loads(saved.durable)["topicConfigTable"] if saved else {}
        known = table.get(topic, {}).get("writeQueueNums", 0)
        known = max([known, *(queue.queue_id + 1 for queue in process.broker.store.queues if queue.topic == topic)])
        if told is None or told.write_queue_nums > known:
            self.violation("topics", f"SEND_OK in {told}, but a restart would know {known} queues")

    def _holds(self, node: SimNode, acked: Acked) -> bool:
        """Whether a slave has the record as safe as it said, or had it when it said so."""
        swarm = self.world.swarm
        if acked.offset < self.expired.get(node.name, 0):
            return True
        disks = (node.disk, *node.lost_disks)
        if any(holds(disk, acked, swarm.segment_size, durable=swarm.ack_durable) for disk in disks):
            return True
        base = acked.offset - acked.offset % swarm.segment_size
        at, end = acked.offset - base, acked.offset - base + len(acked.record)
        return any(
            life.said >= acked.offset + len(acked.record) and life.segments.get(base, _NOTHING)[at:end] == acked.record
            for life in self._lives.get(node.name, ())
        )

    def is_shown_safely(self, process: Process, offset: int, record: bytes) -> bool:
        """Whether a node may show this record: it is on its device, or so many slaves have it as SEND_OK asks for."""
        swarm, node = self.world.swarm, process.node
        shown = Acked(_SHOWN, offset, 0, record)
        if offset < self.expired.get(node.name, 0) or holds(node.disk, shown, swarm.segment_size, durable=True):
            return True
        if not (process.is_master and swarm.sync_master):
            return False
        holders = sum(self._holds(other, shown) for other in self.world.nodes.values() if other is not node)
        return holders >= swarm.in_sync_replicas - 1

    def check_prompt(self, burst: list[Message], *, answered_s: float, limit_s: float) -> None:
        """Prompt: while nothing is wrong, every message is SEND_OK as soon as disks and lines allow."""
        for message in burst:
            if message.code != ResponseCode.SUCCESS and message.how != "oneway":
                self.violation("prompt", f"message {message.number} got {message.code}, though nothing was wrong")
                return
        if answered_s > limit_s:
            self.violation("prompt", f"messages from {burst[0].number} on took {answered_s:.3f} s, not {limit_s:.3f} s")

    # ---- at a deletion

    def on_unlinked(self, node: SimNode, process: Process, path: str) -> None:
        """I1: a segment goes when it is durable and dispatched here; see :meth:`on_unlink_begun`, too."""
        if not path.startswith(COMMIT_LOG):
            return
        store, end = process.broker.store, int(path.removeprefix(COMMIT_LOG)) + self.world.swarm.segment_size
        if end - self.world.swarm.segment_size >= store.max_offset:
            return  # made ahead, and not needed
        self.expired[node.name] = max(end, self.expired.get(node.name, 0))
        self.world.journal.mark("segment expired")
        if end > min(store.flushed_offset, store.reput_from_offset):
            self.violation("I1", f"{node.name} deletes {path}, which is not durable or not dispatched")

    def on_unlink_begun(self, node: SimNode, process: Process, path: str) -> None:
        """I1: a segment goes when every slave that follows has it; or the disk is full, then the oldest goes anyway.

        Who connects while the thread is at it comes too late: it would have, too, a moment later.
        """
        if not path.startswith(COMMIT_LOG) or node.disk.faults.full:
            return
        end = int(path.removeprefix(COMMIT_LOG)) + self.world.swarm.segment_size
        connections = process.replication.ha_service.connections.values()
        following = {c.replica.who.address for c in connections if c.session.is_transferring}
        for other in self.world.nodes.values():
            slave = other.process
            if slave is None or other.address not in following or slave.broker.store.max_offset >= end:
                continue
            client = slave.replication.ha_client  # a connection that the master has not missed yet may be another's
            if client is not None and client.info().state is ClientState.TRANSFER:
                self.violation("I1", f"{node.name} deletes {path}, which {other.name} has yet to be sent")

    def is_expired(self, offset: int) -> bool:
        """Whether somebody has deleted the segment of this offset."""
        return offset < max(self.expired.values(), default=0)

    # ---- at a death and a start

    def on_death(self, node: SimNode, process: Process) -> None:
        """Remember what the process had; a process that died while starting had what the one before it left."""
        if not process.recovered:
            return
        dispatch_error = process.broker.store.running_flags.dispatch_error
        if process.broker.fence.bugs or process.replication.ha_service.bugs:
            self.violation(
                "I9", f"{node.name} met a bug that only a fence kept from ending it: see *.broken in its log"
            )
        if isinstance(dispatch_error, CorruptLogError):
            self.violation("I5", f"{node.name} stopped dispatching: {dispatch_error}")
        segments = {
            int(path.removeprefix(COMMIT_LOG)): memoryview(inode.cache)
            for path, inode in node.disk.files.items()
            if path.startswith(COMMIT_LOG)
        }
        end = max(process.broker.store.wrote.value, self._end_of_last_write(node, segments))
        if process.broker.store.write_error is not None:
            end = max([end, *(base + len(data) for base, data in segments.items())])  # unknown what a failed write left
        flushed = process.broker.store.flushed_offset
        if flushed <= min(segments, default=flushed):  # of a new slave, that knows only where its log begins
            flushed = 0
        remains = self._remains[node.name] = Remains(segments, end, flushed, process.said)
        if not self.world.swarm.ack_durable:
            self._lives.setdefault(node.name, []).append(remains)

    def _end_of_last_write(self, node: SimNode, segments: dict[int, memoryview]) -> int:
        """What the process died in may have been written, though it never knew."""
        path, position = node.disk.last_write
        base = int(path.removeprefix(COMMIT_LOG)) if path else -1
        if base not in segments:
            return 0
        ends_with_blank = bytes(segments[base][position - 4 : position]) == _BLANK_MAGIC
        return base + (len(segments[base]) if ends_with_blank else position)

    def on_wiped(self, node: SimNode) -> None:
        """The disk is another one."""
        self._remains.pop(node.name, None)

    def on_failed_over(self) -> None:
        """Another node is master; what consumers saw of unacknowledged messages may be gone (decision 4)."""
        self.visible.forget_unacked({acked.record for acked in self.acked})

    def on_recovered(self, node: SimNode, process: Process) -> None:
        """I3: what recovery leaves is a prefix of what was there, and holds all that was durable."""
        remains = self._remains.get(node.name)
        store = process.broker.store
        if remains is None:
            return
        if store.max_offset > remains.max_offset:
            self.violation("I3", f"{node.name} recovered to {store.max_offset}, but had only {remains.max_offset}")
        if store.max_offset < remains.flushed:
            self.violation("I3", f"{node.name} recovered to {store.max_offset}, but {remains.flushed} was durable")
        if store.max_offset < remains.max_offset:
            self.world.journal.mark("tail cut")
        for mapped in commit_log(store).queue.files:
            end = min(mapped.wrote_position, remains.max_offset - mapped.file_from_offset)
            old = remains.segments.get(mapped.file_from_offset)
            if old is not None and end > 0 and old[:end] != mapped.view[:end]:
                self.violation("I3", f"{node.name} recovered other bytes in segment {mapped.file_from_offset}")
        last = commit_log(store).queue.files[-1] if commit_log(store).queue.files else None
        if last is not None and any(node.disk.files[last.file.path].durable[last.wrote_position :]):
            self.violation("I3", f"{node.name} still has bytes behind the recovered end {store.max_offset}")
        if self._durable_end_differs(node, process):
            self.violation("I3", f"{node.name} believes {store.flushed_offset} is durable; its device lacks some of it")

    def _durable_end_differs(self, node: SimNode, process: Process) -> bool:
        """Whether the device lacks anything below what the process calls flushed."""
        store = process.broker.store
        for mapped in commit_log(store).queue.files:
            inode = node.disk.files[mapped.file.path]
            end = min(mapped.size, store.flushed_offset - mapped.file_from_offset)
            if end > 0 and inode.durable[:end] != inode.cache[:end]:
                return True
        return False

    def on_serving(self, node: SimNode, process: Process) -> None:
        """I1: a master that takes sends has every acknowledged message; one that may lack some serves and refuses."""
        if process.is_master and not process.broker.store.refusal():
            self.check_has_all(node, "takes sends")

    def on_stored(self, process: Process, offset: int) -> None:
        """A send was stored here: in the place of nothing that was acknowledged, or that a peer had said it has.

        What a peer says only now, before the answer, is too late to be heeded: this log did not end at ``offset`` then.
        """
        if not process.has_stored:
            process.has_stored = True
            self.check_has_all(process.node, "stores messages")
        if process.hides_a_doubt:
            self.violation("I1", f"{process.node.name} began empty, and its disk and it do not both say so")
        for peer, told in process.longer_peers.items():
            net, here, there = self.world.net, process.node.address, peer.node.address
            if peer.dead or not net.passes(here, there) or not net.passes(there, here):
                continue
            if ends := [end for own_end, end in told if own_end <= offset < end]:
                self.violation(
                    "I1", f"{process.node.name} stores at {offset}; {peer.node.name} had said it holds {ends[0]}"
                )

    def check_has_all(self, node: SimNode, when: str) -> None:
        """I1: every acknowledged message is in this node's log, or has expired."""
        for acked in self.acked:
            if self.is_expired(acked.offset):
                continue
            if not holds(node.disk, acked, self.world.swarm.segment_size, durable=False):
                self.violation("I1", f"{node.name} {when} without acknowledged message {acked.message.number}")
                return

    def on_crashed(self, node: SimNode, process: Process, error: BaseExceptionGroup[BaseException]) -> None:
        """A process may only end by itself when its disk does not let it live."""
        faulty = node.disk.refused_in == node.disk.epoch
        for leaf in _leaves(error):
            if isinstance(leaf, StoreWriteError | StoreReadError) and faulty:
                continue
            if isinstance(leaf, DivergedLogError) and self.world.swarm.master_forgets:
                self.world.operator.on_refused_beside(leaf)
                continue
            if self.world.swarm.cleans and self.world.swarm.master_forgets and _START_EMPTY in str(leaf):
                self.world.operator.rebuild_forgetful(node)
                continue
            if isinstance(leaf, DivergedLogError) and self.world.operator.expects_divergence(process):
                self.world.operator.rebuild_usurped()
                continue
            kind = "I5" if isinstance(leaf, CorruptLogError) else "crash"
            self.violation(kind, f"{node.name} ended with {leaf!r}")
            self.world.keep_traceback(leaf)

    def check_log_lines(self) -> None:
        """I9: a log that an operator can read: no flood, whatever goes wrong for however long."""
        events = CountingLogger.events
        allowed = (LOG_LINES_AT_ONCE + LOG_LINES_A_SECOND * trio.current_time()) * len(self.world.nodes)
        if events.total() > allowed:
            self.violation("I9", f"{events.total()} log lines, {allowed:.0f} allowed: {events.most_common(3)}")

    # ---- from time to time

    def look(self) -> None:
        """I2, I4, I7: what holds at any moment, with any node up or down."""
        world = self.world
        master = world.master.process
        if master is None or not master.recovered:
            return
        log = master.broker.store
        connections = len(master.replication.ha_service.connections)
        if connections > HA_CONNECTIONS_MAX:
            self.violation("I9", f"{connections} slave connections are kept at once")
        for node in world.nodes.values():
            process = node.process
            if process is None or not process.recovered:
                continue
            self.visible.look(node, process)
            if process.is_master:
                continue
            self._check_slave(node, process, log.flushed_offset if world.swarm.sync_flush else log.max_offset)

    def _check_slave(self, node: SimNode, process: Process, limit: int) -> None:
        slave = process.broker.store
        self.check_gone(node, process)
        may_be_ahead = node.name in self.world.operator.usurped or self.world.swarm.master_forgets
        if slave.max_offset > limit and not may_be_ahead:
            self.violation("I2", f"{node.name} has {slave.max_offset}, but the master's log is sure only up to {limit}")

    def check_gone(self, node: SimNode, process: Process) -> None:
        """I6: a slave that acknowledges what is durable leaves its master when that fails: nobody may count on it."""
        if node.disk.failed_in != node.disk.epoch or not self.world.swarm.ack_durable:
            return
        client = process.replication.ha_client
        if client is None or trio.current_time() < node.disk.failed_at + _LEAVE_S:
            return
        if client.info().state in {ClientState.TRANSFER, ClientState.COMPARING}:
            self.violation("I6", f"{node.name} follows its master, though its disk has failed it")


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
