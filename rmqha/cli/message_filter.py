"""Which stored messages a command shows. Pure."""

from dataclasses import dataclass

from rmqha.codec.record.message import StoredMessage


@dataclass(frozen=True, kw_only=True)
class MessageFilter:
    """Every field that is set must agree; within one field any value may.

    Attributes:
        keys: words of the property KEYS, or the whole UNIQ_KEY.
        since_ms: first store time taken; ``until_ms`` the first not taken.
    """

    topics: tuple[str, ...] = ()
    queue_ids: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None

    def takes(self, message: StoredMessage) -> bool:
        """Whether ``message`` is to be shown."""
        if self.topics and message.topic not in self.topics:
            return False
        if self.queue_ids and message.queue_id not in self.queue_ids:
            return False
        if self.since_ms is not None and message.store_timestamp_ms < self.since_ms:
            return False
        if self.until_ms is not None and message.store_timestamp_ms >= self.until_ms:
            return False
        return self._takes_properties(message) if self.tags or self.keys else True

    def _takes_properties(self, message: StoredMessage) -> bool:
        properties = message.properties
        if self.tags and properties.get("TAGS") not in self.tags:
            return False
        if not self.keys:
            return True
        words = {*properties.get("KEYS", "").split(" "), properties.get("UNIQ_KEY")}
        return not words.isdisjoint(self.keys)
