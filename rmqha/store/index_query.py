"""IndexQuery: messages by key. What the index says is never believed: each message found is looked at.

A chain may be as long as somebody's messages with one key are many, so it is followed in turns, and not for ever.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import trio

from rmqha.codec.hashing import key_hash
from rmqha.codec.index_file import IndexHeader
from rmqha.codec.record.dispatch import read_dispatch
from rmqha.codec.record.layout import PROPERTIES_SIZE_MAX, TOPIC_SIZE_MAX
from rmqha.store.index_file import IndexFile
from rmqha.store.index_keys import has_key
from rmqha.store.log import Log

MESSAGES_MAX: Final = 64
"""maxMsgsNumBatch."""
_BYTES_MAX: Final = 8 << 20
"""Java clients take no frame of more than 16 MiB."""
_EXAMINED_MAX: Final = 200_000
"""About half a second's work. Who has more messages of one key gets the newest, or gives a range of time."""
_TURN_S: Final = 0.002
_STEPS_A_TURN: Final = 500
_A_MESSAGE: Final = 4
"""To look at a message takes as long as so many entries."""
_SECOND_MS: Final = 1000


class Query(NamedTuple):
    """What is looked for."""

    topic: str
    key: str
    max_num: int
    begin_timestamp_ms: int
    end_timestamp_ms: int


class QueryMessageResult(NamedTuple):
    """What was found, in the order of the log."""

    views: tuple[memoryview, ...]
    size_bytes: int
    index_last_update_timestamp: int
    index_last_update_phyoffset: int
    is_complete: bool
    """False: so many messages have such keys that not all of them were looked at."""


class IndexQuery:
    """Looks into the files of an index."""

    def __init__(self, files: Callable[[], list[IndexFile]], log: Log, *, visible_offset: Callable[[], int]) -> None:
        """Nothing is read here.

        Args:
            files: those of the index now, oldest first.
            log: where the messages are.
            visible_offset: nothing at or behind it may be seen.
        """
        self._files: Final = files
        self._log: Final = log
        self._visible_offset: Final = visible_offset

    async def query_message(self, query: Query) -> QueryMessageResult:
        """The newest messages of a topic with this key, stored within these times.

        Raises:
            StoreReadError: the index, or the log, cannot be read at present.
        """
        files = [*self._files()]
        last = files[-1].header if files else IndexHeader()
        found: dict[int, memoryview] = {}
        size, examined, turn_ends_at = 0, 0, trio.current_time() + _TURN_S
        num_max = min(query.max_num, MESSAGES_MAX)
        can_be = num_max > 0 and len(query.key) <= PROPERTIES_SIZE_MAX and len(query.topic) <= TOPIC_SIZE_MAX
        for step, offset in enumerate(self._candidates(files, query) if can_be else ()):
            examined += 1 if offset < 0 else _A_MESSAGE
            if offset >= 0 and offset not in found and (view := self._message_at(offset, query)) is not None:
                if found and size + len(view) > _BYTES_MAX:
                    break
                found[offset], size = view, size + len(view)
                if len(found) >= num_max:
                    break
            if examined >= _EXAMINED_MAX:
                break
            if step % _STEPS_A_TURN == 0 or trio.current_time() >= turn_ends_at:
                await trio.lowlevel.checkpoint()
                turn_ends_at = trio.current_time() + _TURN_S
        views = tuple(found[offset] for offset in sorted(found))
        is_complete = examined < _EXAMINED_MAX
        return QueryMessageResult(views, size, last.end_timestamp_ms, last.end_phy_offset, is_complete)

    def _candidates(self, files: list[IndexFile], query: Query) -> Iterator[int]:
        """Where messages with this hash may lie, newest first; -1 for each entry that was read in vain."""
        code = key_hash(query.topic, query.key)
        for file in reversed(files):
            header = file.header
            if header.end_timestamp_ms < query.begin_timestamp_ms or header.begin_timestamp_ms > query.end_timestamp_ms:
                continue
            for entry in file.chain(code):
                yield entry.phy_offset if entry.key_hash == code else -1
                if entry.timestamp_ms + _SECOND_MS <= query.begin_timestamp_ms:
                    break

    def _message_at(self, offset: int, query: Query) -> memoryview | None:
        """The message there, if it is one that is looked for."""
        record = self._log.record_at(offset, end=self._visible_offset())
        if record is None:
            return None
        requests, _ = read_dispatch(record, 0, len(record), phy_offset_base=offset)
        for request in requests:
            is_in_time = query.begin_timestamp_ms <= request.store_timestamp_ms <= query.end_timestamp_ms
            if is_in_time and request.topic == query.topic and has_key(request, query.key):
                return record
        return None
