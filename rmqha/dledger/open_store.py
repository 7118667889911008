"""Opens a member's store, and takes over the term and the vote that it had."""

from rmqha.dledger.dledger_config import DLedgerConfig
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.member_state import MemberState
from rmqha.dledger.term_file import TermFile
from rmqha.store.disk import Disk


async def open_store(config: DLedgerConfig, disk: Disk) -> DLedgerMmapFileStore:
    """Lock and recover a member's store, and take over the term and the vote that it has; waits in a thread.

    Raises:
        StoreLockedError: another process has this store.
        CorruptLogError: damage; nothing was changed.
        StoreWriteError, StoreReadError: a file cannot be used.
    """
    store = DLedgerMmapFileStore(config, MemberState(config.self_id), disk)
    await disk.in_thread(lambda: start_store(store, config, disk))
    return store


def start_store(store: DLedgerMmapFileStore, config: DLedgerConfig, disk: Disk) -> None:
    """As :func:`open_store`, of a store that was made before; blocks until it is done."""
    store.startup()
    try:
        saved = TermFile(disk, config.default_path).load(ledger_end_term=store.ledger_end_term)
    except BaseException:
        store.close()
        raise
    store.member_state.curr_term, store.member_state.curr_vote_for = saved.curr_term, saved.vote_leader
