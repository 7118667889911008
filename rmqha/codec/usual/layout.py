"""Where in the header of a send lies what changes from message to message, and what the rest of it means.

All headers of one form and size whose changing parts lie at the same places are cut by one struct. What is left between
the cuts was understood once, by the general code (:mod:`rmqha.codec.usual.study`), and is looked up by its bytes.
"""

import struct
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, Final, NamedTuple

from rmqha.codec.remoting import SerializeType
from rmqha.codec.send_headers import SendMessageRequestHeader


class Places(NamedTuple):
    """Where what changes begins and ends in a header; the key lies in the properties, and may be empty."""

    opaque: tuple[int, int]
    born: tuple[int, int]
    properties: tuple[int, int]
    key: tuple[int, int]


class Head:
    """What a send says beyond its changing parts.

    Attributes:
        header: of such a send, with no properties and a born time of 0.
        known: what a processor made of it; nothing else uses it.
    """

    __slots__ = ("header", "known")

    def __init__(self, header: SendMessageRequestHeader) -> None:
        self.header: Final = header
        self.known: Any = None


class Shape:
    """Properties that differ in the unique key only.

    Attributes:
        before: what stands before the key, unescaped.
        after: what stands behind it.
        key_size: how long it is; 0 if there is none.
        known: as in :class:`Head`.
    """

    __slots__ = ("after", "before", "key_size", "known")

    def __init__(self, before: bytes, after: bytes, key_size: int) -> None:
        self.key_size: Final = key_size
        self.before: Final = before
        self.after: Final = after
        self.known: Any = None


class Layout:
    """One way to cut headers, and all that is known of headers cut like this.

    A header's parts are what its cuts give, in their order: at even places what stays the same, at odd ones what
    changes. ``cut.pack(*parts)`` is the header again. Heads and shapes belong to their layout: the same bytes cut
    elsewhere may mean something else.
    """

    __slots__ = (
        "born_at", "cut", "heads", "is_json", "opaque_at", "places", "properties_at", "serialize", "shapes", "size",
    )  # fmt: skip

    def __init__(self, places: Places, *, size: int, serialize: int) -> None:
        self.places: Final = places
        self.size: Final = size
        """Bytes of the header."""
        self.serialize: Final = serialize
        self.is_json: Final = serialize == SerializeType.JSON
        self.heads: Final[dict[tuple[bytes, ...], Head]] = {}
        """By the parts that stay the same."""
        self.shapes: Final[dict[tuple[bytes, ...], Shape]] = {}
        """By the properties before and behind the key."""
        before, after = (places.properties[0], places.key[0]), (places.key[1], places.properties[1])
        cuts = sorted([places.opaque, places.born, before, places.key, after])
        formats, end = [], 0
        for begin, behind in cuts:
            number = not self.is_json and begin == places.opaque[0]
            formats += [f"{begin - end}s", "i" if number else f"{behind - begin}s"]
            end = behind
        self.cut: Final = struct.Struct(">" + "".join(formats) + f"{size - end}s")
        self.opaque_at: Final = 2 * cuts.index(places.opaque) + 1
        """Which of the parts it is."""
        self.born_at: Final = 2 * cuts.index(places.born) + 1
        self.properties_at: Final = 2 * cuts.index(before) + 1
        """Which of the parts the properties before the key are; two further is the key, then what is behind it."""

    def plain(self, raw: bytes) -> bytes | None:
        """The properties that ``raw`` stands for in such a header; None leaves it to the general code."""
        if not self.is_json:
            return raw if raw.isascii() else None
        try:
            plain, end = scanstring(raw.decode("ascii") + '"', 0)
        except ValueError:
            return None
        return plain.encode() if end > len(raw) and plain.isascii() else None
