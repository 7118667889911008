"""The two small files of a DLedger store, one ``key=value`` a line.

    checkpoint   endIndex        the last entry
                 committedIndex  the last entry that a majority was known to have
                 voteFloor...    rmqha's: see :attr:`LedgerCheckpoint.vote_floor`; DLedger does not look at it
                 cutFrom         rmqha's: see :attr:`LedgerCheckpoint.cut_from`
                 #...            rmqha's: see :attr:`LedgerCheckpoint.index_proves`; to DLedger a comment
    currterm     currTerm        the term
                 voteLeader      who got this node's vote in it; empty: nobody

Source: spec: dledger §1.12, §1.15; dledger-all-0.3.1.2 DLedgerMmapFileStore.java, MemberState.java, IOUtils.java.
"""

from dataclasses import dataclass
from typing import Final

from rmqha.memory import BytesLike

CHECK_POINT_FILE: Final = "checkpoint"
END_INDEX_KEY: Final = "endIndex"
COMMITTED_INDEX_KEY: Final = "committedIndex"
_FLOOR_TERM_KEY: Final = "voteFloorTerm"
_FLOOR_INDEX_KEY: Final = "voteFloorIndex"
_CUT_FROM_KEY: Final = "cutFrom"
_INDEX_PROVES: Final = "#rmqha: an entry without a unit in the index was never stored"
TERM_FILE: Final = "currterm"
TERM_KEY: Final = "currTerm"
VOTE_KEY: Final = "voteLeader"


@dataclass(frozen=True, slots=True)
class LedgerCheckpoint:
    """What the checkpoint says; -1 where it says nothing."""

    end_index: int = -1
    committed_index: int = -1
    index_proves: bool = False
    """A process that writes the index behind its flushes has this store, or was killed on it; after a clean stop, and
    once DLedger has been here, the line is gone."""
    vote_floor: tuple[int, int] = (-1, -1)
    """Term and index of the last entry that was here before the log was dropped for a leader's: this member may have
    been counted for what was committed up to there, and votes for nobody who has less."""
    cut_from: int = -1
    """Entries from this index on are being cut, and with them whole data files: their units may still be there."""

    @property
    def kept_index(self) -> int:
        """The last entry that was committed and there: no start may find less.

        DLedger lets a TRUNCATE leave a committed index behind the end.
        """
        return min(self.end_index, self.committed_index)


def decode_check_point(raw: BytesLike) -> LedgerCheckpoint:
    """Read a checkpoint; what is missing or no number is not known, as in DLedger."""
    values = _properties(raw)
    return LedgerCheckpoint(
        _number(values.get(END_INDEX_KEY)),
        _number(values.get(COMMITTED_INDEX_KEY)),
        _INDEX_PROVES.encode() in bytes(raw).splitlines(),
        (_number(values.get(_FLOOR_TERM_KEY)), _number(values.get(_FLOOR_INDEX_KEY))),
        _number(values.get(_CUT_FROM_KEY)),
    )


def encode_check_point(checkpoint: LedgerCheckpoint) -> bytes:
    """The file's bytes, but for what is rmqha's as DLedger writes them."""
    text = f"{COMMITTED_INDEX_KEY}={checkpoint.committed_index}\n{END_INDEX_KEY}={checkpoint.end_index}\n"
    term, index = checkpoint.vote_floor
    if index >= 0:
        text += f"{_FLOOR_TERM_KEY}={term}\n{_FLOOR_INDEX_KEY}={index}\n"
    if checkpoint.cut_from >= 0:
        text += f"{_CUT_FROM_KEY}={checkpoint.cut_from}\n"
    return (text + f"{_INDEX_PROVES}\n" * checkpoint.index_proves).encode()


@dataclass(frozen=True, slots=True)
class TermVote:
    """A node's term, and whom it voted for in it."""

    curr_term: int
    vote_leader: str | None = None


def decode_term_vote(raw: BytesLike) -> TermVote | None:
    """Read a term file; None if it names no term, or was cut within it: "currTerm=12" of 123 is another term.

    DLedger and rmqha write the vote first, and end each line; a lone ``currTerm=N`` was written by hand.
    """
    before, _, last = bytes(raw).rpartition(b"\n")
    values = _properties(before if before and last.lstrip().startswith(TERM_KEY.encode()) else raw)
    term = _number(values.get(TERM_KEY))
    return None if term < 0 else TermVote(term, values.get(VOTE_KEY) or None)


def encode_term_vote(state: TermVote) -> bytes:
    """The file's bytes, as DLedger writes them."""
    return f"{VOTE_KEY}={state.vote_leader or ''}\n{TERM_KEY}={state.curr_term}\n".encode()


def _properties(raw: BytesLike) -> dict[str, str]:
    lines = [line.partition("=") for line in bytes(raw).decode("utf-8", "replace").splitlines()]
    return {key.strip(): value.strip() for key, equals, value in lines if equals}


def _number(text: str | None) -> int:
    try:
        return max(-1, int(text or ""))
    except ValueError:
        return -1
