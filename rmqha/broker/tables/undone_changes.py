"""What operators said here, and the master, whose table counts, does not know: that it is undone is told."""

from collections.abc import Sequence
from typing import Final

import structlog

logger = structlog.get_logger()

_TOLD_NAMES: Final = 10
_NEXT: Final = (
    "the master does not know what was said of these last, as an older copy of itself, or one that lagged when it "
    "became master, and its table counts: decide again there; docs/recovery.md, 'What a master has back of its tables'"
)


def tell_undone(table: str, names: Sequence[str], *, address: str) -> None:
    """The table of the master at ``address`` has replaced the one here, which knew later changes of these ``names``."""
    if names:
        known = {"address": address, "count": len(names), "names": names[-_TOLD_NAMES:]}
        logger.warning("master_link.later_changes_undone", table=table, **known, next=_NEXT)
