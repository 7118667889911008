"""ScheduleMessageService: delivers delayed messages when their time has come. The master alone does.

A delivery counts when it is in the log, and is saved as such when it is settled there
(:class:`~rmqha.broker.schedule.delay_offsets.DelayOffsets`): none is lost, whatever happens, and some may come twice.

Source: spec: remoting §2.4, commitlog §2.7, §2.10; rocketmq-all-4.9.8 ScheduleMessageService.java.
"""

from collections.abc import Callable, Sequence
from typing import Final

import structlog
import trio

from rmqha.broker.puts.internal_puts import InternalPuts
from rmqha.broker.schedule.delay_offsets import DelayOffsets
from rmqha.broker.schedule.deliver_delayed_message import DeliverDelayedMessageTask
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.codec.delayed_message import delay_level2_queue_id
from rmqha.codec.record.layout import SCHEDULE_TOPIC
from rmqha.store.message_store import DefaultMessageStore

logger = structlog.get_logger()

_FLUSHED_WITHIN_S: Final = 0.25
"""A quarter of the shortest delay there is."""


class ScheduleMessageService:
    """One object a broker, and one task a level; for one that is configured no more, if messages wait there."""

    def __init__(
        self,
        store: DefaultMessageStore,
        offsets: DelayOffsets,
        topics: TopicConfigManager,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        """Nothing is delivered yet.

        Args:
            store: with the messages that wait.
            offsets: how far each level is delivered.
            topics: to one that was deleted nothing is delivered.
            now_ms: the door to wall-clock time.
        """
        self._store: Final = store
        self._offsets: Final = offsets
        self._topics: Final = topics
        self._delay_levels_ms: Final[Sequence[int]] = store.options.delay_levels_ms
        self._now_ms: Final = now_ms
        self._leading = trio.CancelScope()
        self._role_changed = trio.Event()
        self._arrived: Final = dict[int, trio.Event]()
        """Of the queues that have a task."""
        self._others: Final = set[int]()
        """Queues that may need one."""
        self._taken_to = 0
        """Where what came from a peer ended when this leadership began."""
        self._outdated = False
        self._tasks: Final = list[DeliverDelayedMessageTask]()
        self._delivering = 0
        """Tasks that are not idle: what they put would not count if they were cancelled."""
        store.role.subscribe(self._on_role)

    def on_arrival(self, topic: str, queue_id: int) -> None:
        """A queue has more messages."""
        if topic != SCHEDULE_TOPIC:
            return
        if (arrived := self._arrived.get(queue_id)) is not None:
            arrived.set()
        else:
            self._others.add(queue_id)

    def running_stats(self) -> dict[str, str]:
        """What the runtime table (28) says of each level: how far it is delivered, and how many messages there were."""
        return {f"scheduleMessageOffset_{level}": f"{offset},{self._end_of(level)}" for level, offset in self._offsets}

    @property
    def waiting(self) -> dict[int, int]:
        """By level, how many messages are not delivered; of one that is configured no more only if there are some."""
        configured = range(1, len(self._delay_levels_ms) + 1)
        levels = dict.fromkeys(configured, 0) | dict(self._offsets)
        counts = {level: self._count_waiting(level, offset) for level, offset in levels.items()}
        return {level: count for level, count in counts.items() if count or level in configured}

    def _count_waiting(self, level: int, offset: int) -> int:
        """What has expired is passed over, and does not count."""
        first, end = self._store.queues.readable_range_of(SCHEDULE_TOPIC, delay_level2_queue_id(level))
        return max(0, end - max(first, offset))

    def _end_of(self, level: int) -> int:
        return self._store.get_max_offset_in_queue(SCHEDULE_TOPIC, delay_level2_queue_id(level))

    @property
    def overdue_s(self) -> float:
        """For how long the message that is due since longest has been due; 0 if none is, and where nobody delivers."""
        return max((task.overdue_s for task in self._tasks), default=0.0)

    def _on_role(self) -> None:
        """At once: what a task is about to count may be cut from the log."""
        self._offsets.forget_unsettled()
        self._leading.cancel()
        self._role_changed.set()

    async def run(self, puts: InternalPuts, store_host_raw: bytes, opened: trio.Event) -> None:
        """Deliver while this broker is the master, until cancelled.

        Args:
            puts: take what is delivered.
            store_host_raw: this broker's address, of which message ids are made.
            opened: nothing is missing here that other nodes hold.
        """
        await opened.wait()
        while True:
            self._role_changed = trio.Event()
            if not self._store.role.is_master:
                await self._role_changed.wait()
            elif self._is_incomplete:
                self._flush()
                await trio.sleep(_FLUSHED_WITHIN_S)
            else:
                with trio.CancelScope() as self._leading:
                    await self._deliver(puts, store_host_raw)
                self._tasks.clear()

    @property
    def _is_incomplete(self) -> bool:
        """Whether messages come from a peer, or what was delivered of them does not count yet."""
        return self._store.running_flags.is_peer_longer or self._offsets.has_unsettled

    def _is_outdated(self) -> bool:
        """Whether a peer's log has come, or comes: its messages are delivered from where that peer says."""
        is_taking = self._store.taken_to != self._taken_to or self._store.running_flags.is_peer_longer
        self._outdated = self._outdated or is_taking
        return self._outdated

    async def _deliver(self, puts: InternalPuts, store_host_raw: bytes) -> None:
        self._taken_to, self._outdated = self._store.taken_to, False
        self._offsets.begin(len(self._delay_levels_ms))
        self._arrived.clear()
        async with trio.open_nursery() as nursery:

            def start(level: int, delay_ms: int) -> None:
                task = DeliverDelayedMessageTask(
                    level,
                    delay_ms,
                    store=self._store,
                    offsets=self._offsets,
                    topics=self._topics,
                    puts=puts,
                    store_host_raw=store_host_raw,
                    now_ms=self._now_ms,
                )
                self._arrived[delay_level2_queue_id(level)] = trio.Event()
                self._tasks.append(task)
                nursery.start_soon(self._run, task, self._leading)

            for number, delay_ms in enumerate(self._delay_levels_ms):
                start(number + 1, delay_ms)
            self._others.update(await self._store.queues.ids_of_in_turns(SCHEDULE_TOPIC))
            await self._keep_on(start)

    async def _keep_on(self, start: Callable[[int, int], None]) -> None:
        """Start the tasks of levels that are gone when they are needed, and have messages flushed; until cancelled."""
        while True:
            for queue_id in sorted(self._others - self._arrived.keys()):
                self._start_gone(queue_id + 1, start)
            self._others.clear()
            if self._is_outdated() and not self._delivering:
                self._leading.cancel()
            await trio.sleep(_FLUSHED_WITHIN_S)
            self._flush()

    def _start_gone(self, level: int, start: Callable[[int, int], None]) -> None:
        """Have messages that wait at a level that is configured no more delivered when they are due.

        How long its delay was nobody knows: what is due later than files are kept a clock said that has been set back.
        """
        queue_end = self._store.next_queue_offset(SCHEDULE_TOPIC, delay_level2_queue_id(level))
        waiting = queue_end - self._offsets.offset_of(level)
        if waiting > 0:
            facts = {"delay_level": level, "waiting": waiting, "levels": len(self._delay_levels_ms)}
            logger.warning("schedule.level_gone", **facts, next="they are delivered when they are due")
            kept_ms = round(self._store.options.clean.file_reserved_time_s * 1000)
            start(level, max([kept_ms, *self._delay_levels_ms]))

    def _flush(self) -> None:
        """Until a message is flushed nobody knows when it is due, nor does its delivery count.

        With ASYNC_FLUSH that may take many seconds, unless somebody asks for it.
        """
        store = self._store
        if store.flushed_offset < store.max_offset and (
            self._offsets.has_unsettled
            or any(
                (end := store.next_queue_offset(SCHEDULE_TOPIC, queue_id))  # most levels are never used
                and end > store.get_max_offset_in_queue(SCHEDULE_TOPIC, queue_id)
                for queue_id in self._arrived
            )
        ):
            store.request_flush()

    async def _run(self, task: DeliverDelayedMessageTask, leading: trio.CancelScope) -> None:
        queue_id = delay_level2_queue_id(task.delay_level)
        while True:
            self._arrived[queue_id] = arrived = trio.Event()
            self._delivering += 1
            try:
                idle_s = await task.deliver_due(
                    is_leading=lambda: not leading.cancel_called, is_outdated=self._is_outdated
                )
            finally:
                self._delivering -= 1
            if self._outdated:
                await trio.sleep_forever()
            with trio.move_on_after(idle_s):
                await arrived.wait()
