#!/usr/bin/env python3
"""What a store of many queues costs: CPU, memory and descriptors of a start, after a clean stop and after a kill.

    scripts/bench_queues.py                   # 900 topics of 8 queues, one message in each
    scripts/bench_queues.py --topics 10000

The broker is a process of its own; its CPU time is all it has used until it serves and until its first flush is over.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rmqha.broker.options import store_options
from rmqha.broker.tuning import Tuning
from rmqha.codec.record.encoder import prepare
from rmqha.config import load_config
from rmqha.remoting.client import open_remoting_client
from rmqha.store.os_disk import OsDisk
from rmqha.transport import TcpNetwork
from tests.broker.machines import pull_request, send_request
from tests.e2e.processes import RmqhaBroker, reaping
from tests.store.helpers import make_store

HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])
QUEUES = 8
SETTLE_S = 20


def main() -> None:
    """Make a store, then start a broker on it three times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=900, help=f"of {QUEUES} queues each")
    topics = parser.parse_args().topics
    with tempfile.TemporaryDirectory() as directory:
        trio.run(measure, Path(directory).resolve(), topics)


async def measure(directory: Path, topics: int) -> None:
    """Print a line for each start."""
    broker = RmqhaBroker(directory / "master", {"mappedFileSizeCommitLog": 64 << 20})
    await fill_store(broker.store, topics)
    with reaping(broker):
        for before in ("a clean stop", "a clean stop, again", "a kill", "a kill, again"):
            begun_at = trio.current_time()
            await broker.start()
            start_s, at_start = trio.current_time() - begun_at, broker.running.usage()
            await use(broker, topics)
            await trio.sleep(SETTLE_S)
            usage = broker.running.usage()
            descriptors = len(os.listdir(f"/proc/{broker.running.pid}/fd"))
            print(
                f"{topics * QUEUES} queues, after {before}: {start_s:.1f} s, {at_start.cpu_s:.2f} CPU-s to start, "
                f"{usage.cpu_s:.2f} CPU-s {SETTLE_S} s later, {usage.anonymous_bytes / 2**20:.0f} MiB anonymous, "
                f"{descriptors} descriptors",
                flush=True,
            )
            if before == "a clean stop":
                await broker.stop()
            else:
                await broker.running.kill()


async def fill_store(root: Path, topics: int) -> None:
    """A message in every queue."""
    config = load_config(None, {"storePathRootDir": str(root), "mappedFileSizeCommitLog": str(64 << 20)})
    options = store_options(config, Tuning())
    store = make_store(options, OsDisk(), now_ms=lambda: 1_700_000_000_000)
    store.load()
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        for number in range(topics):
            records = [
                prepare(
                    f"topic-{number}",
                    b"x",
                    queue_id=queue_id,
                    born_timestamp_ms=1,
                    born_host_raw=HOST,
                    store_host_raw=HOST,
                    properties_raw=b"",
                )
                for queue_id in range(QUEUES)
            ]
            await store.put_messages_when_allocated(records)
        await store.flush_now(store.max_offset)
        while store.reput_from_offset < store.max_offset:  # noqa: ASYNC110 - nothing tells of it
            await trio.sleep(0.1)
        store.stop()


async def use(broker: RmqhaBroker, topics: int) -> None:
    """It serves: a send and a pull of the last topic."""
    async with open_remoting_client(TcpNetwork(), broker.address) as client:
        topic = f"topic-{topics - 1}"
        assert (await client.invoke(send_request(b"x", topic=topic), timeout_s=60)).code == 0
        assert (await client.invoke(pull_request(0, topic=topic), timeout_s=60)).code == 0


if __name__ == "__main__":
    main()
