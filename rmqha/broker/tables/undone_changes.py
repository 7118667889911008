"""What operators said here, and the master, whose table counts, does not know: that it is undone is told."""

from collections.abc import Mapping
from typing import Final

import structlog

from rmqha.broker.tables.change_stamps import ChangeStamps

logger = structlog.get_logger()

_TOLD_NAMES: Final = 10
_NEXT: Final = (
    "the master does not know what was said of these last, as an older copy of itself, or one that lagged when it "
    "became master, and its table counts: decide again there; docs/recovery.md, 'What a master has back of its tables'"
)


def tell_undone(table: str, here: ChangeStamps, told: Mapping[str, int] | None, *, address: str) -> None:
    """Before the table of the master at ``address``, with the stamps that it ``told``, replaces the one here."""
    if names := here.unknown_to(told):
        known = {"address": address, "count": len(names), "names": names[-_TOLD_NAMES:]}
        logger.warning("master_link.later_changes_undone", table=table, **known, next=_NEXT)
