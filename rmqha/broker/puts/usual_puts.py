"""UsualPuts. Hot path: sends that were looked up become what the log takes, without being checked again.

What a head or a shape stands for was decided once, by the rules that hold for every send (the destination's, those of
the properties, :func:`~rmqha.codec.record.encoder.prepare`), and holds until the table of topics changes. Whatever
those rules refuse is not remembered, and goes the general way, where it gets its answer.
"""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from rmqha.broker.puts.put_service import Put
from rmqha.broker.puts.sent_records import Asked, SendRules, born_host_of, records_of
from rmqha.broker.puts.stored_properties import SendRefusedError, StoredProperties
from rmqha.broker.tables.retry_topics import RETRY_GROUP_TOPIC_PREFIX
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.codec.crc import crc32
from rmqha.codec.record.encoder import PreparedRecord
from rmqha.codec.record.ends import facts_in
from rmqha.codec.record.layout import PROPERTIES_SIZE_MAX, SysFlag
from rmqha.codec.send_headers import SendMessageRequestHeader
from rmqha.codec.usual.layout import Head, Shape
from rmqha.codec.usual.sends import Request, UsualSend
from rmqha.errors import ProtocolError

_HOST_V4_SIZE: Final = 8
_MARK: Final = b"0THEUNIQUEKEY0"
_pack_size: Final = struct.Struct(">H").pack


class _Destination(NamedTuple):
    """What a head stands for, while the table of topics is the one of ``version``."""

    version: tuple[int, int]
    topic: str
    queue_id: int
    empty_size: int
    """TOTALSIZE without body and properties."""
    topic_field: bytes
    flag: int
    sys_flag: int
    reconsume_times: int


class _Stored(NamedTuple):
    """What a shape stands for."""

    before: bytes
    after: bytes
    wait: bool
    tags_code: int
    uniq_key: bytes | None
    """None: it is the key itself."""
    keys: bytes


class UsualPuts:
    """Makes puts of usual sends."""

    def __init__(
        self,
        topics: TopicConfigManager,
        check_destination: Callable[[SendMessageRequestHeader], int],
        stored_properties: StoredProperties,
        *,
        rules: SendRules,
    ) -> None:
        self._topics: Final = topics
        self._check_destination: Final = check_destination
        self._stored_properties: Final = stored_properties
        self._rules: Final = rules

    def accept(self, requests: Sequence[Request], start: int, peer: str, *, accepted: list[Put[Asked]]) -> int:
        """Add puts of the requests from ``start`` on to ``accepted``, while they are usual; returns how many."""
        version, new, store_host = self._topics.data_version, tuple.__new__, self._rules.store_host
        body_size_max = self._rules.message_size_max
        born_host = _v4_host_of(peer)
        if born_host is None or len(store_host) != _HOST_V4_SIZE:
            return 0
        for number in range(start, len(requests)):
            request = requests[number]
            if not isinstance(request, UsualSend):
                return number - start
            head, opaque, born_ms, key, shape, properties, body, layout, _, size = request
            known: _Destination | None = head.known
            if known is None or known.version is not version:
                known = self._meet(head, born_host)
            if known is None or len(body) > body_size_max:
                return number - start
            _, topic, queue_id, empty_size, topic_field, flag, sys_flag, reconsume_times = known
            stored = None if shape is None else shape.known or self._understand(shape)
            if stored is not None:
                before, after, wait, tags_code, fixed_key, keys = stored
                properties, uniq_key = before + key + after, key if fixed_key is None else fixed_key
            else:
                made = self._make_properties(properties if shape is None else shape.before + key + shape.after)
                if made is None:
                    return number - start
                properties, wait = made
                tags_code, uniq_key, keys = facts_in(properties, 0)
            record = new(
                PreparedRecord,
                (
                    topic,
                    queue_id,
                    empty_size + len(body) + len(properties),
                    body,
                    topic_field + _pack_size(len(properties)) + properties,
                    crc32(body) & 0x7FFFFFFF,
                    flag,
                    sys_flag,
                    born_ms,
                    born_host,
                    store_host,
                    reconsume_times,
                    0,
                    tags_code,
                    uniq_key,
                    keys,
                ),
            )
            accepted.append(new(Put, ((opaque, layout.serialize, False, queue_id, size), record, wait, False)))
        return len(requests) - start

    def _meet(self, head: Head, born_host: bytes) -> _Destination | None:
        """What ``head`` stands for at present; None leaves it to the general way."""
        header, version = head.header, self._topics.data_version
        head.known = None
        if (
            header.batch
            or header.queue_id < 0
            or header.sys_flag & (SysFlag.TRANSACTION_TYPE | SysFlag.SPECIAL)
            or self._topics.select(header.topic) is None
            or header.topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
        ):
            return None
        try:
            queue_id = self._check_destination(header)
            record = records_of(header, b"", rules=self._rules, born_host=born_host, queue_id=queue_id, properties=b"")
        except ProtocolError:
            return None
        assert isinstance(record, PreparedRecord), "it is no batch"
        if record.tags_code is None:
            return None
        topic_field = record.tail[: -len(_pack_size(0))]
        numbers = (record.flag, record.sys_flag, record.reconsume_times)
        head.known = _Destination(version, record.topic, queue_id, record.size, topic_field, *numbers)
        return head.known  # type: ignore[no-any-return]

    def _understand(self, shape: Shape) -> _Stored | None:
        """What is stored of such properties, if the key is just a part of that."""
        if shape.key_size and _MARK in shape.before + shape.after:
            return None
        mark = _MARK if shape.key_size else b""
        made = self._make_properties(shape.before + mark + shape.after)
        if made is None:
            return None
        stored, wait = made
        tags_code, uniq_key, keys = facts_in(
            stored, 0
        )  # a key is alphanumeric: it neither ends a property nor begins one
        if tags_code is None:
            return None
        if not mark:
            shape.known = _Stored(stored, b"", wait, tags_code, uniq_key, keys)
        elif stored.count(mark) == 1:
            before, _, after = stored.partition(mark)
            shape.known = _Stored(before, after, wait, tags_code, None if uniq_key == mark else uniq_key, keys)
        return shape.known  # type: ignore[no-any-return]

    def _make_properties(self, properties: bytes) -> tuple[bytes, bool] | None:
        """What is stored of them, and whether the producer waits; None leaves it to the general way."""
        try:
            stored, wait, delay = self._stored_properties.make(properties, batch=False)
        except SendRefusedError:
            return None
        is_odd = delay is not None or b"\0" in stored or len(stored) > PROPERTIES_SIZE_MAX
        return None if is_odd else (stored, wait)


@lru_cache(maxsize=4096)
def _v4_host_of(peer: str) -> bytes | None:
    """A client's address as a record has it; None if it is no IPv4 address."""
    try:
        host = born_host_of(peer)
    except ProtocolError:
        return None
    return host if len(host) == _HOST_V4_SIZE else None
