"""A limit of how large a process's files may be: told before a write fails of which no disk is the cause."""

import errno
import resource
from collections.abc import Callable

import pytest

from rmqha.broker.file_size import why_too_small
from rmqha.broker.main import with_file_size
from rmqha.cli.pages import Page, refusal_of
from rmqha.config import load_config
from rmqha.errors import StoreWriteError

SMALL = {"mappedFileSizeCommitLog": "1048576", "mappedFileSizeConsumeQueue": "2000", "maxHashSlotNum": "100",
         "maxIndexNum": "400"}  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "settings", "said"),
    [
        (None, {}, ""),
        (1 << 30, {}, ""),
        ((1 << 30) - 1, {}, "1,073,741,824 (mappedFileSizeCommitLog)"),
        (1 << 20, SMALL, ""),
        (524_288, SMALL, "1,048,576 (mappedFileSizeCommitLog)"),
        (4 << 20, {"mappedFileSizeCommitLog": "1048576"}, "6,000,000 (mappedFileSizeConsumeQueue)"),
        (4 << 20, {"mappedFileSizeCommitLog": "1048576"}, "420,000,040 (files of maxHashSlotNum and maxIndexNum)"),
        (4 << 20, {"enableDLegerCommitLog": "true"}, "1,073,741,824 (mappedFileSizeForEntryData)"),
    ],
)
def test_files_that_would_be_larger_are_named(limit: int | None, settings: dict[str, str], said: str) -> None:
    member = {"dLegerGroup": "g", "dLegerSelfId": "n0", "dLegerPeers": "n0-127.0.0.1:40911"}
    config = load_config(None, settings | (member if "enableDLegerCommitLog" in settings else {}))
    why = why_too_small(config, limit)
    assert bool(why) == bool(said)
    assert said in why


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], list[tuple[int, int]]]:
    def make(soft: int, hard: int) -> list[tuple[int, int]]:
        made = list[tuple[int, int]]()
        monkeypatch.setattr(resource, "getrlimit", lambda _which: (soft, hard))
        monkeypatch.setattr(resource, "setrlimit", lambda _which, limits: made.append(limits))
        return made

    return make


def test_a_start_raises_the_limit_and_says_what_is_left_of_it(
    limits: Callable[[int, int], list[tuple[int, int]]],
) -> None:
    made = limits(1024, resource.RLIM_INFINITY)
    assert with_file_size(load_config(None, {})).notes == ()
    assert made == [(resource.RLIM_INFINITY, resource.RLIM_INFINITY)]
    limits(1024, 1024)
    (note,) = with_file_size(load_config(None, {})).notes
    assert note.startswith("this process may make no file larger than 1,024 bytes (ulimit -f, LimitFSIZE=)")


def test_a_write_that_the_limit_ends_sends_nobody_to_the_disk() -> None:
    error = StoreWriteError(OSError(errno.EFBIG, "File too large"), operation="create", path="/store/1")
    assert "(errno 27: a limit of this process: ulimit -f, LimitFSIZE=)" in str(error)
    told = refusal_of({"write_refusal": str(error), "needs_restart": True})
    assert "Repair the disk" not in told
    assert "Raise that limit, then restart this broker" in told
    assert told.endswith(Page.WRITE_FAILED)
