"""UnitGroup: the units that one round of dispatch adds to one queue, written with one call."""

from typing import Final

import trio

from rmqha.codec.consume_queue import UNIT, UNIT_SIZE
from rmqha.errors import StoreError
from rmqha.store.consume_queue import ConsumeQueue

_FILES_AT_ONCE: Final = 16
_NONE: Final = 1 << 64
"""No record has this number."""


class UnitGroup:
    """The units of one queue in this round; ``next`` is the queue offset the next one must have, if there may be one.

    Attributes:
        next: a number that no record has if the queue has stopped.
    """

    __slots__ = ("_stopped_at", "next", "queue", "units")

    def __init__(self, queue: ConsumeQueue) -> None:
        self.queue = queue
        self.next = queue.max_offset_in_queue
        self.units = bytearray()
        self._stopped_at = 0

    def stop(self) -> None:
        """Nothing fits any more, until ``next`` is set."""
        if self.next != _NONE:
            self._stopped_at, self.next = self.next, _NONE

    @property
    def end(self) -> int:
        """Where the queue ends with these units."""
        return self._stopped_at if self.next == _NONE else self.next

    @property
    def last_ends_at(self) -> int:
        """Where the record of its last unit ends in the log; 0 without any."""
        if not self.units:
            return self.queue.max_physic_offset
        phy_offset, size, _ = UNIT.unpack_from(self.units, len(self.units) - UNIT_SIZE)
        return int(phy_offset + size)

    def append(self) -> bool:
        """Write what fits into the files that are there; whether that was all. Raises StoreWriteError."""
        units = memoryview(self.units)
        while units and (taken := self.queue.append(units)):
            units = units[taken:]
        self.units = bytearray(units)
        return not units


async def write_groups(groups: list[UnitGroup]) -> None:
    """Write every group. The files that are needed for it are made side by side: each waits for the device.

    Raises:
        StoreError: the first that any of them raised.
    """
    errors: list[StoreError] = []

    async def create_and_append(group: UnitGroup) -> None:
        try:
            while not group.append():
                async with files_at_once:
                    await group.queue.create_file_in_thread()
        except StoreError as error:
            errors.append(error)

    lacking: list[UnitGroup] = []
    for group in groups:
        try:
            if not group.append():
                lacking.append(group)
        except StoreError as error:
            errors.append(error)
    if lacking:
        files_at_once = trio.CapacityLimiter(_FILES_AT_ONCE)
        async with trio.open_nursery() as nursery:
            for group in lacking:
                nursery.start_soon(create_and_append, group)
    if errors:
        raise errors[0]
