"""PreparedBatch: the records of a batch, by columns. Hot path.

What a batch stores are the records that its messages would have become one by one
(:func:`~rmqha.codec.record.encoder.prepare`): ``tests/codec/record/test_prepared_batch.py``. Most of each they have in
common, and the rest is made column by column, which takes a third of the time.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, repeat
from typing import Final, NamedTuple, overload

from rmqha.codec.batch import merge_properties
from rmqha.codec.crc import crc32
from rmqha.codec.record.encoder import PreparedRecord, check_properties, pack_properties_size
from rmqha.codec.record.ends import facts_in
from rmqha.codec.record.layout import MESSAGE_MAGIC, enters_queue, fixed_part
from rmqha.memory import BytesLike


class _Ends(NamedTuple):
    """What lies behind the bodies of some records, and what it says."""

    tails: list[bytes]
    tags_codes: list[int | None]
    uniq_keys: list[bytes]
    keys: list[bytes]


class PreparedBatch(Sequence[PreparedRecord]):
    """Records for one queue, which get consecutive offsets in it.

    Attributes:
        topic: of all.
        queue_id: of all.
        sys_flag: of all; they enter their queue.
        size: bytes of all records together.
        sizes: TOTALSIZE of each.
        flags: FLAG of each.
        bodies: of each.
        tails: everything behind the body of each.
        crcs: BODYCRC of each.
        tags_codes, uniq_keys, keys: of each, what :class:`PreparedRecord` has.
    """

    def __init__(self, like: PreparedRecord) -> None:
        """``like`` has no body and no properties, and all else that the records have in common but FLAG."""
        assert enters_queue(like.sys_flag), "no batch is transactional"
        self.topic: Final = like.topic
        self.queue_id: Final = like.queue_id
        self.sys_flag: Final = like.sys_flag
        self.size = 0
        self.sizes: list[int] = []
        self.flags: list[int] = []
        self.bodies: list[bytes] = []
        self.tails: list[bytes] = []
        self.crcs: list[int] = []
        self.tags_codes: list[int | None] = []
        self.uniq_keys: list[bytes] = []
        self.keys: list[bytes] = []
        self._like: Final = like
        self._topic_field: Final = like.tail[: -len(pack_properties_size(0))]

    def add(
        self, flags: Sequence[int], bodies: Sequence[bytes], properties: Sequence[bytes], *, shared: bytes = b""
    ) -> None:
        """Add as many records as there are of each, at least one; ``shared`` are properties that all have besides.

        Raises:
            LocalProtocolError: properties do not fit their field; nothing is added.
        """
        ends = self._ends_alike(properties, shared) or self._ends_of(properties, shared)
        size_before_tail = self._like.size - len(self._like.tail)
        sizes = [size_before_tail + len(body) + len(tail) for body, tail in zip(bodies, ends.tails, strict=True)]
        self.size += sum(sizes)
        self.sizes += sizes
        self.flags += flags
        self.bodies += bodies
        self.crcs += [crc & 0x7FFFFFFF for crc in map(crc32, bodies)]
        self.tails += ends.tails
        self.tags_codes += ends.tags_codes
        self.uniq_keys += ends.uniq_keys
        self.keys += ends.keys

    def _ends_of(self, properties: Sequence[bytes], shared: bytes) -> "_Ends":
        topic_field, properties_at = self._topic_field, len(self._like.tail)
        ends = _Ends([], [], [], [])
        for own in properties:
            raw = merge_properties(own, shared)
            check_properties(raw)
            tail = topic_field + pack_properties_size(len(raw)) + raw
            code, uniq_key, keys = facts_in(tail, properties_at)
            ends.tails.append(tail)
            ends.tags_codes.append(code)
            ends.uniq_keys.append(uniq_key)
            ends.keys.append(keys)
        return ends

    def _ends_alike(self, properties: Sequence[bytes], shared: bytes) -> "_Ends | None":
        """As :meth:`_ends_of`; None if they differ in more than the unique key, or that is not alphanumeric.

        Such a key neither ends a property nor begins one, so what is true of one record's properties is of all.
        """
        (tail,), (tags_code,), (first_key,), (keys,) = self._ends_of(properties[:1], shared)
        if tail.count(first_key) != 1:
            return None
        before, _, after = tail.partition(first_key)
        key_at = len(before) - len(self._like.tail)
        key_end, count = key_at + len(first_key), len(properties)
        uniq_keys = [own[key_at:key_end] for own in properties]
        joined = b"".join(uniq_keys)
        if len(joined) != count * len(first_key) or not joined.isalnum():
            return None
        if len({own[:key_at] for own in properties}) > 1 or len({own[key_end:] for own in properties}) > 1:
            return None
        return _Ends([before + key + after for key in uniq_keys], [tags_code] * count, uniq_keys, [keys] * count)

    def append_to(
        self, parts: list[BytesLike], *, queue_offset: int, physical_offset: int, store_timestamp_ms: int
    ) -> list[int]:
        """As :meth:`PreparedRecord.append_to`, with the offsets of the first record; returns where each begins."""
        _, queue_id, _, _, _, _, _, sys_flag, born_ms, born_host, store_host, times, prepared, *_ = self._like
        offsets = [*accumulate(self.sizes[:-1], initial=physical_offset)]
        heads = map(
            fixed_part(sys_flag).pack,
            self.sizes,
            repeat(MESSAGE_MAGIC),
            self.crcs,
            repeat(queue_id),
            self.flags,
            range(queue_offset, queue_offset + len(offsets)),
            offsets,
            repeat(sys_flag),
            repeat(born_ms),
            repeat(born_host),
            repeat(store_timestamp_ms),
            repeat(store_host),
            repeat(times),
            repeat(prepared),
            map(len, self.bodies),
        )
        records: list[BytesLike] = [b""] * (3 * len(offsets))
        records[0::3], records[1::3], records[2::3] = heads, self.bodies, self.tails
        parts += records
        return offsets

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, index: int) -> PreparedRecord: ...

    @overload
    def __getitem__(self, index: slice) -> list[PreparedRecord]: ...

    def __getitem__(self, index: int | slice) -> PreparedRecord | list[PreparedRecord]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return self._like._replace(
            size=self.sizes[index],
            body=self.bodies[index],
            tail=self.tails[index],
            crc=self.crcs[index],
            flag=self.flags[index],
            tags_code=self.tags_codes[index],
            uniq_key=self.uniq_keys[index],
            keys=self.keys[index],
        )

    def __iter__(self) -> Iterator[PreparedRecord]:
        return map(self.__getitem__, range(len(self)))
