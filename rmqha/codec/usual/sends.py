"""UsualSends. Hot path: cuts the sends out of a stream that are written as others before them were.

What it does not know, or what does not fit, it leaves untouched: that goes the general way
(:func:`rmqha.codec.remoting.decode_frames`), which shows it here, so that the next one of its kind is known. What a
frame means is the same either way (``tests/codec/test_usual_sends.py``, ``tests/broker/test_usual_sends.py``).
"""

import struct
from itertools import chain
from typing import Any, Final, NamedTuple

from rmqha.codec.acl import SIGNATURE
from rmqha.codec.codes import RequestCode
from rmqha.codec.remoting import RemotingCommand, decode_header
from rmqha.codec.usual.layout import Head, Layout, Shape
from rmqha.codec.usual.study import READINGS, places_in, understand_head, understand_shape
from rmqha.memory import BytesLike

_PREFIX: Final = struct.Struct(">iI")
_SEND: Final = int(RequestCode.SEND_MESSAGE_V2)
_SIGNED: Final = SIGNATURE.encode()
"""What has such a field is never written as another before it."""
_INT32_MAX: Final = 0x7FFFFFFF
_HEADER_SIZE_MAX: Final = 1024
"""Larger ones are not usual: what is kept of each is their bytes."""
_ALIKE_MAX: Final = 4
"""So many layouts of one form and size: the topic's name is longer, and something else shorter."""
KNOWN_MAX: Final = 12_288
"""Heads, shapes and layouts, of all clients together: some 15 MB, or 60 if all are as large as they may be."""
_FORGET_AFTER: Final = 16 * KNOWN_MAX
"""When there is no room for what is to be learned, and so many were not known, all is forgotten: others came."""
_SEEN_ONCE_MAX: Final = 4096
_FREE_STUDIES: Final = 1024
_MISSES_A_STUDY: Final = 8
"""Of what is not known one in so many is studied, besides the first: that takes longer than the general way."""


class _UsualSend(NamedTuple):
    head: Head
    opaque: int
    born_timestamp_ms: int
    key: bytes
    """The unique key, if ``shape`` is known."""
    shape: Shape | None
    properties: bytes
    """All of them, unescaped, if ``shape`` is not known."""
    body: bytes
    layout: Layout
    parts: tuple[Any, ...]
    size: int
    """Bytes the frame took on the wire."""


class UsualSend(_UsualSend):
    """A request with code 310 that was looked up; see :attr:`command`."""

    __slots__ = ()
    code: Final = _SEND
    flag: Final = 0

    @property
    def serialize(self) -> int:
        """A SerializeType, as a plain int."""
        return self.layout.serialize

    @property
    def command(self) -> RemotingCommand:
        """The request, decoded by the general code."""
        command = decode_header(self.layout.cut.pack(*self.parts), self.layout.serialize)
        command.body, command.size = self.body, self.size
        return command


Request = RemotingCommand | UsualSend
"""What arrives, in the order in which it arrives."""


class UsualSends:
    """What is known of the sends of all clients of a server. Bounded."""

    def __init__(self) -> None:
        self.taken = 0
        """How many were looked up."""
        self.known = 0
        """Heads, shapes and layouts."""
        self._layouts: dict[int, list[Layout]] = {}
        self._forget()

    def _forget(self) -> None:
        for layout in chain.from_iterable(self._layouts.values()):  # sends that wait for their turn hold it
            layout.heads.clear()
            layout.shapes.clear()
        self._layouts = {}
        self._is_crowded = False
        """Something was not learned because too many layouts are alike."""
        self._seen_once: set[int] = set()
        """Hashes of what stands around the key in properties."""
        self.known = self._missed = self._studied = 0

    def take(
        self, buffer: BytesLike, at: int, end: int, *, frames: list[Request], frames_max: float, frame_size_max: int
    ) -> int:
        """Add the sends that begin at ``at`` to ``frames`` while they are usual and whole; returns where they end."""
        layouts_of, prefix, new, begun = self._layouts.get, _PREFIX.unpack_from, tuple.__new__, len(frames)
        while end - at >= 8 and len(frames) < frames_max:
            total, word = prefix(buffer, at)
            layouts = layouts_of(word)
            if layouts is None:
                break
            body_at, frame_end = at + 8 + (word & 0xFFFFFF), at + 4 + total
            if not body_at <= frame_end <= end or total > frame_size_max - 4:
                break
            for layout in layouts:
                parts = layout.cut.unpack_from(buffer, at + 8)
                head = layout.heads.get(parts[::2])
                if head is not None:
                    break
            else:
                break
            born, opaque = parts[layout.born_at], parts[layout.opaque_at]
            if not born.isdigit() or born < b"1":
                break
            if layout.is_json and (not opaque.isdigit() or opaque < b"1" or (opaque := int(opaque)) > _INT32_MAX):
                break
            place = layout.properties_at
            key, properties = parts[place + 2], b""
            shape = layout.shapes.get(parts[place : place + 5 : 4])
            if shape is None or not (key.isalnum() or not key):
                raw = b"".join(parts[place : place + 5])
                shape, plain = None, layout.plain(raw)
                if plain is None:
                    break
                properties = plain
                self._study_shape(layout, parts)
            body = bytes(buffer[body_at:frame_end])
            fields = (head, opaque, int(born), key, shape, properties, body, layout, parts, 4 + total)
            frames.append(new(UsualSend, fields))
            at = frame_end
        self.taken += len(frames) - begun
        return at

    def study(self, buffer: BytesLike, at: int, command: RemotingCommand) -> int:
        """Learn from a request that was not usual, unless it is none to learn from, or others were lately.

        Returns:
            How many bytes of headers that took decoding.
        """
        if command.code != _SEND or command.flag:
            return 0
        self._missed += 1
        _, word = _PREFIX.unpack_from(buffer, at)
        size: int = word & 0xFFFFFF
        header = bytes(buffer[at + 8 : at + 8 + size])
        if size > _HEADER_SIZE_MAX or _SIGNED in header or not self._may_study():
            return 0
        self._study_head(word, header, command.serialize)
        return READINGS * size

    def _study_head(self, word: int, header: bytes, serialize: int) -> None:
        places = places_in(header, serialize)
        if places is None:
            return
        layouts = self._layouts.get(word, [])
        layout = next((one for one in layouts if one.places == places), None)
        if layout is None and len(layouts) == _ALIKE_MAX:
            self._is_crowded = True
            return
        if layout is None:
            layout = Layout(places, size=len(header), serialize=serialize)
        same = layout.cut.unpack(header)[::2]
        head = None if same in layout.heads else understand_head(layout, header)
        if head is None:
            return
        if layout not in layouts:
            self._layouts[word] = [*layouts, layout]
            self.known += 1
        layout.heads[same] = head
        self.known += 1

    def _study_shape(self, layout: Layout, parts: tuple[Any, ...]) -> None:
        """Learn properties that are not known, if they came before: keys and tags may change with each message."""
        place = layout.properties_at
        rest = parts[place : place + 5 : 4]
        if rest in layout.shapes:  # and what stands between is no key
            return
        self._missed += 1
        if self._missed > _FREE_STUDIES and self._missed % _MISSES_A_STUDY:
            return
        seen_as = hash(rest)
        if seen_as not in self._seen_once:
            if len(self._seen_once) >= _SEEN_ONCE_MAX:
                self._seen_once.clear()
            self._seen_once.add(seen_as)
        elif self._may_study():
            shape = understand_shape(layout, layout.cut.pack(*parts))
            if shape is not None:
                layout.shapes[rest] = shape
                self.known += 1

    def _may_study(self) -> bool:
        is_full = self.known >= KNOWN_MAX
        if (is_full or self._is_crowded) and self._missed >= _FORGET_AFTER:
            self._forget()
            return False
        if is_full or self._studied * _MISSES_A_STUDY > self._missed + _FREE_STUDIES * _MISSES_A_STUDY:
            return False
        self._studied += 1
        return True
