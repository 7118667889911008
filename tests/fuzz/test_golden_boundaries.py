"""Every byte boundary of every recorded stream: wherever TCP cuts, the same comes out."""

from itertools import pairwise
from pathlib import Path

import pytest

from rmqha.codec.frame_decoder import FrameDecoder
from rmqha.codec.remoting import decode_frames
from rmqha.codec.transfer import FRAME_HEADER_SIZE, ReportDecoder, decode_frame_header
from rmqha.replication.overlap import StreamStart
from rmqha.replication.slave_session import AppendChunk, SlaveSession
from tests.fuzz.targets import GOLDEN
from tests.ha.captures import Capture

REMOTING = sorted(GOLDEN.glob("remoting/*/conn-*/*.bin"))
REPORTS = sorted(GOLDEN.glob("ha/*/conn-*/slave_to_master.bin"))
FRAMES = [
    path
    for path in sorted(GOLDEN.glob("ha/*/conn-*/master_to_slave.bin"))
    if path.stat().st_size and path.parts[-3:-1] != ("reconnect", "conn-2")  # begins inside a record: we never ask so
]


def name_of(path: Path) -> str:
    return "/".join(path.relative_to(GOLDEN).parts[1:]).removesuffix(".bin")


def frames_of(stream: bytes) -> list[bytes]:
    frames, at = [], 0
    while at < len(stream):
        end = at + 4 + int.from_bytes(stream[at : at + 4])
        frames.append(stream[at:end])
        at = end
    return frames


@pytest.mark.parametrize("path", REMOTING, ids=name_of)
def test_remoting(path: Path) -> None:
    """Two neighbouring frames at a time: a cut inside the first is all that a decoder can see of it."""
    for first, second in pairwise([*frames_of(path.read_bytes()), b""]):
        data = first + second
        expected = [command.encode() for command in decode_frames(data)[0]]
        for cut in range(len(first) + 1):
            decoder = FrameDecoder()
            commands = decoder.receive_data(data[:cut])
            assert decoder.pending_size == (cut if cut < len(first) else 0)
            commands += decoder.receive_data(data[cut:])
            assert [command.encode() for command in commands] == expected
            assert decoder.pending_size == 0


@pytest.mark.parametrize("path", REPORTS, ids=name_of)
def test_reports(path: Path) -> None:
    data = path.read_bytes()
    expected = ReportDecoder().receive_data(data)
    for cut in range(len(data) + 1):
        decoder = ReportDecoder()
        assert decoder.receive_data(data[:cut]) + decoder.receive_data(data[cut:]) == expected
    decoder = ReportDecoder()
    assert [report for byte in data for report in decoder.receive_data(bytes([byte]))] == expected


@pytest.mark.parametrize("path", FRAMES, ids=name_of)
def test_frames(path: Path) -> None:
    """Byte by byte, so that each boundary is a cut: the slave gets the bytes that were sent, and no others."""
    data = path.read_bytes()
    first = decode_frame_header(data).phy_offset
    file_size = Capture(path.parts[-3]).file_size
    bodies = body_bytes(data)
    start = StreamStart(first, first, first, first) if first % file_size else StreamStart(0)
    session = SlaveSession(start, file_size=file_size)
    taken = bytearray()
    for at in range(len(data)):
        session.space()[:1] = data[at : at + 1]
        session.on_received(1)
        while (chunk := session.next_chunk()) is not None:
            assert isinstance(chunk, AppendChunk)
            taken += chunk.data
    assert bodies.startswith(taken)
    assert session.position == first + len(bodies)


def body_bytes(stream: bytes) -> bytes:
    bodies, at = b"", 0
    while at + FRAME_HEADER_SIZE <= len(stream):
        size = decode_frame_header(stream, at).body_size
        bodies += stream[at + FRAME_HEADER_SIZE : at + FRAME_HEADER_SIZE + size]
        at += FRAME_HEADER_SIZE + size
    return bodies
