"""What the broker's configuration says about transactions."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRules:
    """What the broker's configuration says about transactions."""

    transaction_check_interval_s: float
    transaction_time_out_s: float
    transaction_check_max: int
    file_reserved_time_s: float
    store_host: bytes
    """The address of this broker, as records have it."""
