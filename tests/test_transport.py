"""TcpStream over a socket that takes as little as it likes; real ones are in tests/e2e/test_transport.py."""

import errno
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from rmqha.memory import BytesLike
from rmqha.store.disk import DataFile
from rmqha.store.os_disk import OsDisk
from rmqha.transport import ACCEPTED_IN_A_ROW_MAX, TcpListener, TcpNetwork, TcpStream

HEADER = b"twelve bytes"


class StingySocket:
    """Takes so many bytes of each send, and nothing where that is 0; then everything."""

    def __init__(self, takes: Sequence[int], descriptor: int) -> None:
        self.taken = b""
        self._takes = [*takes]
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def setblocking(self, flag: bool) -> None:
        pass

    def setsockopt(self, level: int, name: int, value: int) -> None:
        pass

    def send(self, data: BytesLike) -> int:
        size = self._takes.pop(0) if self._takes else len(data)
        if size == 0:
            raise BlockingIOError
        self.taken += bytes(data)[:size]
        return min(size, len(data))

    def sendmsg(self, buffers: Sequence[BytesLike]) -> int:
        return self.send(b"".join(buffers))


@pytest.fixture
def writable() -> Iterator[int]:
    """A descriptor that can be written to at any time."""
    ends = socket.socketpair()
    yield ends[0].fileno()
    for end in ends:
        end.close()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[DataFile]:
    disk = OsDisk()
    made = disk.create(f"{tmp_path}/file", 4096, sparse=True)
    made.pwrite([bytes(range(256)) * 16], 0)
    yield made
    made.close()


@pytest.mark.parametrize(
    "takes",
    [[], [0], [0, 5], [5], [5, 0, 3], [11], [12], [12, 0], [13], [13, 0, 1], [99], [0, 12, 0, 99]],
    ids=str,
)
async def test_a_frame_that_is_taken_in_parts_is_the_same_frame(
    takes: list[int], writable: int, file: DataFile
) -> None:
    stingy = StingySocket(takes, writable)
    stream = TcpStream(cast(socket.socket, stingy), ("127.0.0.1", 10912))
    await stream.send_file(HEADER, file, 700, 100)
    assert stingy.taken == HEADER + bytes(file.view()[700:800])


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        (("10.0.0.5", 80), "10.0.0.5:80"),
        (("::ffff:10.0.0.5", 80, 0, 0), "10.0.0.5:80"),
        (("::1", 80, 0, 0), "[::1]:80"),
        (("::ffff:0:1", 80, 0, 0), "[::ffff:0:1]:80"),
    ],
)
def test_an_ipv4_peer_has_one_name_whatever_the_listener_is_for(
    address: tuple[str, int], peer: str, writable: int
) -> None:
    """A slave comes to the HA port by ``::``, and says who it is on a port of ``0.0.0.0``."""
    stream = TcpStream(cast(socket.socket, StingySocket([], writable)), address)
    assert stream.peer == peer


@pytest.mark.parametrize("host", ["a" * 64, "..", "xn--\u200d", "\ud7ff"])
async def test_a_name_that_cannot_be_looked_up_is_not_connected_to(host: str) -> None:
    """A name server named such a master, and each slave that asked it ended."""
    with pytest.raises(OSError, match="name"):
        await TcpNetwork().connect(host, 10912, timeout_s=5)


async def test_who_connects_does_not_wait_for_a_pass_of_the_event_loop_for_each_before_it() -> None:
    """With 300 clients at dear requests, a pass takes 0.3 s, and another client was accepted after 30 s."""
    passes, count = 0, ACCEPTED_IN_A_ROW_MAX + 10

    class Passes(trio.abc.Instrument):
        def before_io_wait(self, timeout: float) -> None:
            nonlocal passes
            passes += 1

    listener = await TcpNetwork().listen("127.0.0.1", 0)
    with ExitStack() as open_sockets:
        for _ in range(count):
            open_sockets.enter_context(socket.create_connection(("127.0.0.1", listener.port)))
        counter = Passes()
        trio.lowlevel.add_instrument(counter)
        for _ in range(count):
            open_sockets.callback((await listener.accept()).close)
        trio.lowlevel.remove_instrument(counter)
        with trio.move_on_after(0.01) as nobody_else:
            await listener.accept()
        assert nobody_else.cancelled_caught
    listener.close()
    assert 2 <= passes <= count / 2, "the others have had their turns too"


class FullTable:
    """A listening socket, of a process that may open no more."""

    def fileno(self) -> int:
        return self._waiting.fileno()

    def __init__(self, waiting: socket.socket, port: int) -> None:
        self._waiting = waiting
        self._port = port
        self.is_full = True

    def setblocking(self, _flag: bool) -> None:
        pass

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", self._port

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        if self.is_full:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return socket.socket(), ("127.0.0.1", 1)


async def test_who_lacks_descriptors_says_so_once_a_minute_and_goes_on(mock_clock: MockClock) -> None:
    told = list[tuple[int, str]]()
    one, other = socket.socketpair()
    with one, other:
        other.send(b"somebody connects")
        table = FullTable(one, 10911)
        listener = TcpListener(
            cast("socket.socket", table), tell_lacking=lambda port, error: told.append((port, str(error.strerror)))
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_accept_one, listener)
            for seconds, lines in ((0.1, 1), (59, 1), (2, 2)):
                for _ in range(round(seconds * 10)):
                    mock_clock.jump(0.1)
                    await wait_all_tasks_blocked()
                assert told == [(10911, "Too many open files")] * lines
            table.is_full = False
            mock_clock.jump(1)


async def _accept_one(listener: TcpListener) -> None:
    (await listener.accept()).close()


async def test_where_the_kernel_cannot_keep_less_it_is_listened_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """An emulated kernel, as of a sandbox, may not know the option."""
    monkeypatch.setattr(socket, "TCP_NOTSENT_LOWAT", 9999)
    listener = await TcpNetwork().listen("127.0.0.1", 0, unsent_bytes_max=65_536)
    assert listener.port
    listener.close()


@pytest.mark.parametrize("unsent_bytes_max", [None, 65_536])
async def test_the_kernel_keeps_little_for_a_client_that_takes_nothing(unsent_bytes_max: int | None) -> None:
    network, size = TcpNetwork(), 64 << 20
    listener = await network.listen("127.0.0.1", 0, unsent_bytes_max=unsent_bytes_max)
    reader = await network.connect("127.0.0.1", listener.port, timeout_s=5)
    stream = await listener.accept()
    sent = in_vain = 0
    while sent < size and in_vain < 50:  # then nothing is on its way to the reader's side any more
        taken = stream.send_nowait(bytes(1 << 20))
        sent, in_vain = sent + taken, 0 if taken else in_vain + 1
        await trio.sleep(0.01)
    for one in (stream, reader, listener):
        one.close()
    assert sent < size
    assert (sent < 1 << 20) == (unsent_bytes_max is not None)
