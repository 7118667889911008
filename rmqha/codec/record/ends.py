"""What the end of a record says: its topic, its tag, its keys. Hot path."""

from functools import lru_cache
from typing import Final

from rmqha.codec.hashing import REMEMBERED_TAG_MAX, tags_code
from rmqha.codec.properties import decode_utf8, find_property
from rmqha.codec.record.layout import SCHEDULE_TOPIC

_TAGS: Final = b"\x02TAGS\x01"
_KEYS: Final = b"KEYS\x01"
_UNIQ_KEY: Final = b"UNIQ_KEY\x01"
_REMEMBERED_KEYS_MAX: Final = 256
"""Bytes. Thousands of records wait for dispatch: of one with more it reads them from the log."""
KNOWN_MAX: Final = 1024
_KNOWN_SIZE_MAX: Final = 1024
"""Bytes of an end that is remembered."""
_FORGET_AFTER: Final = 16 * KNOWN_MAX
"""When there are too many kinds, and so many ends were not known, all is forgotten: others came."""


RecordEnd = tuple[str, int, bytes, bytes]
"""``(topic, tags_code, uniq_key, keys)``, as far as dispatch needs topic and properties of one record."""


class RecordEnds:
    """What the ends of some records say. Those that differ in their unique key alone need not be understood again.

    Bounded: some 1 MB, or 4 if all are as large as they may be.

    Attributes:
        places: where the unique key begins and ends, by an end's size.
        known: what an end says, but for its unique key, by what stands before that and behind it. It holds for any
            alphanumeric key: that neither ends a property nor begins one.
    """

    def __init__(self) -> None:
        self.places: Final[dict[int, tuple[int, int]]] = {}
        self.known: Final[dict[tuple[bytes, bytes], tuple[str, int, bytes]]] = {}
        self._topics: Final[dict[bytes, str]] = {}
        self._missed = 0

    def understand(self, end: bytes) -> RecordEnd | None:
        """Read the end of a record, from its topic's length on; None if it does not add up."""
        properties_at = end[0] + 3
        properties_size = len(end) - properties_at
        if properties_size < 0 or end[properties_at - 2] << 8 | end[properties_at - 1] != properties_size:
            return None
        raw_topic = end[1 : properties_at - 2]
        topic = self._topics.get(raw_topic)
        if topic is None:
            if len(self._topics) >= KNOWN_MAX:
                self._topics.clear()
            topic = self._topics[raw_topic] = raw_topic.decode("ascii", "replace")
        code = tags_code_in(end, properties_at)
        uniq_key, keys = keys_in(end, properties_at)
        if topic != SCHEDULE_TOPIC and uniq_key.isalnum() and end.count(uniq_key) == 1:
            self._learn(end, topic, code, uniq_key=uniq_key, keys=keys)
        return topic, code, uniq_key, keys

    def _learn(self, end: bytes, topic: str, code: int, *, uniq_key: bytes, keys: bytes) -> None:
        """Unless there are too many kinds, as when KEYS are others in each record: to look in vain takes time."""
        self._missed += 1
        if self._missed >= _FORGET_AFTER:
            self.known.clear()
            self._missed = 0
        if len(self.known) >= KNOWN_MAX:
            self.places.clear()
        elif len(end) <= _KNOWN_SIZE_MAX:
            at = end.index(uniq_key)
            behind = at + len(uniq_key)
            self.places[len(end)] = at, behind
            self.known[end[:at], end[behind:]] = topic, code, keys


def tags_code_in(record_end: bytes, properties_at: int) -> int:
    """The hash of the last TAGS among the properties, which reach from ``properties_at`` to the end."""
    tag_at = record_end.rfind(_TAGS, properties_at) + len(_TAGS)
    if tag_at < len(_TAGS):
        if not record_end.startswith(b"TAGS\x01", properties_at):
            return 0
        tag_at = properties_at + 5
    tag_end = record_end.find(b"\x02", tag_at)
    tag = record_end[tag_at:] if tag_end < 0 else record_end[tag_at:tag_end]
    tag = tag or find_property(record_end[properties_at:], b"TAGS") or b""
    return _short_tags_code(tag) if len(tag) <= REMEMBERED_TAG_MAX else tags_code(decode_utf8(tag))


def keys_in(record_end: bytes, properties_at: int) -> tuple[bytes, bytes]:
    """UNIQ_KEY and KEYS among the properties; empty if there is none."""
    uniq_key = keys = b""
    at = record_end.rfind(_UNIQ_KEY, properties_at)
    if at >= 0:
        end = record_end.find(b"\x02", at)
        uniq_key = record_end[at + 9 :] if end < 0 else record_end[at + 9 : end]
        if not uniq_key or (at != properties_at and record_end[at - 1] != 2):
            uniq_key = find_property(record_end[properties_at:], b"UNIQ_KEY") or b""
    at = record_end.rfind(_KEYS, properties_at)
    if at >= 0:
        end = record_end.find(b"\x02", at)
        keys = record_end[at + 5 :] if end < 0 else record_end[at + 5 : end]
        if not keys or (at != properties_at and record_end[at - 1] != 2):
            keys = find_property(record_end[properties_at:], b"KEYS") or b""
    return uniq_key, keys


def facts_in(record_end: bytes, properties_at: int) -> tuple[int | None, bytes, bytes]:
    """What dispatch needs of the properties: the tag's code, UNIQ_KEY, KEYS; a code of None if it is not to be kept."""
    uniq_key, keys = keys_in(record_end, properties_at)
    if len(uniq_key) + len(keys) > _REMEMBERED_KEYS_MAX:
        return None, b"", b""
    return tags_code_in(record_end, properties_at), uniq_key, keys


@lru_cache(maxsize=4096)
def _short_tags_code(tag: bytes) -> int:
    return tags_code(decode_utf8(tag))
