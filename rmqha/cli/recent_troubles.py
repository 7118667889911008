"""What happened to a broker, is over, or soon will be, and is a reason for a while. Pure: no network, no clock."""

from typing import Any, Final

from rmqha.cli.pages import Page, see

DELETED_RECENTLY_S: Final = 3600.0
DISCARDED_RECENTLY_S: Final = 3600.0
TOPICS_REFUSED_RECENTLY_S: Final = 600.0
SEEN_LATE_S: Final = 5.0


def deleted_early(facts: dict[str, Any]) -> list[str]:
    """Segments that a full disk cost."""
    early = facts.get("deleted_early")
    if not early or early["last_s_ago"] > DELETED_RECENTLY_S:
        return []
    what = "segment of its log was" if early["segments"] == 1 else "segments of its log were"
    last = f"the last {early['last_s_ago']:.0f} s ago, since its disk was too full"
    told = f"{early['segments']:,} {what} deleted before expiry, {last}"
    return [see(f"{told}. Make room", Page.DELETED_EARLY)]


def discarded(facts: dict[str, Any]) -> list[str]:
    """Half messages that nobody ended."""
    halves = facts.get("discarded_halves")
    if not halves or halves["last_s_ago"] > DISCARDED_RECENTLY_S:
        return []
    what = "half message was" if halves["count"] == 1 else "half messages were"
    last = f"the last {halves['last_s_ago']:.0f} s ago: nobody committed them or rolled them back"
    told = f"{halves['count']:,} {what} discarded undecided, {last} (transaction.discarded in the log)"
    return [see(told, Page.DISCARDED)]


def topics_refused(facts: dict[str, Any]) -> list[str]:
    """Topics for whose queues there was no room."""
    refused = facts.get("topics_refused")
    if not refused or refused["last_s_ago"] > TOPICS_REFUSED_RECENTLY_S:
        return []
    return [see(f"{refused['reason']} (refused {refused['count']:,} times)", Page.NOT_SEND_OK)]


def seen_late(facts: dict[str, Any]) -> list[str]:
    """Messages that are safe, and wait for dispatch."""
    behind_s = facts.get("dispatch_behind_s") or 0.0
    if behind_s < SEEN_LATE_S:
        return []
    left = facts["confirm_offset"] - facts["dispatched_offset"]
    told = f"consumers see messages late: dispatch is {behind_s:.0f} s behind, with {left:,} bytes of the log to go"
    return [see(told, Page.SEEN_LATE)]
