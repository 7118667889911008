#!/usr/bin/env python3
"""What each stage of a send costs: CPU time per message, in one process, without sockets; a slave answers at once.

    scripts/bench_stages.py                                     1 KiB, 256 requests arrive together
    scripts/bench_stages.py --dialect other-json --keys --window 1
    scripts/bench_stages.py --late 3                            768 more arrive before a slave acknowledges
    scripts/bench_stages.py --batch 32 --window 16              16 batches of 32 messages arrive together

The figures are the best of several rounds, so they hold on a busy machine, too. Cutting frames is timed alone and is
part of the whole road as well; what is left of that is trio's, the connection's accounts, and the waiting's. Each
window is dispatched when it is acknowledged, as a broker does; that, and what the index then adds, is no part of the
whole road.
"""

import argparse
import sys
import tempfile
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import thread_time, time_ns
from typing import Any, Final, TypeVar

import structlog
import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rmqha.broker.processors.send_message_processor import SendMessageProcessor
from rmqha.broker.puts.durability import Durability, ReplicaPromise
from rmqha.broker.puts.put_service import PutMessageService
from rmqha.broker.puts.sent_records import SendRules
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.codec.crc import crc32
from rmqha.codec.host import parse_host
from rmqha.codec.transfer import encode_frame_header
from rmqha.codec.usual.decoder import RequestDecoder
from rmqha.codec.usual.sends import UsualSends
from rmqha.memory import BytesLike, new_buffer
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.fence import Fence
from rmqha.remoting.limits import Capacity
from rmqha.remoting.turns import REQUESTS_A_TURN
from rmqha.replication.overlap import StreamStart
from rmqha.replication.slave_session import AppendChunk, SlaveSession
from rmqha.replication.watermark import Watermark
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.os_disk import OsDisk
from scripts.bench_client import Case
from scripts.bench_common import print_table
from tests.broker.machines import retry_topics
from tests.e2e.dialects import DIALECTS
from tests.settings import remoting_limits, store_options, topic_rules
from tests.store.helpers import commit_log, make_store

_SEGMENT_SIZE: Final = 1 << 28
_FRAME_SIZE: Final = 32 * 1024
_ROUNDS_GATHERED: Final = 2
_INDEX: Final[dict[str, Any]] = {"max_hash_slot_num": 5_000_000, "max_index_num": 20_000_000}
Result = TypeVar("Result")


class Stopwatch:
    """Adds up the CPU time of calls, by stage."""

    def __init__(self) -> None:
        self.spent_s: defaultdict[str, float] = defaultdict(float)

    def timed(self, stage: str, call: Callable[..., Result]) -> Callable[..., Result]:
        """``call``, with its time added to ``stage``."""

        def run(*args: Any, **kwargs: Any) -> Result:
            begun_at = thread_time()
            result = call(*args, **kwargs)
            self.spent_s[stage] += thread_time() - begun_at
            return result

        return run


class Replica:
    """A slave that is asked after each window, and acknowledges it when ``late`` more have come; at the end, all."""

    acked_from = 0

    def __init__(self, windows: int, *, late: int) -> None:
        self.acked = Watermark()
        self._windows = windows
        self._late = late
        self._held = deque[int]()

    def is_slave_ok(self, _next_offset: int) -> bool:
        return True

    def acknowledge(self, end: int) -> None:
        self._held.append(end)
        self._windows -= 1
        while self._held and (len(self._held) > self._late or self._windows < 0):
            self.acked.advance(self._held.popleft())


class PreparedStream:
    """Gives one chunk of requests after the other, each when the one before it is answered; takes every answer."""

    peer = "127.0.0.1:40000"
    local_port = 10911

    def __init__(
        self, chunks: list[bytes], acknowledge: Callable[[], None], build_index: Callable[[], Awaitable[None]]
    ) -> None:
        self._chunks = iter(chunks)
        self._acknowledge = acknowledge
        self._build_index = build_index
        self._rest = memoryview(b"")

    async def receive_into(self, buffer: memoryview) -> int:
        if not self._rest:
            self._acknowledge()
            await self._build_index()
            await trio.lowlevel.checkpoint()
            self._rest = memoryview(next(self._chunks, b""))
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def send_nowait(self, data: BytesLike) -> int:
        return len(data)

    def send_eof(self) -> None:
        pass

    def close(self) -> None:
        pass


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dialect", default=",".join(DIALECTS), help="(default: %(default)s)")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body (default %(default)s)")
    parser.add_argument("--window", type=int, default=256, help="requests that arrive together (default %(default)s)")
    parser.add_argument("--batch", type=int, default=1, help="messages of a request (default %(default)s)")
    parser.add_argument("--late", type=int, default=0, help="windows that come before one is acknowledged (default 0)")
    parser.add_argument("--topics", type=int, default=1, help="(default %(default)s)")
    parser.add_argument("--keys", action="store_true", help="let KEYS and TAGS be another in each message")
    parser.add_argument("--messages", type=int, default=20_000, help="of a round (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(default %(default)s)")
    parser.add_argument("--dir", default=None, help="where the stores are made, and removed (default: a temporary one)")
    return parser.parse_args()


def requests_of(case: Case, messages: int) -> list[bytes]:
    sends = case.sends()
    windows = max(1, messages // (case.window * case.batch))
    return [b"".join([sends.request() for _ in range(case.window)]) for _ in range(windows)]


def open_store(directory: Path) -> DefaultMessageStore:
    options = store_options(str(directory), mapped_file_size_commit_log=_SEGMENT_SIZE, **_INDEX)
    return make_store(options, OsDisk(), now_ms=lambda: time_ns() // 1_000_000)


def cut_frames(chunks: list[bytes]) -> None:
    limits = remoting_limits()
    buffer = new_buffer(limits.receive_size)
    decoder = RequestDecoder(
        UsualSends(),
        frame_size_max=limits.frame_size_max,
        header_size_max=limits.header_size_max,
        commands_max=REQUESTS_A_TURN,
    )
    for chunk in chunks:
        view = memoryview(chunk)
        while view:
            space = decoder.space(buffer)
            count = min(len(space), len(view))
            space[:count] = view[:count]
            view = view[count:]
            decoder.on_received(buffer, count)
            while decoder.more:
                decoder.decode_more()


async def send(
    store: DefaultMessageStore,
    chunks: list[bytes],
    *,
    watch: Stopwatch,
    topics: TopicConfigManager,
    gate: list[int],
    late: int,
    build_index: Callable[[], Awaitable[None]],
) -> None:
    """The whole road of a master: from the requests' bytes to the answers', and to the queues.

    ``gate`` holds up to where the store may dispatch: what is acknowledged.
    """
    replica, fence, limits = Replica(len(chunks), late=late), Fence(), remoting_limits()
    durability = Durability(
        store, clock=trio.current_time, flush=None, replica=ReplicaPromise(replica, timeout_s=3600.0)
    )
    puts = PutMessageService(store, topics, durability, refusal=str)
    rules = SendRules("DefaultCluster", parse_host("127.0.0.1:10911"), 4 << 20)
    processor = SendMessageProcessor(puts, topics, retry_topics(topics), rules=rules)
    dispatcher = RequestDispatcher()
    dispatcher.register_batch((310, 320), watch.timed("process", processor.process))
    puts.put = watch.timed("put", puts.put)  # type: ignore[method-assign]
    store.put_messages = watch.timed("append", store.put_messages)  # type: ignore[method-assign]
    acknowledge = watch.timed("acknowledge", lambda: replica.acknowledge(store.max_offset))
    dispatch = watch.timed("dispatch", store.reput.catch_up)

    def acknowledge_and_dispatch() -> None:
        acknowledge()
        gate[0] = max(gate[0], replica.acked.value)
        dispatch()

    stream: Any = PreparedStream(chunks, acknowledge_and_dispatch, build_index)
    begun_at = thread_time()
    await Connection(stream, handler=dispatcher, limits=limits, capacity=Capacity(limits), fence=fence).run()
    watch.spent_s["whole"] += thread_time() - begun_at - watch.spent_s["dispatch"] - watch.spent_s["index"]
    assert not fence.bugs, "a stage failed"


class IndexBuilder:
    """Does what the task of a store's index does, when it is told to: with as many rounds as come while it gathers."""

    def __init__(self, store: DefaultMessageStore, watch: Stopwatch) -> None:
        self._index = store.index
        self._watch = watch
        self._really_take, self._really_catch_up = self._index.take, self._index.catch_up
        self._rounds: list[tuple[Any, ...]] = []
        self._index.take = lambda *handed: self._rounds.append(handed)  # type: ignore[method-assign]
        self._index.catch_up = trio.lowlevel.checkpoint  # type: ignore[method-assign]

    async def build(self) -> None:
        if len(self._rounds) < _ROUNDS_GATHERED:
            return
        begun_at = thread_time()
        for handed in self._rounds:
            self._really_take(*handed)
        await self._really_catch_up()
        self._watch.spent_s["index"] += thread_time() - begun_at
        self._rounds.clear()

    def close(self) -> None:
        self._index.take = self._really_take  # type: ignore[method-assign]
        self._index.catch_up = self._really_catch_up  # type: ignore[method-assign]


def replicate(log: memoryview, base: int, slave: DefaultMessageStore, watch: Stopwatch) -> None:
    """A slave's part, from the stream's bytes to the log, and to the queues."""
    receive, dispatch = watch.timed("slave", receive_frame), watch.timed("slave dispatch", slave.reput.catch_up)
    slave.index.take = lambda *_: None  # type: ignore[method-assign]  # its own task has no time here
    session = SlaveSession(StreamStart(base, own_end=base, comparable_end=base, boundary=base), file_size=_SEGMENT_SIZE)
    for at in range(0, len(log), _FRAME_SIZE):
        body = log[at : at + _FRAME_SIZE]
        receive(session, encode_frame_header(base + at, len(body)) + bytes(body), slave)
        dispatch()


def receive_frame(session: SlaveSession, data: bytes, slave: DefaultMessageStore) -> None:
    """Take in what one frame brings."""
    frame = memoryview(data)
    while frame:
        space = session.space()
        count = min(len(space), len(frame))
        space[:count] = frame[:count]
        session.on_received(count)
        frame = frame[count:]
        while isinstance(chunk := session.next_chunk(), AppendChunk):
            slave.append_raw(chunk.data, chunk.phy_offset)


async def measure_round(
    master: DefaultMessageStore,
    slave: DefaultMessageStore,
    case: Case,
    messages: int,
    *,
    topics: TopicConfigManager,
    gate: list[int],
    late: int,
) -> dict[str, float]:
    chunks = requests_of(case, messages)
    messages = len(chunks) * case.window * case.batch
    watch, base = Stopwatch(), master.max_offset
    watch.timed("frames", cut_frames)(chunks)
    put_messages, index = master.put_messages, IndexBuilder(master, watch)
    await send(master, chunks, watch=watch, topics=topics, gate=gate, late=late, build_index=index.build)
    master.put_messages = put_messages  # type: ignore[method-assign]
    index.close()
    log = memoryview(bytes(commit_log(master).view_range(base, master.max_offset - base)))
    replicate(log, base, slave, watch)
    body = bytes(case.size)
    watch.timed("crc", lambda: [crc32(body) for _ in range(messages)])()
    spent = {stage: seconds * 1e6 / messages for stage, seconds in watch.spent_s.items()}
    spent["accept"] = spent["process"] - spent["put"]
    spent["answer"] = spent["put"] - spent["append"] + spent["acknowledge"]
    return spent


_STAGES: Final = (
    "frames", "accept", "append", "answer", "whole", "dispatch", "index", "slave", "slave dispatch", "crc"
)  # fmt: skip


async def measure(case: Case, arguments: argparse.Namespace, directory: Path) -> dict[str, float]:
    """The best of several rounds, each stage for itself."""
    topics = TopicConfigManager(topic_rules("DefaultCluster"), now_ms=lambda: time_ns() // 1_000_000)
    master, slave = (open_store(directory / name) for name in ("master", "slave"))
    best: dict[str, float] = {}
    gate = [0]
    for store in (master, slave):
        store.connect_replication(confirmed=lambda: gate[0])  # else its own task dispatches meanwhile
        await store.load_in_thread()
    async with trio.open_nursery() as nursery:
        await nursery.start(master.run)
        await nursery.start(slave.run)
        for store in (master, slave):
            store.commit_log.prepare_first()
            await store.wait_allocated()
        for topic in range(arguments.topics):
            name = f"bench-{topic:05d}" if topic else "bench"
            topics.learn_queue(name, 7)
        for number in range(arguments.rounds + 1):
            spent = await measure_round(
                master, slave, case, arguments.messages, topics=topics, gate=gate, late=arguments.late
            )
            if number:
                best = {stage: min(us, best.get(stage, us)) for stage, us in spent.items()}
        nursery.cancel_scope.cancel()
    return best


def main() -> None:
    """Measure each dialect, print one table."""
    arguments = parse_arguments()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    columns = {}
    for dialect in arguments.dialect.split(","):
        case = Case(
            arguments.size,
            arguments.window,
            arguments.batch,
            dialect=dialect,
            topics=arguments.topics,
            keys=arguments.keys,
        )
        with tempfile.TemporaryDirectory(dir=arguments.dir, prefix="rmqha-bench-") as directory:
            columns[dialect] = trio.run(measure, case, arguments, Path(directory))
    print("CPU time of a message, us")
    print_table(["", *columns], [[stage, *(best[stage] for best in columns.values())] for stage in _STAGES])


if __name__ == "__main__":
    main()
