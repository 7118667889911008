"""What the client finds around it: the caller's logging and event loop."""

import logging
from typing import Final

import trio

from rmqha.errors import MQClientError

logger: Final = logging.getLogger("rmqha.client")
"""Warnings go where the caller's own go. What a peer said is logged with ``%r``, so that it cannot forge a line."""


def check_trio_runs(opened: str, plain: str) -> None:
    """Refuse to open a client for trio where another event loop runs, or none.

    Args:
        opened: the function that was called.
        plain: the class that does the same without trio.

    Raises:
        MQClientError: trio does not run here.
    """
    if not trio.lowlevel.in_trio_run():
        raise MQClientError(
            f"{opened} needs trio's event loop, which does not run here: under asyncio, and in plain code, use {plain} "
            "(its calls block: under asyncio make them with asyncio.to_thread, and poll by poll_in_asyncio)"
        )


def check_timeout(timeout_s: float) -> float:
    """The same number of seconds.

    Raises:
        MQClientError: it is no time that can be waited for.
    """
    if not timeout_s >= 0:  # nan is neither
        raise MQClientError(f"timeout_s={timeout_s!r} is no time: expected seconds, 0 or more")
    return timeout_s


def check_trio_does_not_run(plain: str, opened: str) -> None:
    """Refuse a call that would block trio's event loop.

    Raises:
        MQClientError: trio runs in this thread.
    """
    if trio.lowlevel.in_trio_run():
        raise MQClientError(f"{plain} would block trio's event loop: use {opened} here, or trio.to_thread.run_sync")
