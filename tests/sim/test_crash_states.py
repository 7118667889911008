"""Crash states, exhaustively: whatever a power cut leaves of a recorded run, recovery makes the best of it.

A short run of a real store is recorded change by change. For every prefix of it, and for every subset of the sectors
that were dirty then (12 at most), the device holds exactly that subset; recovery has to find a prefix of the log
that was alive, with everything that was durable, twice the same, and with queues that fit.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.record.message import decode_message
from rmqha.codec.record.scan import scan_records
from rmqha.store.message_store import DefaultMessageStore
from tests.sim import campaign
from tests.sim.mutants import MUTANTS, Mutant
from tests.sim.sim_disk import SECTOR, SimDisk, Step, replay
from tests.store.helpers import SEGMENT, Clock, commit_log, make_store, message, options

SUBSETS_OF_MAX = 12
COMMIT_LOG = "/store/commitlog/"
Act = Callable[[DefaultMessageStore], object]


@pytest.fixture(autouse=True)
def _quiet() -> None:
    campaign.quiet()


class Recording:
    """A trace, and at each length of it how much was durable, as the store said."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.steps: list[Step] = []
        self.flushed: list[tuple[int, int]] = [(0, 0)]
        disk.trace = self.steps

    def watch(self, store: DefaultMessageStore) -> None:
        store.flushed.subscribe(lambda: self.flushed.append((len(self.steps), store.flushed.value)))

    def durable_at(self, length: int) -> int:
        return max(value for steps, value in self.flushed if steps <= length)


async def record(acts: Sequence[Act], *, sync_flush: bool, pause_s: float = 0.02) -> Recording:
    """Run a store on an empty disk, one act after the other, and record all changes."""
    recording = Recording(SimDisk(latency_s=(0.001, 0.001)))
    store = make_store(options(sync_flush=sync_flush), recording.disk.mount(), now_ms=Clock())
    store.load()
    recording.watch(store)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        await trio.sleep(0.01)
        for act in acts:
            act(store)
            await trio.sleep(pause_s)
        nursery.cancel_scope.cancel()
    return recording


def put(*sizes: int, queue_id: int = 0) -> Act:
    properties = b"KEYS\x01" + b"k" * 60
    return lambda store: store.put_messages(
        [message(size=size, queue_id=queue_id, properties=properties) for size in sizes]
    )


def log_of(disk: SimDisk) -> bytes:
    """All written bytes of the log, as processes see them."""
    paths = sorted(path for path in disk.files if path.startswith(COMMIT_LOG))
    return b"".join(bytes(disk.files[path].cache) for path in paths)


def crashes(steps: Sequence[Step], *, every: int = 1) -> Iterator[tuple[int, frozenset[tuple[str, int]]]]:
    """Every prefix with every subset of its dirty sectors that the device may hold."""
    disk = SimDisk()
    for length in range(0, len(steps) + 1, every):
        if length < len(steps) and length and steps[length][0] == "sync" == steps[length - 1][0]:
            continue  # in the middle of one fdatasync: the subsets of its beginning cover that
        disk = replay(steps[:length])
        dirty = disk.dirty_sectors()
        assert len(dirty) <= SUBSETS_OF_MAX, "make the recorded run shorter"
        for size in range(len(dirty) + 1):
            for kept in combinations(dirty, size):
                yield length, frozenset(kept)


def crashed(steps: Sequence[Step], kept: frozenset[tuple[str, int]]) -> SimDisk:
    disk = replay(steps)
    disk.lose_power(lambda path, number, old, new: new if (path, number) in kept else old)
    return disk


def recovered(disk: SimDisk) -> tuple[int, bytes]:
    """Load a store; its end, and its log up to there. Checks that its queues fit."""
    store = make_store(options(), disk.mount(), now_ms=Clock())
    store.load()
    end, log = store.max_offset, b"".join(bytes(m.view[: m.wrote_position]) for m in commit_log(store).queue.files)
    check_queues(store)
    store.close()
    return end, log


def behind(disk: SimDisk, end: int) -> bytes:
    """What the device holds behind the log's end."""
    paths = sorted(path for path in disk.files if path.startswith(COMMIT_LOG))
    start = int(paths[0].removeprefix(COMMIT_LOG)) if paths else 0
    return b"".join(bytes(disk.files[path].durable) for path in paths)[end - start :]


def check_queues(store: DefaultMessageStore) -> None:
    places: dict[int, list[tuple[int, int]]] = {}
    for mapped in commit_log(store).queue.files:
        base, at = mapped.file_from_offset, 0
        end = scan_records(mapped.view, 0, mapped.wrote_position, phy_offset_base=base, file_end=mapped.size).end
        while at < end:
            found = decode_message(mapped.view, at)
            assert found.queue_offset == len(places.setdefault(found.queue_id, []))
            places[found.queue_id].append((base + at, found.store_size))
            at += found.store_size
    for queue in store.queues:
        units = [queue.unit(i) for i in range(queue.max_offset_in_queue)]
        assert [unit[:2] for unit in units if unit] == places.get(queue.queue_id, [])


def check_every_crash(recording: Recording, *, every: int = 1) -> int:
    """Returns how many crash states were recovered from."""
    count = 0
    for length, kept in crashes(recording.steps, every=every):
        alive = log_of(replay(recording.steps[:length]))
        disk = crashed(recording.steps[:length], kept)
        end, log = recovered(disk)
        where = f"after {length} steps with {sorted(kept)}"
        assert end >= recording.durable_at(length), f"{where}: {end} cuts what was durable"
        assert alive.startswith(log), f"{where}: what came back was never there"
        assert recovered(disk) == (end, log), f"{where}: the second recovery finds something else"
        assert not any(behind(disk, end)), f"{where}: bytes behind the end {end} could come back to life"
        disk.lose_power(lambda _path, _number, old, _new: old)
        assert recovered(disk) == (end, log), f"{where}: what recovery found was not durable"
        count += 1
    return count


ROLLS = [put(300, 300), put(700, queue_id=1), put(1500), put(900, 600), put(300, queue_id=1), put(1200)]
EQUAL_SIZES = [put(256, 256, 256), put(256), put(256, 256, queue_id=1), put(256, 256)]


@pytest.mark.parametrize("acts", [ROLLS, EQUAL_SIZES], ids=["rolls", "equal-sizes"])
async def test_with_sync_flush(acts: list[Act], autojump_clock: MockClock) -> None:
    assert check_every_crash(await record(acts, sync_flush=True)) > 60


@pytest.mark.parametrize(
    "acts", [[put(300, 900), put(700), put(1400, 1000)], EQUAL_SIZES], ids=["rolls", "equal-sizes"]
)
async def test_with_async_flush(acts: list[Act], autojump_clock: MockClock) -> None:
    """Everything stays dirty for long: the widest window."""
    assert check_every_crash(await record(acts, sync_flush=False)) > 100


async def test_a_crash_during_recovery(autojump_clock: MockClock) -> None:
    """Recovery is recorded in its turn: wherever it is cut off, the next one ends where it would have ended."""
    first = await record(EQUAL_SIZES, sync_flush=False)
    count = 0
    for length, kept in crashes(first.steps):
        if length < len(first.steps) - 2 or len(kept) not in {1, 3}:
            continue
        base = crashed(first.steps[:length], kept)
        device = {path: bytes(inode.durable) for path, inode in base.files.items()}
        base.trace = list(first.steps[:0])
        end, log = recovered(base)
        for stop in range(len(base.trace) + 1):
            disk = _at(device, base.directories, base.trace[:stop])
            for keep_all in (False, True):
                again = _at(device, base.directories, base.trace[:stop])
                again.lose_power(lambda _path, _number, old, new, keep_all=keep_all: new if keep_all else old)  # type: ignore[misc]
                assert recovered(again) == (end, log), f"cut off after {stop} of {len(base.trace)} steps"
                count += 1
            del disk
    assert count > 100


def _at(device: dict[str, bytes], directories: dict[str, None], steps: Sequence[Step]) -> SimDisk:
    """A disk as it was before a recovery, and what the recovery has done to it so far."""
    before: list[Step] = [("mkdir", path, 0, b"") for path in directories]
    before += [("replace", path, 0, data) for path, data in device.items()]
    return replay([*before, *steps])


@pytest.mark.parametrize(
    "mutant",
    [
        MUTANTS["the tail is cut in memory only"],
        MUTANTS["torn properties are kept"],
        MUTANTS["recovery does not check the CRC"],
        MUTANTS["only the newest segment is flushed"],
    ],
    ids=lambda m: m.name,
)
async def test_these_tests_can_fail(mutant: Mutant, autojump_clock: MockClock) -> None:
    with mutant:
        recordings = [
            await record([put(1400, 700), put(900, 1400)], sync_flush=True),
            await record(EQUAL_SIZES, sync_flush=False),
        ]
        with pytest.raises(AssertionError):
            [check_every_crash(recording) for recording in recordings]


assert SEGMENT % SECTOR == 0
