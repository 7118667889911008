"""The keys of transactional messages."""

from dataclasses import dataclass

from rmqha.config.key import MASTER, key
from rmqha.config.kinds import BOOLEAN, INTEGER, MILLISECONDS


@dataclass(frozen=True, kw_only=True)
class TransactionConfig:
    """Source: rocketmq-all-4.9.8 BrokerConfig.java."""

    reject_transaction_message: bool = key(
        "rejectTransactionMessage",
        BOOLEAN,
        "false",
        roles=MASTER,
        meaning="Take no transactional messages.",
    )
    transaction_check_interval_s: float = key(
        "transactionCheckInterval",
        MILLISECONDS,
        "60000",
        low=100,
        high=86_400_000,
        roles=MASTER,
        meaning="Pause between two rounds in which producers are asked about transactions that they neither committed "
        "nor rolled back.",
    )
    transaction_time_out_s: float = key(
        "transactionTimeOut",
        MILLISECONDS,
        "6000",
        low=0,
        high=86_400_000,
        roles=MASTER,
        meaning="Nobody is asked about a transactional message for so long after its producer made it; its property "
        "CHECK_IMMUNITY_TIME_IN_SECONDS may say otherwise.",
    )
    transaction_check_max: int = key(
        "transactionCheckMax",
        INTEGER,
        "15",
        low=1,
        high=1_000_000,
        roles=MASTER,
        meaning="After so many times, or fileReservedTime after it was made, a transactional message goes to "
        "TRANS_CHECK_MAX_TIME_TOPIC, and nobody is asked any more.",
    )
