"""One command of `rmqha`, run to its end."""

import sys

import trio

from tests.e2e.processes import CHECKOUT, Broker


async def rmqha(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
    """Run one command to its end; returns exit code, stdout and stderr."""
    done = await trio.run_process(
        [sys.executable, "-m", "rmqha", *arguments],
        stdin=stdin.encode(),
        capture_stdout=True,
        capture_stderr=True,
        check=False,
        cwd=CHECKOUT,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


async def wait_status(broker: Broker, code: int, *, says: str = "", timeout_s: float = 120) -> None:
    """Wait until ``status`` ends with this exit code, and its output holds what it ``says``."""
    found: tuple[int, str, str] | None = None
    with trio.move_on_after(timeout_s):
        while found is None or found[0] != code or says not in found[1]:
            found = await rmqha("status", "-b", broker.address)
        return
    raise AssertionError(f"no exit code {code} with {says!r} within {timeout_s} s, but {found}")
