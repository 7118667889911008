"""TermFile: the term and the vote of a member, durable before anybody hears of them."""

from typing import Final

from rmqha.codec.dledger_properties import TERM_FILE, TermVote, decode_term_vote, encode_term_vote
from rmqha.errors import CorruptLogError
from rmqha.store.disk import Disk


class TermFile:
    """The file ``currterm`` (spec: dledger §1.15).

    DLedger replaces it by way of ``currterm.tmp`` and ``currterm.bak``, and for a moment there is no ``currterm``.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk: Final = disk
        self._path: Final = f"{directory}/{TERM_FILE}"

    def load(self, *, ledger_end_term: int) -> TermVote:
        """What the file says, if it is there.

        A term that is lower than the log's is an old copy's: whom this member voted for since then it does not tell.
        So it votes in no term of the log's any more.

        Args:
            ledger_end_term: of the log's last entry, -1 for an empty log.

        Raises:
            CorruptLogError: a log is there, and no file that names a term: this member may vote a second time.
        """
        state = self._read("")
        if state is None:
            others = [state for state in map(self._read, (".tmp", ".bak")) if state is not None]
            state = max(others, key=lambda other: other.curr_term, default=None)
        if state is None:
            if ledger_end_term >= 0:
                raise CorruptLogError(
                    0,
                    f"{self._path} is missing, names no term, or is cut short, but the log ends in term "
                    f"{ledger_end_term}: whom this member voted for is lost. Take the file from a copy; or, once a "
                    f"leader of a higher term is elected by the others, write 'currTerm={ledger_end_term + 1}' and "
                    "'voteLeader=' into it",
                )
            return TermVote(0)
        if state.curr_term < ledger_end_term:
            return TermVote(ledger_end_term + 1)
        return state

    def _read(self, suffix: str) -> TermVote | None:
        path = self._path + suffix
        return decode_term_vote(self._disk.read_bytes(path)) if self._disk.exists(path) else None

    def save(self, state: TermVote) -> None:
        """Make a term and a vote durable. Raises StoreWriteError: then nobody may hear of them."""
        self._disk.replace_bytes(self._path, encode_term_vote(state))

    async def save_in_thread(self, state: TermVote) -> None:
        """As :meth:`save`, without holding up the event loop."""
        await self._disk.replace_bytes_in_thread(self._path, encode_term_vote(state))
