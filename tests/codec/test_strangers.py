"""Who speaks on the wrong port, and that nobody is taken for somebody else."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.codec.frame_decoder import FrameDecoder
from rmqha.codec.remoting import NoFrameError, RemotingCommand, SerializeType, decode_frames
from rmqha.codec.strangers import describe_on_ha_port, describe_on_remoting_port, is_open_on_ha_port
from rmqha.codec.transfer import encode_frame_header, encode_report

GOLDEN = Path(__file__).parent.parent / "golden"
REQUESTS = sorted(GOLDEN.glob("remoting/*/conn-*/*.bin"))
FOREIGN = [
    (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
    (b"PATCH /x HTTP/1.1\r\n", "HTTP"),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01", "TLS"),
    (b"SSH-2.0-OpenSSH", "SSH"),
    (b"hello wo", "text"),
]


@pytest.mark.parametrize(
    ("first_bytes", "who"),
    [
        *FOREIGN,
        (bytes.fromhex("00000001 0000 0000 0000000000000002"), "controller"),
        (bytes.fromhex("00000001 0001 0001 00000000000000ff"), "controller"),
        (RemotingCommand(105).encode(), "remoting protocol"),
        (RemotingCommand(105).encode()[:10], "remoting protocol"),
        (RemotingCommand(310, serialize=SerializeType.ROCKETMQ, body=bytes(1 << 20)).encode(), "remoting protocol"),
    ],
)
def test_strangers_on_the_ha_port_are_recognised(first_bytes: bytes, who: str) -> None:
    assert who in (describe_on_ha_port(first_bytes) or "")


@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: "/".join(path.parts[-3:]))
def test_every_recorded_client_is_recognised_on_the_ha_port(path: Path) -> None:
    """By each of its frames: any of them may be the first one of a connection."""
    data = path.read_bytes()
    for command in decode_frames(data)[0]:
        if not command.is_response:
            assert "remoting protocol" in (describe_on_ha_port(data[:16]) or "")
        data = data[command.size :]


@given(st.lists(st.integers(0, 2**48 - 1), min_size=1, max_size=4).map(sorted))
def test_a_slave_is_never_taken_for_a_stranger(reports: list[int]) -> None:
    wire = b"".join(map(encode_report, reports))
    for size in range(1, len(wire) + 1):
        assert describe_on_ha_port(wire[:size]) is None


@pytest.mark.parametrize(
    "reports",
    [[0], [1 << 32], [1 << 32, (1 << 32) + 5], [1024, 2048], [2**40], [0x2020], [(200 << 32) + (1 << 24) + 100] * 3],
)
def test_a_slave_that_looks_odd_is_still_one(reports: list[int]) -> None:
    assert describe_on_ha_port(b"".join(map(encode_report, reports))) is None


@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: "/".join(path.parts[-3:]))
def test_until_a_client_is_recognised_it_is_open_who_it_is(path: Path) -> None:
    """From a whole report on; so it makes no difference where the network cuts."""
    data = path.read_bytes()
    assert [is_open_on_ha_port(data[:size]) for size in range(7, 12)] == [False, True, True, False, False]


@given(st.integers(0, 2**42))
def test_hardly_any_report_is_waited_for(offset: int) -> None:
    high, low = divmod(offset, 1 << 32)
    low &= 0xFFFFFF
    is_odd = high == 1 and low in {0, 1, 1 << 16, (1 << 16) + 1}
    assert not is_open_on_ha_port(encode_report(offset)) or is_odd or low < high


def test_too_few_bytes_say_nothing() -> None:
    assert describe_on_ha_port(b"hello") is None
    assert describe_on_remoting_port(b"hello") is None
    assert describe_on_remoting_port(bytes(7)) is None


@pytest.mark.parametrize(("first_bytes", "who"), FOREIGN)
def test_strangers_on_the_remoting_port_are_recognised(first_bytes: bytes, who: str) -> None:
    assert who in (describe_on_remoting_port(first_bytes) or "")


@pytest.mark.parametrize("offset", [0, 1, 4096, (1 << 32) - 1, (1 << 34) - 1, (5 << 32) + 0x7F000000])
@pytest.mark.parametrize("kind", ["report", "reports", "frame"])
def test_replication_on_the_remoting_port_is_recognised(offset: int, kind: str) -> None:
    wire = encode_frame_header(offset, 100) if kind == "frame" else encode_report(offset) * (1 + (kind == "reports"))
    with pytest.raises(NoFrameError) as caught:
        FrameDecoder().receive_data(wire)
    said = describe_on_remoting_port(caught.value.first_bytes) or ""
    assert f"has {offset} bytes" in said
    assert "haMasterAddress" in said


def test_behind_a_good_frame_nobody_is_guessed_at() -> None:
    with pytest.raises(NoFrameError) as caught:
        decode_frames(RemotingCommand(105).encode() + bytes(8))
    assert caught.value.first_bytes == b""
    assert describe_on_remoting_port(b"\xff" * 16) is None
