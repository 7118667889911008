"""How fast a log becomes Arrow and Parquet, against the obvious ways of doing it; everything in one run, on one log.

    PYTHONPATH=. python scripts/bench_replay.py                   # 2 GiB, everything
    PYTHONPATH=. python scripts/bench_replay.py --size 256 --only decode

Machines differ by a factor of three from day to day: read the ratios. Decoding is CPU time of one process; its rival, a
loop with a struct a record, gives the same Arrow batches, and is also timed as far as tuples, where Arrow has cost it
nothing yet. The loop's CRCs are of the standard library; once they are of isal, as ours. The line below says how fast
isal would be through all bodies if no record cost a call. The rest is wall time, and CPU time of the whole machine, so
nothing else may run: of whole commands, their start included, but for ``replay``, whose time begins when Spark is there
(``start`` is that). ``plain`` is a process a core. The log is in the page cache. ``--only plan`` and ``--only memory``
take a second and a minute.
"""

import argparse
import gc
import math
import os
import random
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import islice
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from time import perf_counter, process_time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from isal import isal_zlib

from rmqha.spark import ReadOptions, iter_batches
from rmqha.spark.commit_log import open_log
from rmqha.spark.partitions import plan_tasks
from rmqha.spark.replay import OutputFormat, ReplayOptions, replay
from rmqha.spark.replay.runner import start_spark
from rmqha.spark.replay.task import ReplayTask, run_task
from rmqha.spark.schema import COLUMNS

MIB = 1 << 20
FILE_BYTES = 256 * MIB
BLOCK_BYTES = 8 * MIB
HEADER = ">IIIiiqqiq8sq8siqi"
HOST = bytes([127, 0, 0, 1]) + struct.pack(">i", 10911)
BATCH_ROWS = 10_000
STARTED, ENDED = "<", ">"
STRUCT_NAMES = ["topic", "queueId", "queueOffset", "body", "properties", "physicalOffset", "flag", "sysFlag"]
STRUCT_NAMES += ["bornTimestamp", "bornHost", "storeTimestamp", "storeHost", "reconsumeTimes"]
STRUCT_NAMES += ["preparedTransactionOffset", "bodyCrc", "storeSize"]
Crc = Callable[[bytes], int]
WITHOUT_PROPERTIES = tuple(name for name in COLUMNS.names if name not in {"properties", "keys", "tags"})


def write_log(root: Path, total: int, *, body_size: int, topics_count: int, base: int = 0) -> int:
    """A log of messages around ``body_size`` bytes, with keys and tags, from ``base`` on; returns their number."""
    directory = root / "commitlog"
    directory.mkdir(parents=True)
    for number in range(topics_count):  # the replay counts a store's topics by their queues
        (root / "consumequeue" / f"topic-{number:02d}").mkdir(parents=True)
    text = random.Random(7).randbytes(MIB).hex().encode()
    topics = [b"topic-%02d" % number for number in range(topics_count)]
    count, begin, position = 0, base, base
    pack = struct.Struct(HEADER).pack
    file = (directory / f"{base:020d}").open("wb")
    pending = bytearray()
    while position < begin + total:
        at = count * 37 % (len(text) - 2 * body_size)
        body = text[at : at + body_size * 15 // 16 + count * 7 % (body_size // 8)]
        topic = topics[count * 7919 % topics_count]
        properties = b"KEYS\x01order-%08d\x02UNIQ_KEY\x017F000001527A4E0E2F2A%012X\x02" % (count, count)
        properties += b"CLUSTER\x01DefaultCluster\x02TAGS\x01Tag%d" % (count % 5)
        size = 91 + len(body) + len(topic) + len(properties)
        if position + size + 8 > base + FILE_BYTES:
            file.write(pending + struct.pack(">II", base + FILE_BYTES - position, 0xCBD43194))
            pending.clear()
            file.truncate(FILE_BYTES)
            file.close()
            position = base = base + FILE_BYTES
            file = (directory / f"{base:020d}").open("wb")
        crc, stored = zlib.crc32(body) & 0x7FFFFFFF, 1_700_000_000_000 + count
        pending += pack(
            size, 0xDAA320A7, crc, count % 4, 0, count // 4, position, 0, stored, HOST, stored, HOST, 0, 0, len(body)
        )
        pending += body + bytes([len(topic)]) + topic + struct.pack(">h", len(properties)) + properties
        position += size
        count += 1
        if len(pending) > BLOCK_BYTES:
            file.write(pending)
            pending.clear()
    file.write(pending)
    file.truncate(FILE_BYTES)
    file.close()
    return count


def struct_records(root: Path, *, crc: Crc | None, properties: bool) -> Iterator[tuple[object, ...]]:
    """The obvious decoder: a struct a record, tuples out."""
    unpack = struct.Struct(HEADER).unpack_from  # made here, as Spark cannot pickle it
    for path in sorted((root / "commitlog").iterdir()):
        with path.open("rb") as file:
            rest = b""
            while block := file.read(BLOCK_BYTES):
                data, at = rest + block, 0
                while at + 88 <= len(data):
                    size, magic, body_crc, queue, flag, offset, physical, sys_flag, *fields, length = unpack(data, at)
                    if magic != 0xDAA320A7 or at + size > len(data):
                        break
                    end = at + 88 + length
                    body = data[at + 88 : end]
                    topic_end = end + 1 + data[end]
                    raw = data[topic_end + 2 : at + size]
                    if crc is not None and crc(body) & 0x7FFFFFFF != body_crc:
                        raise SystemExit(f"bad CRC at {physical}")
                    pairs = dict(pair.split("\x01") for pair in raw.decode().split("\x02")) if properties else raw
                    topic = data[end + 1 : topic_end].decode()
                    yield topic, queue, offset, body, pairs, physical, flag, sys_flag, *fields, body_crc, size
                    at += size
                rest = data[at:] if data[at + 4 : at + 8] == b"\xda\xa3\x20\xa7" else b""


def struct_batches(root: Path, columns: Sequence[str], *, crc: Crc | None) -> Iterator[pa.RecordBatch]:
    """The same loop, its tuples made into the very batches that ``iter_batches`` gives."""
    schema = pa.schema([COLUMNS.field(name) for name in columns])
    records = struct_records(root, crc=crc, properties="properties" in columns)
    while rows := list(islice(records, BATCH_ROWS)):
        values: dict[str, Any] = dict(zip(STRUCT_NAMES, zip(*rows, strict=True), strict=True))
        values["brokerName"] = ["broker"] * len(rows)
        for name in ("bornHost", "storeHost"):
            values[name] = [host_text(raw) for raw in values[name]]
        for name in ("bornTimestamp", "storeTimestamp"):
            values[name] = pa.array(values[name], pa.timestamp("ms", "UTC")).cast(schema.field(name).type)
        if "properties" in columns:
            for name in ("keys", "tags"):
                values[name] = [pairs.get(name.upper()) for pairs in values["properties"]]
            values["properties"] = [list(pairs.items()) for pairs in values["properties"]]
        yield pa.RecordBatch.from_arrays(
            [pa.array(values[name], schema.field(name).type) for name in columns], schema=schema
        )


@cache
def host_text(raw: bytes) -> str:
    return f"{raw[0]}.{raw[1]}.{raw[2]}.{raw[3]}:{int.from_bytes(raw[4:], 'big')}"


def bench_decode(root: Path, count: int, rounds: int) -> None:
    """One core: bulk decoding against a struct a record, in turns."""
    size = count_bytes(root)
    print(f"\nDecoding on one core, {count:,} messages, CPU time, GB/s, median of {rounds}")
    print(f"{'':<26}{'iter_batches':>14}{'struct loop':>13}{'ratio':>8}{'to tuples only':>18}{'ratio':>8}")
    cases: dict[str, tuple[Crc | None, tuple[str, ...]]] = {
        "without CRC": (None, WITHOUT_PROPERTIES),
        "with CRC": (zlib.crc32, WITHOUT_PROPERTIES),
        "with CRC, loop's by isal": (isal_zlib.crc32, WITHOUT_PROPERTIES),
        "with CRC and properties": (zlib.crc32, tuple(COLUMNS.names)),
    }
    for name, (crc, columns) in cases.items():
        options = ReadOptions(columns=columns, check_crc=crc is not None)
        times = [
            (
                _cpu(_rows(iter_batches(str(root), options)), count),
                _cpu(_rows(struct_batches(root, columns, crc=crc)), count),
                _cpu((1 for _ in struct_records(root, crc=crc, properties="properties" in columns)), count),
            )
            for _ in range(rounds)
        ]
        bulk, loop, tuples = (size / statistics.median(column) / 1e9 for column in zip(*times, strict=True))
        over_loop, over_tuples = (statistics.median(each[way] / each[0] for each in times) for way in (1, 2))
        print(f"{name:<26}{bulk:>14.2f}{loop:>13.2f}{over_loop:>7.1f}x{tuples:>18.2f}{over_tuples:>7.1f}x", flush=True)
    spent = statistics.median(crc_of_bodies(root) for _ in range(rounds))
    print(f"CRCs of all bodies, a batch at a call: {size / spent / 1e9:.1f}", flush=True)


def crc_of_bodies(root: Path) -> float:
    """CPU seconds that isal takes for all bodies, which lie side by side in a batch; making that is not counted."""
    spent = 0.0
    for batch in iter_batches(str(root), ReadOptions(columns=("body",), check_crc=False)):
        bodies = batch.column(0).buffers()[2]
        start = process_time()
        isal_zlib.crc32(bodies)
        spent += process_time() - start
    return spent


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    return (batch.num_rows for batch in batches)


def _cpu(counts: Iterator[int], count: int) -> float:
    """Seconds of the processor that it takes to run through them; they must add up to ``count``."""
    gc.collect()
    start = process_time()
    found = sum(counts)
    spent = process_time() - start
    if found != count:
        raise SystemExit(f"{found} of {count} messages were decoded")
    return spent


def count_bytes(root: Path) -> int:
    """Bytes of the log that are not the last file's empty end."""
    return sum(
        batch.column(0).to_numpy().sum() for batch in iter_batches(str(root), ReadOptions(columns=("storeSize",)))
    )


def plain_a_core(root: Path, out: Path) -> None:
    """One such process for each core, on its share of the log."""
    log, cores = open_log(str(root)), os.cpu_count() or 1
    cuts = [log.start_at(log.min_offset + (log.end - log.min_offset) * core // cores) for core in range(cores)]
    with ProcessPoolExecutor(cores) as pool:
        ends = [*cuts[1:], log.end]
        names = [f"part-{core}" for core in range(cores)]
        list(pool.map(plain_pyarrow, [root] * cores, [out] * cores, cuts, ends, names))


def plain_pyarrow(root: Path, out: Path, begin: int, end: int, name: str) -> None:
    """The obvious replay: one process, a filter a topic, a Parquet writer a topic, zstd."""
    writers: dict[str, pq.ParquetWriter] = {}
    held: dict[str, list[pa.RecordBatch]] = {}
    rows = 0

    def write() -> None:
        for topic, batches in held.items():
            table = pa.Table.from_batches(batches)
            if topic not in writers:
                directory = out / f"topic={topic}"
                directory.mkdir(parents=True, exist_ok=True)
                dictionaries = ["tags", "bornHost", "storeHost", "brokerName", "properties.key_value.key"]
                writers[topic] = pq.ParquetWriter(
                    directory / f"{name}.parquet",
                    table.schema,
                    compression="zstd",
                    compression_level=1,
                    use_dictionary=dictionaries,
                )
            writers[topic].write_table(table)
        held.clear()

    for batch in iter_batches(str(root), ReadOptions(starting_offset=begin, ending_offset=end)):
        for topic in batch.column("topic").unique().to_pylist():
            held.setdefault(topic, []).append(
                batch.filter(pc.equal(batch.column("topic"), topic)).drop_columns(["topic"])
            )
        rows += batch.num_rows
        if rows > 100_000:
            write()
            rows = 0
    write()
    for writer in writers.values():
        writer.close()


def replay_job(root: Path, out: Path) -> None:
    """``rmqha replay``, but for Spark's start, whose end it tells."""
    start_only(root, out)
    print(f"{STARTED}{perf_counter()}", flush=True)
    replay(ReplayOptions(str(root), str(out)))
    print(f"{ENDED}{perf_counter()}", flush=True)


def start_only(_root: Path, _out: Path) -> None:
    """Spark as ``rmqha replay`` starts it, and its first job."""
    _ = start_spark(None).parallelism


def bench_plan(work: Path) -> None:
    """How long it takes to plan the tasks of a log of 10,000 files, as one of Spark's and as one of the replay."""
    directory = work / "many" / "commitlog"
    directory.mkdir(parents=True)
    count, size = 10_000, MIB
    for number in range(count):
        with (directory / f"{number * size:020d}").open("wb") as file:
            file.truncate(size)
    write_log(work / "one", MIB // 2, body_size=1024, topics_count=1, base=(count - 1) * size)
    (work / "one" / "commitlog" / f"{(count - 1) * size:020d}").replace(directory / f"{(count - 1) * size:020d}")
    os.truncate(directory / f"{(count - 1) * size:020d}", size)
    start = process_time()
    log = open_log(str(work / "many"))
    tasks = plan_tasks(log, log.min_offset, log.end, options=ReadOptions(), split_bytes=128 * MIB)
    print(f"\n{len(tasks)} tasks over {len(log.segments):,} files: {process_time() - start:.2f} CPU s", flush=True)


def bench_memory(root: Path, work: Path) -> None:
    """The largest resident size of a process that does one task of the replay."""
    for share in (8, 4, 2, 1):
        command = [sys.executable, __file__, "--run", f"task/{share}", str(root), str(work / f"task-{share}")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        print(f"a task of 1/{share} of the log: {done.stdout.strip()}", flush=True)


def one_task(root: Path, out: Path, share: int) -> None:
    """The first of ``share`` parts of the log, as a task writes it."""
    out.mkdir()
    log = open_log(str(root))
    (task, *_) = plan_tasks(
        log, log.min_offset, log.end, options=ReadOptions(), split_bytes=math.ceil((log.end - log.min_offset) / share)
    )
    columns = tuple(name for name in COLUMNS.names if name != "topic")
    run_task(ReplayTask(task, str(out), OutputFormat.PARQUET, columns))
    print(f"{task.size / MIB:.0f} MiB, {getrusage(RUSAGE_SELF).ru_maxrss >> 10} MiB of memory")


def rdd_job(root: Path, out: Path) -> None:
    """The obvious Spark job: a file a task, a tuple a message, Spark's own Parquet writer."""
    from rmqha.spark.session import spark_session  # noqa: PLC0415

    spark = spark_session("rdd", master="local[*]", settings={"spark.driver.memory": "4g", "spark.ui.enabled": "false"})
    files = sorted(str(path) for path in (root / "commitlog").iterdir())
    rows = spark.sparkContext.parallelize(files, len(files)).flatMap(_rdd_rows)
    schema = "topic string, queueId int, queueOffset long, body binary, properties map<string,string>"
    schema += ", physicalOffset long, storeTimestamp long"
    frame = spark.createDataFrame(rows, schema)
    frame.write.option("compression", "zstd").partitionBy("topic").parquet(str(out))


def _rdd_rows(path: str) -> Iterator[tuple[object, ...]]:
    """One file's messages; a store of its own for the struct decoder."""
    with tempfile.TemporaryDirectory() as root:
        directory = Path(root) / "commitlog"
        directory.mkdir()
        (directory / Path(path).name).symlink_to(path)
        for record in struct_records(Path(root), crc=zlib.crc32, properties=True):
            topic, queue, offset, body, pairs, physical, _, _, _, _, stored, *_ = record
            yield topic, queue, offset, body, pairs, physical, stored


def bench_replay(root: Path, work: Path, rounds: int, ways: list[str]) -> None:
    """Each way writes the same messages by topic as zstd Parquet; in turns."""
    print(f"\nLog to zstd Parquet by topic, wall and CPU time, median of {rounds}")
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            out = work / f"out-{way}"
            found[way].append(_times(way, root, out))
            files = list(out.glob("topic=*/*.parquet"))
            rows = sum(pq.ParquetFile(path).metadata.num_rows for path in files)
            wall, cpu = found[way][-1]
            print(f"  {way:<14}{wall:>8.1f} s{cpu:>8.1f} s  {rows:,} messages in {len(files):,} files", flush=True)
            shutil.rmtree(out, ignore_errors=True)
    medians = {way: [statistics.median(one) for one in zip(*times, strict=True)] for way, times in found.items()}
    if {"start", "replay"} <= medians.keys():  # whose wall time begins behind it
        medians["replay"][1] -= medians["start"][1]
    print(f"{'':<16}{'wall s':>8}{'CPU s':>8}{'x plain':>9}{'CPU':>8}")
    for way, (wall, cpu) in medians.items():
        ratios = [one / plain for one, plain in zip((wall, cpu), medians.get("plain", (wall, cpu)), strict=True)]
        print(f"{way:<16}{wall:>8.1f}{cpu:>8.1f}{ratios[0]:>9.2f}{ratios[1]:>8.2f}")


def _times(way: str, root: Path, out: Path) -> tuple[float, float]:
    """Wall time, and the machine's CPU time meanwhile: Spark's daemon ignores its workers' ends, and so their times."""
    command = [sys.executable, __file__, "--run", way, str(root), str(out)]
    before, start = _machine_seconds(), perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    spent, cpu = perf_counter() - start, _machine_seconds() - before
    if done.returncode:
        raise SystemExit(f"{way} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    told = {line[0]: float(line[1:]) for line in done.stdout.splitlines() if line.startswith((STARTED, ENDED))}
    wall = told[ENDED] - told[STARTED] if told else spent
    return wall, cpu


def _machine_seconds() -> float:
    """CPU time of all processes since the machine's start: user, nice, system (proc_stat(5))."""
    ticks = Path("/proc/stat").read_text(encoding="ascii").split(maxsplit=4)[1:4]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=2048, help="MiB of log (default 2048)")
    parser.add_argument("--body", type=int, default=1024, help="bytes of a body, about (default 1024)")
    parser.add_argument("--topics", type=int, default=20, help="of the log (default 20)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["decode", "replay", "plan", "memory"])
    parser.add_argument("--ways", default="plain,start,replay,rdd", help="commands to compare")
    parser.add_argument("--run", nargs=3, metavar=("WAY", "STORE", "OUT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        way, store, out = arguments.run
        if way.startswith("task/"):
            one_task(Path(store), Path(out), int(way.removeprefix("task/")))
            return
        ways = {"plain": plain_a_core, "start": start_only, "replay": replay_job, "rdd": rdd_job}
        ways[way](Path(store), Path(out))
        return
    with tempfile.TemporaryDirectory(prefix="rmqha-bench-") as directory:
        work = Path(directory)
        if arguments.only == "plan":
            bench_plan(work)
            return
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; writing {arguments.size} MiB of log ...")
        count = write_log(work / "store", arguments.size * MIB, body_size=arguments.body, topics_count=arguments.topics)
        if arguments.only in {None, "memory"}:
            bench_memory(work / "store", work)
        if arguments.only in {None, "decode"}:
            bench_decode(work / "store", count, arguments.rounds)
        if arguments.only in {None, "replay"}:
            bench_replay(work / "store", work, arguments.rounds, arguments.ways.split(","))


if __name__ == "__main__":
    main()
