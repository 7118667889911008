"""The entry by which a leader commits what it inherited (spec: dledger §7.4).

It is a complete message of RocketMQ, as everything in such a log has to be: to a broker of a mixed group an empty body
would be damage. As a rolled-back transaction it enters no queue, of RocketMQ's or of ours.
"""

from collections.abc import Callable
from typing import Any, Final

import structlog
import trio

from rmqha.codec.dledger_entry import BODY_OFFSET
from rmqha.codec.record.encoder import prepare
from rmqha.codec.record.layout import BARRIER_TOPIC, SysFlag
from rmqha.dledger.dledger_entry_pusher import DLedgerEntryPusher
from rmqha.dledger.dledger_exception import DLedgerException
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.errors import StoreReadError
from rmqha.log_limit import LogLimit

logger = structlog.get_logger()

_NO_HOST: Final = bytes(8)


def barrier_body(store: DLedgerMmapFileStore, *, now_ms: int) -> bytes:
    """The body of the next entry of ``store``. Raises StoreReadError."""
    record = prepare(
        BARRIER_TOPIC,
        b"",
        queue_id=0,
        born_timestamp_ms=now_ms,
        born_host_raw=_NO_HOST,
        store_host_raw=_NO_HOST,
        sys_flag=SysFlag.TRANSACTION_ROLLBACK,
        properties_raw=b"" if store.ledger_end_index >= 0 else store.beginning.properties_raw,
    )
    entry_size = BODY_OFFSET + record.size
    pos = store.data_file_list.next_position(entry_size)
    return record.pack(queue_offset=0, physical_offset=pos + BODY_OFFSET, store_timestamp_ms=now_ms)


class TermBarrier:
    """Appends that entry where its leader needs it."""

    def __init__(
        self,
        store: DLedgerMmapFileStore,
        pusher: DLedgerEntryPusher[Any],
        *,
        now_ms: Callable[[], int],
        on_appended: Callable[[], None],
    ) -> None:
        self._store: Final = store
        self._pusher: Final = pusher
        self._now_ms: Final = now_ms
        self._on_appended: Final = on_appended
        self._lines: Final = LogLimit(burst=3)

    def append(self) -> None:
        """As the present leader; that it cannot be is logged."""
        try:
            body = barrier_body(self._store, now_ms=self._now_ms())
            self._pusher.append(body, lambda _entry, _code: None, now=trio.current_time())
        except (DLedgerException, StoreReadError) as error:
            self._lines.log(logger.warning, "dledger.barrier_failed", reason=str(error))
        else:
            self._on_appended()
