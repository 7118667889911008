"""Where :class:`ConfigFiles` was."""

from rmqha.store.config_files import (
    CONSUMER_OFFSET,
    DELAY_OFFSET,
    QUEUE_ENDS,
    SUBSCRIPTION_GROUP,
    TOPICS,
    ConfigFiles,
    encode_in_turns,
)

__all__ = [
    "CONSUMER_OFFSET",
    "DELAY_OFFSET",
    "QUEUE_ENDS",
    "SUBSCRIPTION_GROUP",
    "TOPICS",
    "ConfigFiles",
    "encode_in_turns",
]
