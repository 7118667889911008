"""The sweep's table: which system call fails, how, when, at which of its calls; and the judge of what came of it."""

import errno
import os
import re
from dataclasses import dataclass
from typing import Final, Literal

from rmqha.exit_codes import EXIT_FAILED, EXIT_OK, EXIT_REPLICATION_ENDED, EXIT_STORE_FAILED

Phase = Literal["running", "start", "stop"]
"""What the broker is doing: replicating under load, starting under load, or draining after SIGTERM."""

DISK: Final = {
    "pwrite64": ("EIO", "ENOSPC", "EROFS", "EDQUOT", "EFBIG"),
    "fdatasync": ("EIO", "ENOSPC", "EROFS"),
    "fsync": ("EIO", "ENOSPC", "EROFS"),
    "openat": ("EIO", "EMFILE", "ENFILE", "EACCES", "ENOSPC", "EROFS", "ENOMEM"),
    "fallocate": ("ENOSPC", "EIO", "EFBIG", "EROFS"),
    "ftruncate": ("EIO", "ENOSPC", "EFBIG"),
    "mmap": ("ENOMEM", "EAGAIN", "ENODEV"),
    "fcntl": ("ENOLCK", "EMFILE"),
    "mkdir": ("EIO", "ENOSPC", "EROFS"),
    "write": ("EIO", "ENOSPC", "EROFS"),
    "rename": ("EIO", "ENOSPC", "EROFS"),
    "unlink": ("EIO", "EROFS", "EPERM"),
    "pread64": ("EIO",),
    "read": ("EIO",),
    "lseek": ("EIO",),
    "getdents64": ("EIO",),
    "newfstatat": ("EIO", "EACCES"),
    "statfs": ("EIO",),
    "close": ("EIO",),
}
"""Calls on the store's files, made by any thread."""

SOCKETS: Final = {
    "recvfrom": ("ECONNRESET", "ETIMEDOUT", "ENOMEM"),
    "sendto": ("EPIPE", "ECONNRESET", "ENOBUFS"),
    "sendfile": ("EIO", "ECONNRESET", "ENOMEM"),
    "epoll_ctl": ("ENOMEM", "ENOSPC"),
}
"""Calls on the connections to clients and to the peer. (trio's own wake-up socket is none of them: it cannot fail.)"""

PROCESS: Final = {
    "accept4": ("EPERM", "EMFILE", "ENOMEM", "ECONNABORTED", "EHOSTUNREACH", "ETIMEDOUT"),
    "setsockopt": ("EINVAL", "ENOBUFS"),
    "epoll_wait": ("EINTR",),
    "socket": ("EMFILE", "ENOBUFS"),
    "connect": ("ECONNREFUSED", "ETIMEDOUT", "ENETUNREACH"),
}
"""Calls of the main thread, whatever they are about."""

THREADS: Final = {"clone3": ("EAGAIN", "ENOMEM")}
ERRORS: Final = DISK | SOCKETS | PROCESS | THREADS
CALLS: Final[dict[Phase, tuple[str, ...]]] = {
    "running": (
        *("pwrite64", "fdatasync", "fsync", "openat", "fallocate", "ftruncate", "mmap", "fcntl", "mkdir", "write"),
        *("rename", "newfstatat", "close", *SOCKETS, "accept4", "setsockopt", "epoll_wait"),
    ),
    "start": (
        *("fsync", "fdatasync", "openat", "mmap", "fcntl", "read", "lseek", "getdents64", "newfstatat", "statfs"),
        *("pread64", "pwrite64", "unlink", "setsockopt", "epoll_wait", "socket", "connect", "clone3"),
    ),
    "stop": ("fsync", "fdatasync", "openat", "unlink", "close"),
}
"""What strace counted under load with frequent changes of files, at a recovery, and at an end."""

WHEN: Final[dict[Phase, tuple[str, ...]]] = {"running": ("1", "4", "1+"), "start": ("1", "3"), "stop": ("1", "2")}
OFTEN: Final = {"pwrite64", "fdatasync", "recvfrom", "sendto", "epoll_wait"}
WHEN_OFTEN: Final = ("34", "89", "5+")
PASSING: Final = {"EINTR", "EPERM", "ECONNABORTED", "EHOSTUNREACH"}
"""Errors that no call gets for ever: each of ``accept`` takes its connection with it."""

MASTER_ONLY: Final = {"sendfile", "setsockopt"}
SLAVE_ONLY: Final = {"connect"}

FINAL: Final = {"pwrite64", "fdatasync"}
"""After one of these nothing may be acknowledged any more."""

_EXIT_CODES: Final = (None, EXIT_OK, EXIT_FAILED, EXIT_STORE_FAILED, EXIT_REPLICATION_ENDED)

QUIET: Final = {"newfstatat", "close"}
"""Of these the log need not tell: the standard library asks too, and does without the answer; and what was written is
made durable by a sync, not by closing."""


MAKES_ROOM: Final = {"EMFILE", "ENFILE"}
"""Met by closing other files: nothing is lacking then, and there is nothing to tell."""

LACKING: Final = {"ENOSPC", "EDQUOT"}
"""In a queue's file, which is sparse, they hold dispatch until there is space; the log's files have theirs already."""


@dataclass(frozen=True)
class Injection:
    """One fault: the n-th call of a thread from the time the tracer is there, or with ``+`` each from then on."""

    phase: Phase
    call: str
    error: str
    when: str

    def __str__(self) -> str:
        return f"{self.phase}-{self.call}-{self.error}-{self.when}"


def injections(side: str, *, full: bool) -> list[Injection]:
    """All of the table for this side, or the first error of each call, once.

    In the short form only the store's calls of a running broker fail on both sides, all others on one.
    """
    elsewhere = SLAVE_ONLY if side == "master" else MASTER_ONLY
    found: list[Injection] = []
    for phase, calls in CALLS.items():
        for call in (call for call in calls if call not in elsewhere):
            when = WHEN[phase] + (WHEN_OFTEN if phase == "running" and call in OFTEN else ())
            cases = [Injection(phase, call, error, n) for error in ERRORS[call] for n in when]
            cases = [case for case in cases if not (case.error in PASSING and "+" in case.when)]
            found += cases if full else cases[: _is_in_short_form(side, phase, call)]
    return found


def _is_in_short_form(side: str, phase: Phase, call: str) -> bool:
    if phase != next(phase for phase in CALLS if call in CALLS[phase]):
        return False  # it fails in an earlier one
    if (phase == "running" and call in DISK) or call in MASTER_ONLY | SLAVE_ONLY:
        return True
    return side == ("master", "slave")[sorted(ERRORS).index(call) % 2]


class DishonestError(AssertionError):
    """What the judge found."""


def is_told(injection: Injection, text: str) -> bool:
    """Whether a log or a status names the error."""
    number = getattr(errno, injection.error)
    return re.search(f"Errno {number}\\b", text) is not None or os.strerror(number) in text


def has_failed(output: str) -> bool:
    """Whether a broker has said that its store takes nothing any more, or that it dispatches nothing any more."""
    return "store.write_failed" in output or "reput_message_service.failed" in output


def judge(injection: Injection, output: str, *, exit_code: int | None, count: int) -> str:
    """Say what came of it: "absorbed", "refused", "ended". ``exit_code`` None: it runs on.

    Raises:
        DishonestError: a crash, an exit code that does not fit, or a failed write that changes nothing.
    """
    failed = has_failed(output)
    tail = f"{output[-6_000:]}\nexit code {exit_code}, {count} calls failed"
    if "Traceback" in output or exit_code not in _EXIT_CODES:
        raise DishonestError(f"{injection}: a crash\n{tail}")
    held = injection.error in LACKING and "reput_message_service.held" in output
    if count and injection.call in FINAL and not (failed or held or exit_code == EXIT_FAILED):
        raise DishonestError(f"{injection}: a write failed, and the broker goes on\n{tail}")
    if failed and exit_code == EXIT_OK:
        raise DishonestError(f"{injection}: a write failed, and the exit code says it did not\n{tail}")
    served = injection.phase != "start" or "broker.started" in output
    if injection.call in SOCKETS | PROCESS and (failed or (exit_code == EXIT_FAILED and served)):
        raise DishonestError(f"{injection}: one connection's failure ended the broker\n{tail}")
    if exit_code == EXIT_FAILED:
        return "ended"
    return "refused" if failed or exit_code == EXIT_REPLICATION_ENDED else "absorbed"
