"""What is how old, where the wall clock jumps and the one that counts does not."""

import random
from dataclasses import replace
from typing import Any, Final

import pytest
import structlog
import trio
from trio.testing import MockClock

from rmqha.store.expiry_clock import ExpiryClock
from tests.settings import clean_options
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import SEGMENT, Clock, commit_log, dispatched, message, put, running

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
LOOKS_EVERY_MS: Final = 10_000


class Machine:
    """Both clocks, and looks at them every ten seconds, as the cleaner does."""

    def __init__(self, mock_clock: MockClock) -> None:
        self.wall = Clock()
        self.steady = mock_clock
        self.clock = ExpiryClock(self.wall)
        self.clock.look()

    def pass_ms(self, ms: int) -> None:
        for _ in range(0, ms, LOOKS_EVERY_MS):
            self.wall.now_ms += LOOKS_EVERY_MS
            self.steady.jump(LOOKS_EVERY_MS / 1000)
            self.clock.look()

    def jump(self, ms: int) -> None:
        self.wall.now_ms += ms
        self.clock.look()

    def age(self, written_ms: int) -> float:
        return self.clock.age_ms(written_ms)


@pytest.fixture
async def machine(mock_clock: MockClock) -> Machine:
    return Machine(mock_clock)


async def test_while_nothing_jumps_age_is_what_the_wall_clock_says(mock_clock: MockClock, machine: Machine) -> None:
    written = machine.wall.now_ms
    before_the_start = written - 3 * DAY
    machine.pass_ms(HOUR)
    assert (machine.age(written), machine.age(before_the_start)) == (HOUR, 3 * DAY + HOUR)
    assert machine.clock.jumped_ms == 0


async def test_what_was_written_before_a_jump_ages_by_the_time_that_passed(
    mock_clock: MockClock, machine: Machine
) -> None:
    before_the_start, written = machine.wall.now_ms - HOUR, machine.wall.now_ms
    machine.pass_ms(HOUR)
    machine.jump(6 * DAY)
    after = machine.wall.now_ms
    machine.pass_ms(HOUR)
    assert [machine.age(at) for at in (before_the_start, written, after)] == [3 * HOUR, 2 * HOUR, HOUR]
    assert machine.clock.jumped_ms == 6 * DAY


async def test_what_was_written_between_a_jump_and_the_look_that_sees_it_is_of_after_the_jump(
    mock_clock: MockClock, machine: Machine
) -> None:
    """It was of no time at all: the next jump counted for it, and it went days too early."""
    machine.wall.now_ms += DAY
    written = machine.wall.now_ms + LOOKS_EVERY_MS // 2
    machine.pass_ms(HOUR)
    machine.jump(6 * DAY)
    assert machine.age(written) == HOUR - LOOKS_EVERY_MS // 2


async def test_jumps_add_up_and_each_counts_for_what_was_before_it(mock_clock: MockClock, machine: Machine) -> None:
    first = machine.wall.now_ms
    machine.jump(2 * DAY)
    second = machine.wall.now_ms
    machine.pass_ms(HOUR)
    machine.jump(5 * DAY)
    assert [machine.age(at) for at in (first, second)] == [HOUR, HOUR]
    assert machine.clock.jumped_ms == 7 * DAY


@pytest.mark.parametrize("back", [2 * DAY, 6 * DAY, 9 * DAY])
async def test_a_clock_that_is_set_back_takes_jumps_back(mock_clock: MockClock, machine: Machine, back: int) -> None:
    """And makes nothing older; what it dates later than itself is kept for as long."""
    written = machine.wall.now_ms
    machine.jump(6 * DAY)
    while_wrong = machine.wall.now_ms
    machine.jump(-back)
    machine.pass_ms(HOUR)
    assert machine.clock.jumped_ms == max(0, 6 * DAY - back)
    assert machine.age(written) == HOUR - max(0, back - 6 * DAY)
    assert machine.age(while_wrong) == HOUR - back


async def test_of_two_jumps_the_later_is_taken_back_first(mock_clock: MockClock, machine: Machine) -> None:
    first = machine.wall.now_ms
    machine.jump(2 * DAY)
    second = machine.wall.now_ms
    machine.jump(5 * DAY)
    machine.jump(-5 * DAY)
    machine.pass_ms(HOUR)
    assert [machine.age(at) for at in (first, second)] == [HOUR, HOUR]


async def test_a_clock_that_hears_the_time_late_keeps_nothing_for_years(
    mock_clock: MockClock, machine: Machine
) -> None:
    """A machine that began in 1970: files of the years before are dated right, and expire as ever."""
    today = machine.wall.now_ms
    machine.wall.now_ms = 0
    machine.clock = ExpiryClock(machine.wall)
    machine.pass_ms(HOUR)
    machine.jump(today - machine.wall.now_ms)
    assert machine.age(today - 3 * DAY) == 3 * DAY
    assert machine.age(HOUR // 2) == HOUR // 2, "written by the wrong clock, half an hour ago"


async def test_a_clock_that_is_kept_right_jumps_nowhere(mock_clock: MockClock, machine: Machine) -> None:
    written = machine.wall.now_ms
    with structlog.testing.capture_logs() as lines:
        for _ in range(60):
            machine.pass_ms(MINUTE)
            machine.jump(MINUTE - 1)
    assert (machine.age(written), machine.clock.jumped_ms, lines) == (120 * MINUTE - 60, 0, [])


async def test_many_jumps_are_kept_in_little(mock_clock: MockClock, machine: Machine) -> None:
    """Those of long ago are taken together, which makes nothing older."""
    times = list[int]()
    for _ in range(1000):
        times.append(machine.wall.now_ms)
        machine.jump(HOUR)
    assert len(machine.clock._epochs) <= 256
    assert machine.clock.jumped_ms == 1000 * HOUR
    assert all(-8 * HOUR < machine.age(at) <= 0 for at in times)


async def test_a_clock_that_is_set_back_and_right_again_jumped_nowhere(mock_clock: MockClock, machine: Machine) -> None:
    """Segments of before stayed twice as long, and the status told of a jump that there was not."""
    old, younger = machine.wall.now_ms - 71 * HOUR, machine.wall.now_ms - HOUR
    machine.jump(-70 * HOUR)
    machine.pass_ms(MINUTE)
    machine.jump(70 * HOUR)
    assert machine.clock.jumped_ms == 0
    assert [machine.age(at) for at in (old, younger)] == [71 * HOUR + MINUTE, HOUR + MINUTE]


@pytest.mark.parametrize("step_ms", [90_000, 10 * MINUTE])
async def test_steps_each_hour_keep_nothing_for_much_longer(
    mock_clock: MockClock, machine: Machine, step_ms: int
) -> None:
    """A machine with a slow clock that is stepped, or one that is paused for its snapshot, for a year."""
    machine.clock = ExpiryClock(machine.wall, kept_ms=72 * HOUR)
    machine.clock.look()
    for _ in range(24 * 365):
        machine.wall.now_ms += HOUR - step_ms
        mock_clock.jump((HOUR - step_ms) / 1000)
        machine.clock.look()
        machine.jump(step_ms)
    assert len(machine.clock._epochs) < 100
    ages = {at: machine.age(machine.wall.now_ms - at * HOUR) / (HOUR - step_ms) for at in range(1, 72)}
    assert all(at - 1 <= age <= at + 1 for at, age in ages.items())


@pytest.mark.parametrize("seed", range(40))
async def test_whatever_the_clock_does_nothing_is_older_than_it_is(
    mock_clock: MockClock, machine: Machine, seed: int
) -> None:
    """Nor than the wall clock says; nor kept for longer than by all jumps ahead together."""
    chance = random.Random(seed)
    files, passed_ms, ahead_ms = list[tuple[int, int]](), 0, 0
    for _ in range(60):
        way = chance.random()
        if way < 0.35:
            files.append((machine.wall.now_ms, passed_ms))
        elif way < 0.7:
            ms = chance.choice([10_000, 10 * MINUTE, HOUR])
            machine.wall.now_ms += ms
            mock_clock.jump(ms / 1000)
            machine.clock.look()
            passed_ms += ms
        else:
            ms = chance.choice([-1, 1]) * chance.choice([61_000, 10 * MINUTE, HOUR, DAY, 3 * DAY, 6 * DAY])
            machine.jump(ms)
            ahead_ms += max(0, ms)
        for written_ms, at_ms in files:
            age_ms, true_ms, wall_ms = machine.age(written_ms), passed_ms - at_ms, machine.wall.now_ms - written_ms
            assert min(true_ms, wall_ms) - ahead_ms <= age_ms <= min(true_ms, wall_ms)


async def test_a_jump_is_told_once(mock_clock: MockClock, machine: Machine) -> None:
    with structlog.testing.capture_logs() as lines:
        machine.jump(6 * DAY)
        machine.pass_ms(HOUR)
    assert [(line["event"], line["by_s"]) for line in lines] == [("clock.jumped", 6 * 86_400)]


async def five_segments(store: Any) -> None:
    await put(store, *[message(size=1800) for _ in range(10)])
    await store.flush_now(store.max_offset)
    await dispatched(store)
    assert len(commit_log(store).queue.files) == 5


async def test_a_clock_that_jumps_at_each_look_fills_no_log(mock_clock: MockClock, machine: Machine) -> None:
    """A member of a group looks ten times a second."""
    with structlog.testing.capture_logs() as lines:
        for _ in range(1000):
            machine.jump(DAY)
            machine.jump(-DAY)
            mock_clock.jump(0.1)
    assert 1 <= len(lines) < 250
    assert len(machine.clock._epochs) <= 256


@pytest.mark.parametrize("is_right_again", [False, True])
async def test_segments_of_minutes_outlive_a_jump(autojump_clock: MockClock, *, is_right_again: bool) -> None:
    """At any hour of deleteWhen, and on a disk that is rather full; an hour later they go."""
    clock = Clock()
    disk = SimDisk(now_ms=clock, latency_s=(0, 0)).mount()
    options = replace(clean_options(delete_when=tuple(range(24))), file_reserved_time_s=3600)
    async with running(disk, now_ms=clock, clean=options) as store:
        store.cleaner.check_disk()
        await five_segments(store)
        clock.now_ms += 6 * DAY
        assert await store.cleaner.clean() == 0
        if is_right_again:
            clock.now_ms -= 6 * DAY
        for _ in range(59):
            assert await store.cleaner.clean() == 0
            clock.now_ms += MINUTE
            await trio.sleep(60)
        assert commit_log(store).min_offset == 0
        clock.now_ms += MINUTE
        await trio.sleep(60)
        await store.cleaner.clean()
        assert commit_log(store).min_offset == 4 * SEGMENT
