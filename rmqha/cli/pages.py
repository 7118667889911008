"""Where an operator reads on: the sections of the project's pages that reasons end with. Pure.

In an installation from a wheel the pages are in ``share/doc/rmqha``, below the environment's prefix.
"""

from enum import StrEnum
from typing import Any, Final

from rmqha.errors import DIVERGED_LOG, FILE_SIZE_LIMIT, NOT_READ, NOT_WRITABLE

_DOCS: Final = "docs/"
_HA_PEERS: Final = "haPeers"
_HOLDS_MORE: Final = "holds messages beyond this log's end"
"""As rmqha/replication/catch_up_plan.py says it."""
_CORRUPT_LOG: Final = "corrupt log"
OTHER_BYTES: Final = "holds other bytes"
"""As a master says of a peer (rmqha/ha/catch_up.py)."""


_WHITE: Final = "globalWhiteRemoteAddresses"


class Page(StrEnum):
    """How a section's title begins, after its page."""

    SLAVE_WAITS = "docs/operations.md, 'A slave waits for its master'"
    NOT_SEND_OK = "docs/operations.md, 'Sends are not answered SEND_OK'"
    DELETED_EARLY = "docs/operations.md, 'Messages deleted before their time'"
    SEEN_LATE = "docs/operations.md, 'Messages that are seen late'"
    CLOCK = "docs/operations.md, 'A clock that jumps'"
    TUNNEL = "docs/operations.md, 'A tunnel, proxy or NAT'"
    WRITE_FAILED = "docs/operations.md, 'A write or flush failed'"
    WRONG_PORT = "docs/operations.md, 'Somebody on the wrong port'"
    NO_INODES = "docs/operations.md, 'No inode is free'"
    SLAVE_FULL = "docs/operations.md, 'A slave without room'"
    SILENT = "docs/operations.md, 'A peer that is silent'"
    NOT_REGISTERED = "docs/operations.md, 'A name server that does not know this broker'"
    MIXED_UP = "docs/operations.md, 'Brokers that do not belong together'"
    AHEAD = "docs/operations.md, 'Slave ahead of the master'"
    PEER_HOLDS_MORE = "docs/operations.md, 'Sends are refused'"
    HA_PEERS = "docs/operations.md, 'A slave that haPeers leaves out'"
    PEER_UNHEARD = "docs/operations.md, 'A peer of haPeers that is not heard'"
    DIVERGED = "docs/operations.md, 'Diverged logs'"
    BELOW_MIN = "docs/operations.md, 'Slave below the master'"
    DAMAGED = "docs/operations.md, 'A damaged record'"
    DAMAGED_HALF = "docs/operations.md, 'A damaged half message'"
    DAMAGED_MARK = "docs/operations.md, 'A damaged mark of a transaction'"
    DISCARDED = "docs/operations.md, 'Transactions that nobody ended'"
    DROPPED = "docs/operations.md, 'Records that a start cut'"
    UNDELIVERABLE = "docs/operations.md, 'A delayed message that cannot be delivered'"
    LOST_TABLES = "docs/operations.md, 'A table that is lost'"
    HIDDEN = "docs/operations.md, 'Messages that no consumer sees'"
    ROCKETMQ_5 = "docs/migration.md, 'From RocketMQ 5'"
    CERTIFICATES = "docs/security.md, 'Making certificates'"
    ACCOUNTS = "docs/security.md, 'Accounts (ACL)'"
    MEMBER_AWAY = "docs/dledger.md, 'What status tells'"
    NO_LEADER = "docs/dledger.md, 'Nobody leads'"
    OTHER_LIST = "docs/dledger.md, 'A member with another list'"
    MEMBER_DAMAGED = "docs/dledger.md, 'Damage'"
    MEMBER_FULL = "docs/dledger.md, 'A full disk'"


def see(reason: str, page: Page) -> str:
    """The reason, with where to read on unless it names a page itself."""
    return reason if _DOCS in reason else f"{reason}; see {page}"


def ended_at_no_record(reason: str) -> str:
    """What is told of a slave whose stream leads to bytes that are no record here."""
    if reason.endswith(NOT_READ):
        return see(f"{reason}. That is no damage; this log is whole up to that offset, and ends there", Page.ROCKETMQ_5)
    what = "If it says so again and again, the master's own log is damaged there: 'rmqha log verify' of its store tells"
    return see(f"{reason}. {what}. This log is sound up to that offset", Page.DAMAGED)


def waits_for(lack: str, page: Page) -> str:
    """What is told of a replica that can store no more at present, and serves what it holds."""
    return see(f"it serves what it holds, and goes on by itself when this has passed: {lack}", page)


def page_of_trouble(told: str) -> Page:
    """What to read of a slave that takes nothing, by what it says of it: a failed write does not pass by itself."""
    if DIVERGED_LOG in told:
        return Page.DIVERGED
    if _WHITE in told:
        return Page.ACCOUNTS
    return Page.WRITE_FAILED if NOT_WRITABLE in told else Page.SLAVE_FULL


def refusal_of(facts: dict[str, Any]) -> str:
    """A broker's ``write_refusal``, with what to do next."""
    refusal = str(facts["write_refusal"])
    if _CORRUPT_LOG in refusal:
        return see(f"{refusal}. No restart repairs that", Page.DAMAGED)
    if OTHER_BYTES in refusal:
        return see(refusal, Page.DIVERGED)
    if FILE_SIZE_LIMIT in refusal:
        return see(f"{refusal}. Raise that limit, then restart this broker", Page.WRITE_FAILED)
    if facts.get("needs_restart"):
        return see(f"{refusal}. Repair the disk, then restart this broker", Page.WRITE_FAILED)
    is_about_peers = _HA_PEERS in refusal or _HOLDS_MORE in refusal
    return see(refusal, Page.PEER_HOLDS_MORE if is_about_peers else Page.NOT_SEND_OK)
