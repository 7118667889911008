"""One command of `rmqha`, run to its end."""

import sys

import trio

from tests.e2e.processes import CHECKOUT


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
