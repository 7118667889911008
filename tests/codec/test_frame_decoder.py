"""Every chopping of recorded frames gives the same commands, in a buffer of one's own or a shared one."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.codec.frame_decoder import FrameDecoder
from rmqha.codec.remoting import decode_frames

GOLDEN = Path(__file__).parent.parent / "golden" / "remoting"


@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=40),
    st.integers(16, 1500),
    st.sampled_from(["producer-binary", "producer-json"]),
)
def test_two_streams_through_one_buffer_of_any_size_give_the_same_commands(
    sizes: list[int], buffer_size: int, session: str
) -> None:
    """What is held outlives the buffer, which the other stream overwrites; a frame may be larger than the buffer."""
    stream = (GOLDEN / session / "conn-2-master" / "client_to_server.bin").read_bytes()
    stream = stream[: sum(sizes)]
    expected = [command.encode() for command in FrameDecoder().receive_data(stream)]
    buffer = memoryview(bytearray(buffer_size))
    decoders, taken = (FrameDecoder(), FrameDecoder()), [0, 0]
    commands: tuple[list[bytes], list[bytes]] = ([], [])
    for size in [*sizes, *[buffer_size] * len(stream)]:
        for number, decoder in enumerate(decoders):
            space = decoder.space(buffer)
            piece = stream[taken[number] : taken[number] + min(size, len(space))]
            space[: len(piece)] = piece
            taken[number] += len(piece)
            commands[number].extend(command.encode() for command in decoder.on_received(buffer, len(piece)))
        if taken == [len(stream)] * 2:
            break
    assert commands == (expected, expected)


@pytest.mark.parametrize("session", ["producer-binary", "producer-json"])
def test_every_chopping_gives_the_same_commands(session: str) -> None:
    stream = (GOLDEN / session / "conn-2-master" / "client_to_server.bin").read_bytes()[:2000]
    whole, taken = decode_frames(stream)
    expected = [command.encode() for command in whole]
    assert len(expected) > 3
    for cut in range(len(stream)):
        decoder = FrameDecoder()
        commands = decoder.receive_data(stream[:cut]) + decoder.receive_data(stream[cut:])
        assert [command.encode() for command in commands] == expected
        assert decoder.pending_size == len(stream) - taken
    decoder = FrameDecoder()
    one_by_one = [c for at in range(len(stream)) for c in decoder.receive_data(stream[at : at + 1])]
    assert [command.encode() for command in one_by_one] == expected
