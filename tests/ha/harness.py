"""Short words for the tests of replication."""

from collections.abc import Callable, Collection
from typing import NamedTuple

import trio

from rmqha.codec.transfer import FRAME_HEADER_SIZE, decode_frame_header, encode_report
from rmqha.ha.catch_up import TakeTables
from rmqha.ha.catch_up_service import CatchUpHooks, CatchUpService
from rmqha.ha.ha_client import HAClient, MasterAddress, ProbeMaster, ask_nobody
from rmqha.ha.ha_service import HAService
from rmqha.ha.longer_peers import LongerPeers
from rmqha.ha.options import HAClientOptions, HAOptions
from rmqha.ha.replicated_log import ReplicatedLog
from rmqha.replication.master_session import LogRange
from rmqha.store.store_note import StoreNote
from rmqha.transport import Stream
from tests.fakes import MemoryNetwork
from tests.settings import ha_client_options, ha_options
from tests.sim.sim_disk import SimDisk

FILE = 4096


class Frame(NamedTuple):
    t: float
    offset: int
    data: bytes


async def start_master(
    nursery: trio.Nursery, network: MemoryNetwork, log: ReplicatedLog, options: HAOptions | None = None
) -> HAService:
    service = HAService(log, network, options or ha_options())
    await nursery.start(service.run)
    return service


def start_slave(
    nursery: trio.Nursery,
    network: MemoryNetwork,
    log: ReplicatedLog,
    port: int,
    *,
    options: HAClientOptions | None = None,
    probe_master: ProbeMaster = ask_nobody,
) -> HAClient:
    client = HAClient(
        log, network, options=options or ha_client_options(), chance=lambda: 0.0, probe_master=probe_master
    )
    nursery.start_soon(client.run)
    client.update_master_address("master", port)
    return client


async def has_tables(_peer: MasterAddress, _there: LogRange | None, *, is_longer: bool) -> None:
    """Nothing has to be known before."""


def note_on(disk: SimDisk) -> StoreNote:
    """What a store on this disk notes of a log that began empty."""
    return StoreNote(disk.mount(), "/store/beganEmpty")


def longer_peers_on(disk: SimDisk) -> LongerPeers:
    """What a store on this disk notes of peers that hold more."""
    mount = disk.mount()
    mount.makedirs("/store")
    return LongerPeers(mount, "/store/longerPeers")


def start_catch_up(
    nursery: trio.Nursery,
    network: MemoryNetwork,
    log: ReplicatedLog,
    *peers: MasterAddress,
    answers_needed: int = 0,
    probe_peer: ProbeMaster = ask_nobody,
    refuse_puts: Callable[[str], None] = lambda _reason: None,
    on_taken: Callable[[], object] = lambda: None,
    on_open: Callable[[], None] = lambda: None,
    take_tables: TakeTables = has_tables,
    tables_from: Callable[[], Collection[str]] = tuple,
    began_empty: StoreNote | None = None,
    longer_peers: LongerPeers | None = None,
) -> CatchUpService:
    async def tell_taken() -> None:
        on_taken()
        await trio.lowlevel.checkpoint()

    service = CatchUpService(
        log,
        network,
        peers,
        answers_needed=answers_needed,
        options=ha_client_options(overlap_size=1000),
        probe_peer=probe_peer,
        chance=lambda: 0.0,
        hooks=CatchUpHooks(refuse_puts, tell_taken, on_open=on_open, take_tables=take_tables, tables_from=tables_from),
        began_empty=began_empty or note_on(SimDisk()),
        longer_peers=longer_peers or longer_peers_on(SimDisk()),
    )
    nursery.start_soon(service.run)
    return service


async def settle(seconds: float = 0.01) -> None:
    """Let everybody do what he can, and a moment of virtual time pass."""
    await trio.sleep(seconds)


async def until(condition: Callable[[], bool], *, within_s: float = 60.0, step_s: float = 0.01) -> None:
    with trio.fail_after(within_s):
        while not condition():  # noqa: ASYNC110 - virtual time, any condition
            await trio.sleep(step_s)


class FrameReader:
    """What a peer sees of a master's stream."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.frames: list[Frame] = []
        self.ended_at: float | None = None
        self._buffer = bytearray()

    async def run(self) -> None:
        space = memoryview(bytearray(1 << 20))
        while True:
            try:
                count = await self.stream.receive_into(space)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                count = 0
            if count == 0:
                self.ended_at = trio.current_time()
                return
            self._buffer += space[:count]
            self._cut()

    def _cut(self) -> None:
        while len(self._buffer) >= FRAME_HEADER_SIZE:
            offset, size = decode_frame_header(self._buffer)
            end = FRAME_HEADER_SIZE + size
            if len(self._buffer) < end:
                return
            self.frames.append(Frame(trio.current_time(), offset, bytes(self._buffer[FRAME_HEADER_SIZE:end])))
            del self._buffer[:end]

    @property
    def data(self) -> bytes:
        return b"".join(frame.data for frame in self.frames)

    @property
    def heartbeats(self) -> list[Frame]:
        return [frame for frame in self.frames if not frame.data]


class RawSlave:
    """A slave made by hand: says exactly what a test tells it to."""

    def __init__(self, stream: Stream, *, host: str = "") -> None:
        self.stream = stream
        self.host = host
        self.reader = FrameReader(stream)

    @classmethod
    async def connect(cls, nursery: trio.Nursery, network: MemoryNetwork, port: int) -> "RawSlave":
        slave = cls(await network.connect("master", port, timeout_s=1.0), host=network.host)
        nursery.start_soon(slave.reader.run)
        return slave

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)
        await settle()

    async def report(self, *offsets: int) -> None:
        await self.send(b"".join(map(encode_report, offsets)))

    @property
    def peer(self) -> str:
        """The address of this slave, as its master sees it."""
        return f"{self.host}:{self.stream.local_port}"

    @property
    def is_cut(self) -> bool:
        return self.reader.ended_at is not None


class RawMaster:
    """A master made by hand."""

    def __init__(self) -> None:
        self.port = 0
        self.streams: list[Stream] = []
        self.accepted_at: list[float] = []
        self.received: list[bytearray] = []
        self.ended_at: list[float | None] = []

    async def run(
        self, network: MemoryNetwork, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        listener = await network.listen("master", 0)
        self.port = listener.port
        async with trio.open_nursery() as nursery:
            task_status.started()
            while True:
                stream = await listener.accept()
                self.streams.append(stream)
                self.accepted_at.append(trio.current_time())
                self.received.append(bytearray())
                self.ended_at.append(None)
                nursery.start_soon(self._read, stream, len(self.streams) - 1)

    async def _read(self, stream: Stream, number: int) -> None:
        space = memoryview(bytearray(4096))
        try:
            while count := await stream.receive_into(space):
                self.received[number] += space[:count]
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        self.ended_at[number] = trio.current_time()

    def reports(self, number: int = -1) -> list[int]:
        received = self.received[number] if self.received else b""
        return [int.from_bytes(received[at : at + 8], "big", signed=True) for at in range(0, len(received) - 7, 8)]

    async def send(self, data: bytes) -> None:
        await self.streams[-1].send_all(data)
        await settle()
