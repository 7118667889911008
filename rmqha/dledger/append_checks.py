"""What has to hold before an entry is stored."""

from typing import TYPE_CHECKING, Final

from rmqha.codec.dledger_entry import (
    BODY_OFFSET,
    CURRENT_MAGIC,
    ENTRY_SIZE_MAX,
    MIN_BLANK_LEN,
    DLedgerEntry,
    encode_header,
)
from rmqha.dledger.dledger_exception import DLedgerException, DLedgerResponseCode
from rmqha.dledger.member_state import MemberState

if TYPE_CHECKING:
    from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore

_INDEX_MAX: Final = 1 << 58
"""Behind it the place of a unit has more than 63 bits: no file there could be named."""
_POS_MAX: Final = 1 << 62
"""No log comes so far; one that began near the end of 64 bits could not go on."""


def check_follower(state: MemberState) -> None:
    """This member follows."""
    if not state.is_follower:
        raise DLedgerException(DLedgerResponseCode.NOT_FOLLOWER, f"this member is {state.role.value}")


def check_leader(state: MemberState, leader_term: int, leader_id: str) -> None:
    """It follows that leader, in that term."""
    if leader_term != state.curr_term:
        text = f"the leader's term is {leader_term}, this member's {state.curr_term}"
        raise DLedgerException(DLedgerResponseCode.INCONSISTENT_TERM, text)
    if leader_id != state.leader_id:
        text = f"{leader_id} says it leads, but {state.leader_id} does"
        raise DLedgerException(DLedgerResponseCode.INCONSISTENT_LEADER, text)


def check_size(size: int, *, file_size: int) -> None:
    """An entry of this size can be stored.

    DLedger burns two data files for one that cannot (spec: dledger §2.5).
    """
    size_max = min(ENTRY_SIZE_MAX, file_size - MIN_BLANK_LEN)
    if size > size_max:
        text = f"the body has {size - BODY_OFFSET} bytes, at most {size_max - BODY_OFFSET} can be stored"
        raise DLedgerException(DLedgerResponseCode.UNEXPECTED_ARGUMENT, text)


def encode_foreign(entry: DLedgerEntry, *, leader_term: int, file_size: int) -> bytes:
    """The bytes of an entry that a leader sent.

    Raises:
        DLedgerException: UNEXPECTED_ARGUMENT: no leader can have it, and no start would find it again.
    """
    check_size(entry.compute_size_in_bytes(), file_size=file_size)
    is_one = (
        entry.size == entry.compute_size_in_bytes()
        and entry.magic == CURRENT_MAGIC
        and 0 <= entry.index < _INDEX_MAX
        and 0 <= entry.pos < _POS_MAX
        and 0 <= entry.term <= leader_term
    )
    if not is_one:
        raise DLedgerException(
            DLedgerResponseCode.UNEXPECTED_ARGUMENT,
            f"no leader of term {leader_term} has an entry of index {entry.index}, term {entry.term}, pos {entry.pos}, "
            f"size {entry.size} and magic {entry.magic}",
        )
    try:
        return encode_header(entry) + entry.body
    except ValueError as error:
        raise DLedgerException(DLedgerResponseCode.UNEXPECTED_ARGUMENT, str(error)) from None


def check_index(index: int, begin: int, end: int) -> None:
    """A log that has the entries ``[begin, end]`` has this one."""
    if not 0 <= begin <= index <= end:
        is_gone = 0 <= index < begin
        code = DLedgerResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN if is_gone else DLedgerResponseCode.INDEX_OUT_OF_RANGE
        raise DLedgerException(code, f"{index} is asked for, and the log has {begin} to {end}")


def check_next(index: int, end: int) -> None:
    """It is the next of a log that ends with ``end``."""
    if index != end + 1:
        raise DLedgerException(DLedgerResponseCode.INCONSISTENT_INDEX, f"the next is {end + 1}, not {index}")


def check_continues(store: "DLedgerMmapFileStore", entry: DLedgerEntry) -> None:
    """Nothing is written of an entry that would not go where its leader has it, or that no start would take."""
    data = store.data_file_list
    if entry.term < store.ledger_end_term:
        text = f"an entry of term {entry.term} cannot follow one of term {store.ledger_end_term}"
        raise DLedgerException(DLedgerResponseCode.UNEXPECTED_ARGUMENT, text)
    if not data.may_lie_at(entry.pos, data.max_wrote_position, entry.size):
        here = data.next_position(entry.size)
        raise DLedgerException(
            DLedgerResponseCode.DISK_ERROR,
            f"entry {entry.index} is at {entry.pos} of the leader's log, and would be at {here} here: is "
            "mappedFileSizeForEntryData the same?",
        )
    if entry.index == 0 and (problem := store.beginning.problem(entry)):
        raise DLedgerException(DLedgerResponseCode.UNEXPECTED_ARGUMENT, problem)
