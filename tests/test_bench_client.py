"""The benchmarks' client writes what it says, and counts what it is answered."""

import pytest

from rmqha.codec.remoting import decode_frames
from rmqha.codec.send_headers import SendMessageRequestDecoder
from scripts.bench_client import Case, Ring, read_binary, read_json
from tests.e2e.dialects import DIALECTS
from tests.e2e.load import OPAQUE_BASE


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("keys", [False, True])
def test_each_request_is_another_also_when_the_ring_comes_round(dialect: str, *, keys: bool) -> None:
    ring = Ring(Case(100, 7, dialect=dialect, topics=3, keys=keys))
    decode, opaques, stored = SendMessageRequestDecoder().decode, [], []
    for requests in (7, 250, 1, 255, 200):
        pieces = ring.next(requests)
        frames, end = decode_frames(b"".join(pieces), frame_size_max=1 << 20, header_size_max=1 << 16)
        assert (len(frames), end) == (requests, sum(map(len, pieces)))
        opaques += [frame.opaque for frame in frames]
        headers = [decode(frame) for frame in frames]
        stored += [header.properties for header in headers]
        assert {header.topic for header in headers} <= {"bench", "bench-00001", "bench-00002"}
        assert all(bytes(frame.body) == bytes(range(100)) for frame in frames)
    assert opaques == [*range(OPAQUE_BASE, OPAQUE_BASE + 713)]
    assert len(set(stored)) == 713
    assert len({properties.partition(b"UNIQ_KEY")[0] for properties in stored}) == (713 if keys else 1)


def test_many_connections_share_what_is_written() -> None:
    for window in (1000, 64):
        rings = [Ring(Case(1024, window, connections=1000)) for _ in range(3)]
        assert all(sum(map(len, ring.next(1))) > 1024 for ring in rings for _ in range(50))
        assert all(sum(map(len, ring.next(4))) < 8192 for ring in rings)


def test_answers_in_json_may_be_cut_anywhere() -> None:
    one = b'\0\0\0\x60\0\0\0\x5c{"code":%d,"extFields":{},"flag":1,"language":"JAVA","opaque":%d,"version":395}'
    data, opaques, refused, rest = b"".join(one % (11 * (n == 2), OPAQUE_BASE + n) for n in range(4)), [], 0, b""
    for at in range(0, len(data), 10):
        some, not_ok, rest = read_json(rest + data[at : at + 10])
        opaques += some
        refused += not_ok
    assert (opaques, refused) == ([OPAQUE_BASE + n for n in range(4)], 1)


def test_binary_answers_may_be_cut_anywhere() -> None:
    one = b"\0\0\0\x1b\1\0\0\x17" + b"\0%c" + b"\0\1\x8b" + b"\5\xf5\xe1%c" + b"\0\0\0\1" + bytes(8) + b"xy"
    data, opaques, refused, rest = b"".join(one % (11 * (n == 2), n) for n in range(4)), [], 0, b""
    for at in range(0, len(data), 10):
        some, not_ok, rest = read_binary(rest + data[at : at + 10])
        opaques += some
        refused += not_ok
    assert (opaques, refused) == ([OPAQUE_BASE + n for n in range(4)], 1)
