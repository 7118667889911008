"""Flags: the first error is final and said once; disk-full comes and goes."""

import errno

import structlog
import trio
from trio.testing import MockClock

from rmqha.errors import CorruptLogError, StoreError, StoreWriteError
from rmqha.store.running_flags import DISK_FULL, NOT_WRITEABLE, WRITE_LOGICS_QUEUE_ERROR, RunningFlags


def failure(number: int) -> StoreWriteError:
    return StoreWriteError(OSError(number, "no"), operation="pwrite", path="/log/0")


def test_a_fresh_store_refuses_nothing() -> None:
    flags = RunningFlags()
    assert (flags.is_writeable, flags.refusal(), flags.bits) == (True, "", 0)


def test_the_first_write_error_is_kept_told_and_logged_once() -> None:
    flags = RunningFlags()
    told: list[StoreWriteError] = []
    flags.on_write_error.append(told.append)
    first = failure(errno.EIO)
    with structlog.testing.capture_logs() as logs:
        flags.fail(first)
        flags.fail(failure(errno.ENOSPC))
    assert (told, flags.write_error, flags.bits) == ([first], first, NOT_WRITEABLE)
    assert logs == [
        {
            "event": "store.write_failed",
            "log_level": "error",
            "reason": "pwrite failed on /log/0: no (errno 5)",
            "errno": errno.EIO,
        }
    ]
    assert not flags.is_writeable
    assert flags.refusal() == "the store is not writable: pwrite failed on /log/0: no (errno 5)"


def test_the_first_dispatch_error_is_kept() -> None:
    flags = RunningFlags()
    first = CorruptLogError(7, "bad")
    flags.fail_dispatch(first)
    flags.fail_dispatch(CorruptLogError(8, "worse"))
    assert (flags.dispatch_error, flags.bits, flags.is_writeable) == (first, WRITE_LOGICS_QUEUE_ERROR, False)
    assert "offset 7: bad" in flags.refusal()
    assert str(flags.final_error) == str(first)
    flags.fail(failure(errno.EROFS))
    assert flags.final_error is flags.write_error


async def test_a_full_disk_is_waited_for(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    flags = RunningFlags()
    flags.set_disk_full(False)
    await flags.wait_disk_not_full()
    with structlog.testing.capture_logs() as logs:
        flags.set_disk_full(True)
        flags.set_disk_full(True)
        assert (flags.bits, flags.is_writeable, flags.refusal()) == (DISK_FULL, False, "the disk is too full")
        with trio.move_on_after(5) as patience:
            await flags.wait_disk_not_full()
        assert patience.cancelled_caught
        flags.set_disk_full(False)
    await flags.wait_disk_not_full()
    assert ([log["full"] for log in logs], flags.bits) == ([True, False], 0)


def test_after_a_final_dispatch_error_nothing_is_released() -> None:
    flags = RunningFlags()
    flags.hold_dispatch(StoreError("no space"))
    flags.fail_dispatch(StoreError("broken"))
    flags.release_dispatch()
    assert not flags.is_writeable
    assert "broken" in flags.refusal()
