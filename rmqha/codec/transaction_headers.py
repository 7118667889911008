"""Headers of the requests about transactions.

Source: spec: remoting §2.4 (37), §2.8 (39).
"""

from dataclasses import dataclass

from rmqha.codec.headers import Int32, Int64


@dataclass(frozen=True, slots=True)
class EndTransactionRequestHeader:
    """37 END_TRANSACTION; ``commit_or_rollback`` holds a transaction type of :class:`SysFlag`, 0 if it is unknown."""

    producer_group: str
    tran_state_table_offset: Int64
    """Of the half message in its queue."""
    commit_log_offset: Int64
    """Of the half message in the log."""
    commit_or_rollback: Int32
    from_transaction_check: bool = False
    msg_id: str | None = None
    transaction_id: str | None = None


@dataclass(frozen=True, slots=True)
class CheckTransactionStateRequestHeader:
    """39 CHECK_TRANSACTION_STATE: what became of the half message that now lies here?"""

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    offset_msg_id: str
    msg_id: str | None = None
    """The producer's own, as ``transaction_id``."""
    transaction_id: str | None = None
