"""The sweep's table: which system call fails, how, and at which of its calls; and the judge of what came of it."""

import errno
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from rmqha.broker.main import EXIT_FAILED, EXIT_OK, EXIT_STORE_FAILED
from tests.e2e.load import LoadProducer
from tests.e2e.processes import Broker

DISK: Final = {
    "write": ("EIO", "ENOSPC", "EROFS"),  # of topics.json, which is there for the rest
    "rename": ("EIO", "ENOSPC", "EROFS"),
    "openat": ("EIO", "EMFILE", "ENFILE", "EACCES", "ENOSPC", "EROFS", "ENOMEM"),
    "mkdir": ("EIO", "ENOSPC", "EROFS"),
    "fallocate": ("ENOSPC", "EIO", "EFBIG", "EROFS"),
    "ftruncate": ("EIO", "ENOSPC", "EFBIG"),
    "pwritev2": ("EIO", "ENOSPC", "EROFS", "EDQUOT", "EFBIG"),
    "pwrite64": ("EIO", "ENOSPC", "EROFS"),
    "fdatasync": ("EIO", "ENOSPC", "EROFS"),
    "fsync": ("EIO", "ENOSPC", "EROFS"),
    "unlink": ("EIO", "EROFS", "EPERM"),
    "mmap": ("ENOMEM", "EAGAIN", "ENODEV"),
    "pread64": ("EIO",),
    "read": ("EIO",),
    "lseek": ("EIO",),
    "getdents64": ("EIO",),
    "newfstatat": ("EIO", "EACCES"),
    "statfs": ("EIO",),
    "fcntl": ("ENOLCK", "EINTR"),
}
"""Calls on the store's files."""

QUIET: Final = {"newfstatat"}
"""Of these the log need not tell: realpath and mmap of the standard library ask too, and do without the answer."""

NETWORK: Final = {
    "socket": ("EMFILE", "ENOBUFS"),
    "connect": ("ECONNREFUSED", "ETIMEDOUT", "ENETUNREACH"),
    "accept4": ("EPERM", "EMFILE", "ENOMEM", "ECONNABORTED", "EHOSTUNREACH", "ETIMEDOUT"),
    "setsockopt": ("EINVAL", "ENOBUFS"),
    "getpeername": ("ENOTCONN",),
    "sendto": ("EPIPE", "ECONNRESET", "ENOBUFS"),
    "sendmsg": ("EPIPE", "ECONNRESET", "ENOBUFS"),
    "sendfile": ("EIO", "ECONNRESET", "ENOMEM"),
    "epoll_wait": ("EINTR",),
    "clone3": ("EAGAIN", "ENOMEM"),
}
"""Calls of connections, and for threads. Not epoll_ctl and recvfrom: trio makes them for itself as well, on what cannot
fail, and does not outlive it."""

WHEN: Final = ("1", "2", "3", "5", "8", "13", "21", "34", "1+", "5+", "21+")


@dataclass(frozen=True)
class Injection:
    """One fault."""

    call: str
    error: str
    when: str

    def __str__(self) -> str:
        return f"{self.call}-{self.error}-{self.when}"

    def prefix(self, broker: Broker, report: Path) -> list[str]:
        """The command prefix; the process keeps its pid. ``report`` gets a line for each call.

        Each thread's calls are counted by themselves. A worker thread's only socket is the one that wakes the event
        loop, which cannot fail: calls of the network are those of the main thread.
        """
        options = ["-D", "-y", "-qq", "-o", str(report)]
        if self.call in DISK:
            options += ["-f", "--seccomp-bpf", *(f"--trace-path={path}" for path in _store_paths(broker.store))]
        inject = f"inject={self.call}:error={self.error}:when={self.when}"
        return ["strace", *options, "-e", f"trace={self.call}", "-e", inject]


def _store_paths(store: Path) -> Iterator[Path]:
    """Everything a broker touches there in a short run: those that do not exist yet are traced by their name."""
    yield store
    for name in ("lock", "abort", "checkpoint", "config", "commitlog", "consumequeue"):
        yield store / name
    for name in ("topics", "consumerOffset", "subscriptionGroup"):
        yield from (store / "config" / f"{name}.json{suffix}" for suffix in ("", ".tmp"))
    yield from (store / "commitlog" / f"{number << 20:020}" for number in range(200))
    for topic in ("orders", "warm-up"):
        yield store / "consumequeue" / topic
        for queue_id in range(4):
            yield store / "consumequeue" / topic / str(queue_id)
            yield store / "consumequeue" / topic / str(queue_id) / f"{0:020}"


FINAL: Final = {"pwritev2", "fdatasync"}
"""After one of these nothing may be acknowledged any more."""


LATER: Final = {"openat": "8", "mmap": "5", "pwritev2": "5", "fdatasync": "2"}
"""At which call the short form fails these; all others at their first."""


_RARE: Final = {"sendmsg", "sendfile", "mkdir"}
LEFT_OUT: Final = {"master": _RARE, "slave": _RARE | (NETWORK.keys() - {"connect", "sendto", "clone3"})}
"""Calls that a short run on this side hardly makes, or that are the same on both."""


def injections(side: str, *, full: bool) -> list[Injection]:
    """All of the table, or the first error of each call, once."""
    calls = DISK | NETWORK
    if full:
        return [Injection(call, error, when) for call in calls for error in calls[call] for when in WHEN]
    return [Injection(call, calls[call][0], LATER.get(call, "1")) for call in calls if call not in LEFT_OUT[side]]


def injected(report: Path) -> int:
    """How many calls really failed by our hand."""
    return report.read_text(errors="replace").count("(INJECTED)") if report.exists() else 0


class DishonestError(AssertionError):
    """What the judge found."""


def judge(broker: Broker, injection: Injection, *, exit_code: int, count: int) -> str:
    """Say what came of it: "absorbed", "refused", "ended".

    Raises:
        DishonestError: a crash, an exit code that does not fit, or nothing of it in the log.
    """
    output = broker.running.output()
    if "Traceback" in output or exit_code not in (EXIT_OK, EXIT_FAILED, EXIT_STORE_FAILED):
        raise DishonestError(f"{injection}: exit code {exit_code}\n{output[-6_000:]}")
    told = (
        re.search(f"Errno {getattr(errno, injection.error)}\\b", output)
        or os.strerror(getattr(errno, injection.error)) in output
    )
    if injection.call in DISK.keys() - QUIET and count and not told:
        raise DishonestError(f"{injection}: {count} calls failed and the log does not say so\n{output[-6_000:]}")
    if exit_code == EXIT_OK and (has_failed(broker) or (injection.call in FINAL and count)):
        raise DishonestError(f"{injection}: a write failed, and the exit code says it did not\n{output[-6_000:]}")
    if injection.call in NETWORK and exit_code == EXIT_FAILED and "broker.started" in output:
        raise DishonestError(f"{injection}: one connection's failure ended the broker\n{output[-6_000:]}")
    return {EXIT_OK: "absorbed", EXIT_FAILED: "ended", EXIT_STORE_FAILED: "refused"}[exit_code]


def has_failed(broker: Broker) -> bool:
    """Whether the broker has said that it acknowledges nothing any more."""
    return "store.write_failed" in broker.running.output()


async def wait_until(condition: Callable[[], bool], *, timeout_s: float) -> None:
    """Return when it holds, or the time is over: what other processes do offers nothing to wait on."""
    with trio.move_on_after(timeout_s):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.05)


def answers(load: LoadProducer) -> int:
    """How many answers there were so far, of all kinds."""
    return sum(load.codes.values())
