"""Streams of sends, usual, odd and damaged ones, as clients of many kinds might write them; deterministic by seed."""

import json
import struct
from collections.abc import Iterator
from random import Random
from typing import Any, Final

_BINARY: Final = struct.Struct(">hBhiiii")
_TOPICS: Final = ("orders", "orders", "orders", "payments-and-refunds", "%RETRY%group")
_ODD_TOPICS: Final = ("SCHEDULE_TOPIC_XXXX", "a b", "", "new-{number}", "t" * 128, "topic\u00e4")
_ODD_PROPERTIES: Final = (
    "",
    "TAGS\x01x",
    "WAIT\x01false\x02TAGS\x01x",
    "WAIT\x01true",
    "UNIQ_KEY\x01{key}\x02DELAY\x013",
    "UNIQ_KEY\x01{key}\x02TRAN_MSG\x01true",
    "UNIQ_KEY\x01{key}\x02CLUSTER\x01other\x02WAIT\x01true",
    "UNIQ_KEY\x01{key}\x02UNIQ_KEY\x01{key}",
    "MY_UNIQ_KEY\x01{key}\x02TAGS\x01x",
    "UNIQ_KEY\x01{key}\x02TAGS\x01\u00fcber {key}",
    'UNIQ_KEY\x01{key}\x02note\x01"quoted" \\ back {slash} \n\t}}',
    "UNIQ_KEY\x01\x02TAGS\x01x",
    "UNIQ_KEY\x01{key}\x02nul\x01\0",
    "\x02\x01\x02UNIQ_KEY\x01{key}\x02\x02a\x01b\x01c\x02",
    "UNIQ_KEY\x01{key}\x02" + "long\x01" + "x" * 1500,
    "TAGS\x01UNIQ_KEY\x02UNIQ_KEY\x01{key}",
    "UNIQ_KEY\x01{key} {number}\x02WAIT\x01TRUE",
)
_USUAL_PROPERTIES: Final = (
    "UNIQ_KEY\x01{key}\x02WAIT\x01true\x02TAGS\x01load",
    "UNIQ_KEY\x01{key}\x02WAIT\x01true",
    "KEYS\x01order-{number:06d}\x02UNIQ_KEY\x01{key}\x02WAIT\x01true\x02TAGS\x01tag-{number:06d}",
    "TAGS\x01constant\x02WAIT\x01true",
)


class Client:
    """One way to write requests; most of its sends differ in what changes only."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._is_binary = random.random() < 0.3
        self._separators = random.choice(((",", ":"), (",", ":"), (", ", ": ")))
        self._order = random.sample(("code", "extFields", "flag", "language", "opaque", "version", "more"), 7)
        self._fields = random.sample("abcdefghijklm", 13) if random.random() < 0.6 else "abcdefghijkm"
        self._numbers = random.random() < 0.1
        self._opaque = random.choice((0, 5, 95, 99_990, 100_000_000, 2_147_483_000, -5))
        self._queues = random.choice(("0123", "0123", ("-1", "0")))
        self._properties = random.sample(_USUAL_PROPERTIES, 2)

    def request(self, number: int, *, odd: float) -> bytes:
        """The next one; ``odd`` of all are not usual in something."""
        random = self._random
        self._opaque += 1
        key, queue = f"{random.getrandbits(128):032X}", random.choice(self._queues)
        fields = {
            "a": "group", "b": random.choice(_TOPICS), "c": "TBW102", "d": "4", "e": queue, "f": "0",
            "g": str(1_700_000_000_000 + number), "h": "0", "i": random.choice(self._properties), "j": "0",
            "k": "false", "l": "3", "m": "false",
        }  # fmt: skip
        header: dict[str, Any] = {"code": 310, "flag": 0, "language": "JAVA", "opaque": self._opaque, "version": 395}
        header["more"] = None
        body = random.randbytes(random.choice((0, 1, 20, 20, 300)))
        if random.random() < odd / 3:
            body = self._make_batch(header, fields)
        if random.random() < odd:
            body = self._make_odd(header, fields, body)
        fields = {name: fields[name] for name in self._fields if name in fields}
        if "i" in fields:
            fields["i"] = fields["i"].replace("{key}", key).replace("{number:06d}", f"{number:06d}")
            fields["i"] = fields["i"].replace("{number}", str(number))
        if "b" in fields:
            fields["b"] = fields["b"].replace("{number}", str(number // 10))
        raw = self._binary(header, fields) if self._is_binary else self._json(header, fields)
        if random.random() < odd / 4:
            raw = self._damaged(raw)
        prefix = (4 + len(raw) + len(body)).to_bytes(4, "big") + (self._is_binary << 24 | len(raw)).to_bytes(4, "big")
        return prefix + raw + body

    def _make_batch(self, header: dict[str, Any], fields: dict[str, str]) -> bytes:
        """Of messages that are alike, as a rule; now and then it is damaged."""
        random = self._random
        header["code"], fields["m"], fields["i"] = 320, "true", random.choice(("WAIT\x01true", *_ODD_PROPERTIES))
        own, size, parts = random.choice(_USUAL_PROPERTIES + _ODD_PROPERTIES), random.randrange(300), []
        for number in range(random.choice((1, 3, 10, 40))):
            if random.random() < 0.02:
                own, size = random.choice(_ODD_PROPERTIES), random.randrange(300)
            text = own.replace("{key}", f"{random.getrandbits(128):032X}").replace("{number:06d}", f"{number:06d}")
            entry, properties = random.randbytes(size), text.encode()
            head = struct.pack(">iiiii", 22 + size + len(properties), 0, 0, 0, size)
            parts.append(head + entry + struct.pack(">h", len(properties)) + properties)
        body = b"".join(parts)
        return body[: random.randrange(len(body))] if random.random() < 0.1 else body

    def _make_odd(self, header: dict[str, Any], fields: dict[str, str], body: bytes) -> bytes:
        random = self._random
        match random.randrange(10):
            case 0:
                fields["i"] = random.choice(_ODD_PROPERTIES)
            case 1:
                fields["b"] = random.choice(_ODD_TOPICS)
            case 2:
                fields["e"] = random.choice(("-1", "99", "", "x", "00", "2147483648"))
            case 3:
                fields["f"] = random.choice(("4", "8", "1", "16", "-1"))
            case 4:
                fields["g"] = random.choice(("0", "-1700000000000", "0700000000000", "17000000000000", "1_0", ""))
            case 5:
                header["flag"] = random.choice((2, 2, 2, 1, 3, 4))
            case 6:
                header["opaque"] = random.choice((0, 7, -1, 2_147_483_647, -2_147_483_648, 1_000_000_000))
            case 7:
                header["code"] = random.choice((10, 320, 999, 34, 310))
                fields["m"] = random.choice(("true", "TRUE", "false"))
            case 8:
                body = random.choice((b"x" * 5000, b"x" * 70_000))
            case _:
                del fields[random.choice("abcdefghijkm")]
        return body

    def _json(self, header: dict[str, Any], fields: dict[str, str]) -> bytes:
        values: dict[str, Any] = dict(fields)
        if self._numbers:
            values = {name: int(text) if text.isdigit() and text[0] != "0" else text for name, text in fields.items()}
        whole = header | {"extFields": values}
        text = json.dumps({name: whole[name] for name in self._order}, separators=self._separators)
        return text.encode()

    @staticmethod
    def _binary(header: dict[str, Any], fields: dict[str, str]) -> bytes:
        parts = []
        for name, text in fields.items():
            value = text.encode()
            parts.append(len(name).to_bytes(2, "big") + name.encode() + len(value).to_bytes(4, "big") + value)
        ext = b"".join(parts)
        return _BINARY.pack(header["code"], 0, 395, header["opaque"], header["flag"], 0, len(ext)) + ext

    def _damaged(self, raw: bytes) -> bytes:
        damaged = bytearray(raw)
        damaged[self._random.randrange(len(raw))] = self._random.choice(b'0189AZaz"\\{},: \0\x01\x02\xff')
        return bytes(damaged)


def requests(seed: int, count: int, *, odd: float = 0.15) -> list[bytes]:
    """Frames of a few clients, as they might come over one connection."""
    random = Random(seed)
    clients = [Client(random) for _ in range(random.randint(1, 3))]
    return [random.choice(clients).request(number, odd=odd) for number in range(count)]


def cuts(seed: int, stream: bytes, *, size_max: int) -> Iterator[bytes]:
    """The stream, as a network might cut it."""
    random, at = Random(seed), 0
    while at < len(stream):
        size = random.choice((1, random.randint(1, 100), random.randint(1, size_max), size_max))
        yield stream[at : at + size]
        at += size
