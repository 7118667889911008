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

    @property
    def immunity_max_s(self) -> float:
        """So long a producer can have it put off that it is asked; by a clock ahead of ours, twice as long.

        Its half message is written again in each round of that time. RocketMQ sets no limit.
        """
        return self.transaction_check_interval_s * self.transaction_check_max
