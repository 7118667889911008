"""What a TRUNCATE means for a log: decided before anything is changed."""

from enum import Enum
from typing import TYPE_CHECKING, Final

from rmqha.codec.dledger_entry import BODY_OFFSET, DLedgerEntry
from rmqha.dledger.dledger_exception import DLedgerException, DLedgerResponseCode
from rmqha.dledger.ledger_beginning import WHAT_NEXT
from rmqha.errors import DivergedLogError

if TYPE_CHECKING:
    from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore


class Cut(Enum):
    """Where the log is cut, and whether the leader's entry has to be written."""

    BEHIND = "the entry is here and becomes the last"
    BEFORE = "another one is here, or none yet: it is written in its place"
    ANEW = "the log has no place for it: all goes, and it is the first"


def plan_cut(store: "DLedgerMmapFileStore", entry: DLedgerEntry) -> Cut:
    """How ``entry`` becomes the last one.

    A leader asks that of an entry that is equal here, or of its first one: what lies before that it cannot compare any
    more. Unless all of that is committed here, it may be another leader's, and goes, too. DLedger keeps it.

    Raises:
        DLedgerException: UNEXPECTED_ARGUMENT: it cannot lie where it says.
        DivergedLogError: what is committed would go (spec: dledger §7.1 S7, §7.3 rows 2 and 17).
        StoreReadError: an entry cannot be read.
    """
    if _has(store, entry):
        if entry.index < store.committed_index:
            raise _diverged(store, entry)
        return Cut.BEHIND
    if entry.index == 0:
        _check_beginning(store, entry)
    if entry.index <= store.committed_index:
        raise _diverged(store, entry)
    is_proven = entry.index <= max(store.committed_index + 1, store.ledger_begin_index)
    if is_proven and _goes_on(store, entry):
        return Cut.BEFORE
    if is_proven and 0 <= store.ledger_begin_index <= store.committed_index:
        raise _diverged(store, entry)
    if store.ledger_end_index == -1 and store.beginning.is_there:
        raise DivergedLogError(entry.pos, f"the leader's log begins with index {entry.index} only, {_NOT_BEHIND_OLD}")
    _check_may_begin(store, entry)
    return Cut.ANEW


_NOT_BEHIND_OLD: Final = (
    "and this member has an old commitlog, and no entry of the group: nothing was changed. If that log is the group's, "
    "and has expired there, move this member's commitlog, consumequeue and checkpoint away, and start it again; else "
    "give it a storePathRootDir of its own"
)


def _check_beginning(store: "DLedgerMmapFileStore", first: DLedgerEntry) -> None:
    """The leader's first entry goes where a first entry of this log would.

    A log that has begun anew, far behind, and lost its only entry has a file there, and nothing before it: it begins
    anew once more.

    Raises:
        DivergedLogError: what lies before it there is not what lies before it here.
    """
    begins_at = store.data_file_list.min_offset
    is_place_free = store.ledger_end_index == -1 and not store.beginning.is_there and first.pos == 0
    if first.pos != begins_at and store.ledger_begin_index <= 0 and not is_place_free:
        raise DivergedLogError(
            first.pos,
            f"the leader's first entry is at {first.pos}, and would be at {begins_at} here: one of both has an old "
            f"commitlog below the group's entries that the other has not, or one of another length. {WHAT_NEXT}",
        )
    if problem := store.beginning.problem(first):
        raise DivergedLogError(first.pos, problem)


def _has(store: "DLedgerMmapFileStore", entry: DLedgerEntry) -> bool:
    try:
        return store.get(entry.index) == entry
    except DLedgerException:
        return False


def _goes_on(store: "DLedgerMmapFileStore", entry: DLedgerEntry) -> bool:
    """Whether the entries before its index lead to where it lies."""
    if store.ledger_end_index == -1:
        data = store.data_file_list
        return entry.index == 0 and data.may_lie_at(entry.pos, data.max_wrote_position, entry.size)
    if not store.ledger_begin_index <= entry.index <= store.ledger_end_index + 1:
        return False
    if entry.index > store.ledger_begin_index and store.get(entry.index - 1).term > entry.term:
        return False
    end = store.end_of(entry.index - 1)
    return store.data_file_list.may_lie_at(entry.pos, end, entry.size)


def _check_may_begin(store: "DLedgerMmapFileStore", entry: DLedgerEntry) -> None:
    """A data file can have it as its first entry, behind a blank."""
    data = store.data_file_list
    position = entry.pos % data.mapped_file_size
    is_possible = data.position_behind(entry.pos, entry.size) == entry.pos and (
        position == 0 or position >= BODY_OFFSET
    )
    if not is_possible:
        raise DLedgerException(
            DLedgerResponseCode.UNEXPECTED_ARGUMENT,
            f"no entry of {entry.size} bytes can be at {entry.pos}: is mappedFileSizeForEntryData the leader's?",
        )


def _diverged(store: "DLedgerMmapFileStore", entry: DLedgerEntry) -> DivergedLogError:
    return DivergedLogError(
        entry.pos,
        f"the leader cuts this log to its entry of index {entry.index} and term {entry.term}, but up to index "
        f"{store.committed_index} it is committed here: nothing was changed. Compare this member's log with the "
        "others' ('rmqha dledger dump'), and move the wrong one away",
    )
