"""A batch is stored as its messages would be one by one, whatever they have in common, and whatever is odd in them."""

import struct
from collections.abc import Iterator
from random import Random
from typing import Final

import pytest

from rmqha.broker.puts.sent_records import SendRules, SentBatch, records_of
from rmqha.codec.batch import BatchEntry, cut_batch, encode_batch, merge_properties
from rmqha.codec.host import parse_host
from rmqha.codec.record.dispatch import read_dispatch
from rmqha.codec.record.encoder import PreparedRecord, prepare
from rmqha.codec.record.prepared_batch import PreparedBatch
from rmqha.codec.send_headers import SendMessageRequestHeader
from rmqha.errors import LocalProtocolError, RemoteProtocolError
from tests.batches import decode_batch

HOST: Final = parse_host("10.0.0.1:99")
PROPERTIES: Final = (
    b"",
    b"UNIQ_KEY\x01%(key)b",
    b"UNIQ_KEY\x01%(key)b\x02WAIT\x01true\x02TAGS\x01tag",
    b"UNIQ_KEY\x01%(key)b\x02WAIT\x01true\x02TAGS\x01tag\x02",
    b"KEYS\x01%(key)b\x02UNIQ_KEY\x01%(key)b\x02TAGS\x01tag",
    b"KEYS\x01order\x02UNIQ_KEY\x01%(key)b\x02TAGS\x01%(key)b",
    b"TAGS\x01A\x02UNIQ_KEY\x01A",
    b"UNIQ_KEY\x01",
    b"UNIQ_KEY\x01%(key)b\x02UNIQ_KEY\x01",
    b"MY_UNIQ_KEY\x01%(key)b",
    b"UNIQ_KEY\x01%(key)b\x02" + b"long\x01" + b"x" * 300,
    b"UNIQ_KEY\x01" + b"%(key)b" * 9,
    b"\x02\x01\x02UNIQ_KEY\x01%(key)b\x02\x02a\x01b\x01c\x02",
    b"UNIQ_KEY\x01%(key)b\x02nul\x01\0",
)
KEYS: Final = (b"%032X", b"%032X", b"%032X", b"%d", b"%d\x02TAGS\x01other", b"a b%d", b"\xff%032d", b"\0%d")
SHARED: Final = (b"", b"WAIT\x01true\x02CLUSTER\x01c", b"UNIQ_KEY\x01of0all\x02CLUSTER\x01c", b"TAGS\x01all\x02")


def messages(random: Random) -> list[BatchEntry]:
    """Mostly alike, as those of a batch are, and some of them odd."""
    properties, key, size, odd = random.choice(PROPERTIES), random.choice(KEYS[:4]), random.randrange(50), 0.0
    if random.random() < 0.6:
        odd = random.choice((0.02, 0.3))
    found = []
    for _ in range(random.choice((1, 2, 3, 4, 5, 30, 300))):
        if random.random() < odd:
            properties, key, size = random.choice(PROPERTIES), random.choice(KEYS), random.randrange(50)
        text = key % random.getrandbits(random.choice((100, 100, 10)))
        flag = random.choice((0, 1, -1)) if random.random() < odd else 0
        found.append(BatchEntry(flag, random.randbytes(size), properties.replace(b"%(key)b", text)))
    return found


def one_by_one(entries: list[BatchEntry], shared: bytes, common: dict[str, object]) -> list[PreparedRecord]:
    return [
        prepare("t", body, properties_raw=merge_properties(own, shared), flag=flag, **common)  # type: ignore[arg-type]
        for flag, body, own in entries
    ]


@pytest.mark.parametrize("seed", range(400))
def test_its_records_are_those_of_its_messages(seed: int) -> None:
    random = Random(seed)
    entries, shared = messages(random), random.choice(SHARED)
    common: dict[str, object] = {
        "queue_id": random.randrange(4),
        "born_timestamp_ms": random.getrandbits(40),
        "born_host_raw": random.choice((HOST, parse_host("[fe80::1]:99"))),
        "store_host_raw": HOST,
        "sys_flag": random.choice((0, 1, 0x10)),
        "reconsume_times": random.randrange(3),
    }
    batch = PreparedBatch(prepare("t", b"", **common))  # type: ignore[arg-type]
    try:
        expected = one_by_one(entries, shared, common)
    except LocalProtocolError as error:
        with pytest.raises(LocalProtocolError, match=str(error)):
            batch.add(*zip(*entries, strict=True), shared=shared)
        assert len(batch) == batch.size == 0
        return
    for flags, bodies, properties, _ in cut_batch(encode_batch(entries), messages_max=100, portion_bytes=4096):
        batch.add(flags, bodies, properties, shared=shared)
    assert [*batch] == expected
    assert batch.size == sum(record.size for record in expected)
    parts: list[bytes] = []
    offsets = batch.append_to(parts, queue_offset=5, physical_offset=1000, store_timestamp_ms=77)  # type: ignore[arg-type]
    log, at = b"", 1000
    for number, record in enumerate(expected):
        assert offsets[number] == at + len(log)
        log += record.pack(queue_offset=5 + number, physical_offset=at + len(log), store_timestamp_ms=77)
    assert b"".join(parts) == log
    read, _ = read_dispatch(log, 0, len(log), phy_offset_base=at)
    told = [(record.tags_code, record.uniq_key, record.keys) for record in batch]
    assert [one for one in told if one[0] is not None] == [
        (one.tags_code, one.uniq_key, one.keys)
        for one, (code, _, _) in zip(read, told, strict=True)
        if code is not None
    ]


@pytest.mark.parametrize(
    "properties",
    [
        [b"KEYS\x01%b\x02UNIQ_KEY\x01A1" % key for key in (b"A1", b"B2", b"C3")],
        [b"UNIQ_KEY\x01%b" % key for key in (b"A23456789012", b"B\x02TAGS\x01other", b"C")],
        [b"UNIQ_KEY\x01%b" % key for key in (b"A23456789012", b"B34\x02TAGS\x01tag", b"C23456789012")],
        [b"UNIQ_KEY\x01%b\x02" % key for key in (b"A2345", b"B2345", b"C\0345")],
    ],
)
def test_what_only_looks_like_another_key_is_read(properties: list[bytes]) -> None:
    common: dict[str, object] = {
        "queue_id": 0, "born_timestamp_ms": 1, "born_host_raw": HOST, "store_host_raw": HOST
    }  # fmt: skip
    batch = PreparedBatch(prepare("t", b"", **common))  # type: ignore[arg-type]
    try:
        expected = one_by_one([BatchEntry(0, b"", raw) for raw in properties], b"", common)
    except LocalProtocolError:
        with pytest.raises(LocalProtocolError, match="NUL"):
            batch.add([0] * 3, [b""] * 3, properties)
        return
    batch.add([0] * 3, [b""] * 3, properties)
    assert [*batch] == expected


def test_most_batches_are_made_at_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of Java's producers, and with bodies of any size."""
    seen: list[int] = []

    def check(raw: bytes) -> None:
        seen.append(len(raw))

    monkeypatch.setattr("rmqha.codec.record.prepared_batch.check_properties", check)
    batch = PreparedBatch(prepare("t", b"", queue_id=0, born_timestamp_ms=1, born_host_raw=HOST, store_host_raw=HOST))
    properties = [b"UNIQ_KEY\x01%032X\x02WAIT\x01true\x02TAGS\x01tag" % number for number in range(100)]
    batch.add([0] * 100, [bytes(number) for number in range(100)], properties, shared=b"CLUSTER\x01c")
    assert (len(batch), len(seen)) == (100, 1)


def damaged(random: Random, body: bytes) -> bytes:
    """Shorter, longer, or with another number somewhere, lengths among them."""
    at = random.randrange(len(body))
    match random.randrange(4):
        case 0:
            return body[:at]
        case 1:
            return body + random.randbytes(random.randrange(1, 60))
        case 2:
            return body[:at] + random.choice((b"\0", b"\xff", b"\x7f", b"\x01")) + body[at + 1 :]
        case _:
            number = random.choice((-1, 0, 1, 0x7FFFFFFF, len(body)))
            return (body[:at] + struct.pack(">i", number) + body[at + 4 :])[: len(body)]


def entries_of(body: bytes) -> Iterator[BatchEntry]:
    """As the format says, and no faster."""
    at = 0
    while at < len(body):
        flag, size = struct.unpack_from(">12xii", body, at)
        if size < 0 or at + 22 + size > len(body):
            raise ValueError("the body")
        (properties_size,) = struct.unpack_from(">h", body, at + 20 + size)
        behind = at + 22 + size + properties_size
        if properties_size < 0 or behind > len(body):
            raise ValueError("the properties")
        yield BatchEntry(flag, body[at + 20 : at + 20 + size], body[at + 22 + size : behind])
        at = behind


@pytest.mark.parametrize("seed", range(400))
def test_a_damaged_batch_is_what_is_left_of_it_or_none(seed: int) -> None:
    random = Random(seed)
    body = damaged(random, encode_batch(messages(random)))
    try:
        expected = [*entries_of(body)]
    except (ValueError, struct.error):
        with pytest.raises(RemoteProtocolError, match="batch entry"):
            decode_batch(body)
        with pytest.raises(RemoteProtocolError, match="batch entry"):
            [*cut_batch(body, messages_max=7, portion_bytes=999)]
        return
    assert decode_batch(body) == expected
    portions = [*cut_batch(body, messages_max=7, portion_bytes=999)]
    assert [BatchEntry(*one) for portion in portions for one in zip(*portion[:3], strict=True)] == expected
    assert all(len(portion.flags) <= 7 for portion in portions)
    assert not portions or portions[-1].left_bytes == 0


def sent(entries: list[BatchEntry], shared: bytes = b"CLUSTER\x01c") -> SentBatch:
    header = SendMessageRequestHeader("g", "t", "TBW102", 4, 0, 0, 1, 0, b"", 0, False, None, True, None)
    rules = SendRules("c", HOST, 4 << 20)
    made = records_of(header, encode_batch(entries), rules=rules, born_host=HOST, queue_id=0, properties=shared)
    assert isinstance(made, SentBatch)
    return made


@pytest.mark.parametrize("body_size", [0, 1, 100])
def test_sizes_that_cancel_out_are_damage(body_size: int) -> None:
    """An entry of no bytes at all."""
    body = struct.pack(">iiiii", 0, 0, 0, 0, body_size) + bytes(body_size) + struct.pack(">h", -(22 + body_size))
    with pytest.raises(RemoteProtocolError, match="properties length"):
        [*cut_batch(body + bytes(200), messages_max=7, portion_bytes=999)]


def test_a_batch_is_large_by_what_it_holds_and_not_by_what_it_might() -> None:
    """32 messages of 1 KiB were held for 1,600 empty ones: each such batch was appended alone."""
    assert not sent([BatchEntry(0, bytes(1024), b"UNIQ_KEY\x01%032d" % number) for number in range(32)]).is_large
    assert sent([BatchEntry(0, b"", b"")] * 1000).is_large
    assert sent([BatchEntry(0, bytes(100_000), b"")] * 3).is_large
    assert sent([BatchEntry(0, b"x", b"")] * 20, shared=b"K\x01" + b"v" * 32_000).is_large


def test_a_large_batch_takes_steps() -> None:
    for entries, shared in (
        ([BatchEntry(0, b"x", b"")] * 3000, b"CLUSTER\x01c"),
        ([BatchEntry(0, bytes(100_000), b"")] * 30, b""),
        ([BatchEntry(0, b"x", b"")] * 100, b"K\x01" + b"v" * 32_000),
    ):
        assert len([*sent(entries, shared).prepare()]) > 9
