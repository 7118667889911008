"""The body of a registration (103): the topics of a broker, read one by one.

    {"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":I,"timestamp":I},
     "topicConfigTable":{TOPIC:{"perm":I,"readQueueNums":I,"topicSysFlag":I,"writeQueueNums":I,...}}}}

Before protocol version 37 the wrapper alone. ``compressed``, a zlib stream of:

    size  field
       4  length n of the data version
       n  data version, JSON
       4  count of topics
          of each: length (4), then "name readQueueNums writeQueueNums perm filterType"
       4  length m of the filter servers, then m bytes: they are not read

Source: spec: remoting §2.3; rocketmq-all-4.9.8 RegisterBrokerBody.java, TopicConfig.java.
"""

import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from rmqha.codec.json_walk import VALUE_SIZE_MAX, JsonWalk
from rmqha.codec.route import PERM_READ, PERM_WRITE, QueueData
from rmqha.errors import RemoteProtocolError

WRAPPED_VERSION: Final = 37
NAME_SIZE_MAX: Final = 255
"""Characters of a broker's, a cluster's or a topic's name."""
TOPICS_MAX: Final = 200_000
"""Of one registration: read, and not yet kept, they take some 50 MB."""
_INFLATED_SIZE_MAX: Final = 64 * 1024 * 1024
_INFLATED_AT_ONCE: Final = 64 * 1024
_GIVEN_AT_ONCE: Final = 4 * 1024
_QUEUE_NUMS: Final = 16
_INT32: Final = range(-(1 << 31), 1 << 31)
_INT64: Final = range(-(1 << 63), 1 << 63)
_LENGTH: Final = struct.Struct(">i")


class DataVersion(NamedTuple):
    """Which topics a broker had told; another one means that they may be others."""

    timestamp: int = 0
    counter: int = 0

    def to_json(self) -> dict[str, int]:
        """The members as RocketMQ writes them."""
        return {"counter": self.counter, "timestamp": self.timestamp}

    @classmethod
    def from_json(cls, value: Any) -> "DataVersion":
        """As any broker writes it; null is (0, 0). Raises RemoteProtocolError."""
        try:
            members = value or {}
            return cls(_integer(members.get("timestamp") or 0, _INT64), _integer(members.get("counter") or 0, _INT64))
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            raise RemoteProtocolError(f"dataVersion does not parse: {error!r:.200}") from None


NO_TOPICS: Final = DataVersion()


Entry = tuple[str, QueueData]


class RegisteredTopics:
    """Iterate over it once, in short steps: each topic and its queues, and None for a step that found something else.

    A topic with a name that cannot be kept is left out, not the broker: a RocketMQ broker makes such of a group with a
    name as long as may be, and no message can be sent to it.

    Attributes:
        data_version: complete once the last topic has come.
        left_out: how many topics were.
        why_left_out: of the first of them; empty: none was.
    """

    def __init__(self, body: bytes | memoryview, broker_name: str, *, version: int, compressed: bool) -> None:
        """Read nothing yet.

        Args:
            body: as received; empty: no topics.
            broker_name: whose queues they are.
            version: of the protocol that the broker speaks.
            compressed: as its header says.
        """
        self._body = body
        self._broker_name = broker_name
        self._is_wrapped = version >= WRAPPED_VERSION
        self._is_compressed = compressed
        self.data_version = DataVersion()
        self.left_out, self.why_left_out = 0, ""

    def __iter__(self) -> Iterator[Entry | None]:
        """Raises RemoteProtocolError at what is no such body, or at more topics than are taken."""
        count = 0
        for entry in self._steps():
            count += entry is not None
            if count + self.left_out > TOPICS_MAX:
                raise RemoteProtocolError(f"a registration of more than {TOPICS_MAX} topics")
            yield entry

    def _steps(self) -> Iterator[Entry | None]:
        if not self._body:
            return
        if self._is_compressed:
            yield from self._inflate(_Inflated(bytes(self._body)))
            return
        try:
            walk = JsonWalk(bytes(self._body).decode())
        except UnicodeDecodeError as error:
            raise RemoteProtocolError(f"a registration is not UTF-8: {error}") from None
        if not self._is_wrapped:
            yield from self._wrapper(walk)
            return
        for key in walk.members():
            if key == "topicConfigSerializeWrapper":
                yield from self._wrapper(walk)
            else:
                walk.take()
                yield None

    def _wrapper(self, walk: JsonWalk) -> Iterator[Entry | None]:
        for key in walk.members():
            if key == "dataVersion":
                self.data_version = DataVersion.from_json(walk.take())
            elif key == "topicConfigTable":
                for topic in walk.members():
                    yield self._entry(topic, walk.take())
            else:
                walk.take()
            yield None

    def _entry(self, topic: str, value: Any) -> Entry | None:
        try:
            read, write, perm, flag = (
                value.get("readQueueNums", _QUEUE_NUMS),
                value.get("writeQueueNums", _QUEUE_NUMS),
                value.get("perm", PERM_READ | PERM_WRITE),
                value.get("topicSysFlag", 0),
            )
            return self._queues(topic, read, write, perm=perm, flag=flag)
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            raise RemoteProtocolError(f"topic {topic:.80} does not parse: {error!r:.200}") from None

    def _queues(self, topic: str, read: Any, write: Any, *, perm: Any, flag: Any = 0) -> Entry | None:
        if problem := _name_problem("topic", topic):
            self.left_out, self.why_left_out = self.left_out + 1, self.why_left_out or problem
            return None
        numbers = [_integer(value, _INT32) for value in (read, write, perm, flag)]
        return topic, QueueData(self._broker_name, *numbers)

    def _inflate(self, inflated: "_Inflated") -> Iterator[Entry | None]:
        try:
            self.data_version = DataVersion.from_json(json.loads(inflated.take_block()))
            for _ in range(inflated.take_number()):
                topic, read, write, perm, *_others = inflated.take_block().decode().split(" ")
                yield self._queues(topic, read, write, perm=perm)
        except (zlib.error, ValueError, RecursionError) as error:
            raise RemoteProtocolError(f"a compressed registration does not parse: {error!r:.200}") from None


def check_name(what: str, name: str) -> None:
    """Raises RemoteProtocolError if it is empty, too long, or no text that UTF-8 can hold."""
    if problem := _name_problem(what, name):
        raise RemoteProtocolError(problem)


def _name_problem(what: str, name: str) -> str:
    if not 0 < len(name) <= NAME_SIZE_MAX:
        return f"a {what}'s name of {len(name)} characters: it has to have 1 to {NAME_SIZE_MAX}"
    try:
        name.encode()
    except UnicodeEncodeError:
        return f"a {what}'s name holds half a surrogate pair, which is no text"
    return ""


def _integer(value: Any, numbers: range) -> int:
    number = int(value)
    if number not in numbers:
        raise ValueError(f"a number that is too large: {number:.0e}")
    return number


class _Inflated:
    """A zlib stream, of which no more is inflated at once than is asked for."""

    def __init__(self, data: bytes) -> None:
        self._stream = zlib.decompressobj()
        self._data = data
        self._given = 0
        self._buffer = bytearray()
        self._size = 0

    def take_number(self) -> int:
        """The next four bytes, big-endian."""
        number: int = _LENGTH.unpack(self._take(_LENGTH.size))[0]
        return number

    def take_block(self) -> bytes:
        """What follows the next length."""
        size = self.take_number()
        if not 0 <= size <= VALUE_SIZE_MAX:
            raise RemoteProtocolError(f"a compressed registration has a part of {size} bytes")
        return self._take(size)

    def _next_slice(self) -> bytes:
        """What is inflated next: the stream copies what it leaves, so it is given a little at once."""
        begin, self._given = self._given, self._given + _GIVEN_AT_ONCE
        return self._data[begin : self._given]

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            given = self._stream.unconsumed_tail or self._next_slice()
            part = self._stream.decompress(given, _INFLATED_AT_ONCE)
            self._size += len(part)
            if not part and (self._stream.eof or not given):
                raise RemoteProtocolError("a compressed registration ends too soon")
            if self._size > _INFLATED_SIZE_MAX:
                raise RemoteProtocolError(f"a registration inflates to more than {_INFLATED_SIZE_MAX} bytes")
            self._buffer += part
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken
