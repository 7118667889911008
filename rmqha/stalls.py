"""Whether the event loop stood still: then nobody was answered, and afterwards nothing would tell of it."""

from typing import Final

import structlog
import trio

logger = structlog.get_logger()

_TICK_S: Final = 1.0
_STALL_S: Final = 5.0
"""So long nobody is answered by a busy machine, either."""


async def tell_of_stalls() -> None:
    """Log each stall of more than a few seconds when it is over, until cancelled."""
    while True:
        due = trio.current_time() + _TICK_S
        await trio.sleep_until(due)
        if (late_s := trio.current_time() - due) > _STALL_S:
            logger.warning(
                "process.stood_still",
                seconds=round(late_s, 1),
                consequence="nobody was answered meanwhile",
                why="the process was stopped, or had to wait for a disk that took no writes (a snapshot, or a fault), "
                "or for Python's garbage collector, which has used that much CPU then",
            )
