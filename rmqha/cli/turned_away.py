"""Who was turned away at a broker's HA port, as far as that is still of concern. Pure: no network, no clock."""

from collections.abc import Iterable
from typing import Any, Final

from rmqha.cli.pages import Page, see
from rmqha.replication.master_session import Refusal

_RECENTLY_S: Final = 60.0
"""A slave that is turned away comes back within seconds."""
_PAGES: Final = {
    Refusal.AHEAD.value: Page.AHEAD,
    Refusal.BELOW_MIN.value: Page.BELOW_MIN,
    Refusal.UNFIT.value: Page.DIVERGED,
    Refusal.STRANGER.value: Page.WRONG_PORT,
    Refusal.NOT_ALLOWED.value: Page.SLAVE_WAITS,
    Refusal.UNTRUSTED.value: Page.CERTIFICATES,
}


def turned_away(refused: Iterable[dict[str, Any]]) -> list[str]:
    """A sentence for each address.

    Args:
        refused: of each, ``asdict(RefusedInfo)``; a broker of an older version says no ``reason``.
    """
    return [_told(one) for one in refused if one["last_s_ago"] < _RECENTLY_S and not _is_mistake(one)]


def _is_mistake(one: dict[str, Any]) -> bool:
    """A stranger that came once: somebody mistook a port. What is set up so comes again."""
    return one.get("reason") == Refusal.STRANGER.value and one["count"] == 1


def _told(one: dict[str, Any]) -> str:
    reason = f"{one['address']} is turned away: {one['message']}"
    page = _PAGES.get(one.get("reason", ""))
    return see(reason, page) if page else reason
