"""Power cuts under load, again and again: the file system stops at once, and what was not flushed is lost.

RMQHA_POWER_CUTS sets how often (2 unless told; 84, times six kinds, in a full run). The process is killed after its
disk is gone, as a machine's would be; in between it meets only errors, and may acknowledge nothing.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
import trio

from tests.e2e.commitlog import HeldMessages, wait_identical
from tests.e2e.conftest import Pair
from tests.e2e.load import LoadProducer, Sends, body_of_size
from tests.e2e.processes import Broker, RmqhaBroker, reaping
from tests.faults.conftest import make_pair
from tests.faults.images import Image, mounted_image, why_no_images
from tests.faults.proofs import lost

CYCLES = int(os.environ.get("RMQHA_POWER_CUTS", "2"))
MESSAGES_A_CYCLE = 200
pytestmark = pytest.mark.timeout(300 + 120 * CYCLES)

FLUSHES_NOTHING = """
import sys
from rmqha.store.os_disk import OsDataFile
OsDataFile.sync = lambda self: None
from rmqha.cli.main import main
sys.argv[0] = "rmqha"
main()
"""


class NeverFlushing(RmqhaBroker):
    """The same broker, but what it calls durable never left the page cache: the control."""

    def argv(self) -> list[str]:
        return [sys.executable, "-c", FLUSHES_NOTHING, super().argv()[-3], "-c", str(self.conf_file)]


@contextmanager
def on_images(pair: Pair, directory: Path) -> Iterator[dict[Broker, Image]]:
    """Each broker's store on an image of its own."""
    if reason := why_no_images():
        pytest.skip(reason)
    with ExitStack() as stack:
        images: dict[Broker, Image] = {}
        for broker in pair.brokers:
            where = directory / f"{broker.directory.name}-image"
            images[broker] = stack.enter_context(mounted_image(where, size_mib=64 + 16 * CYCLES))
            broker.move_store(images[broker].mount_point / "store")
        stack.enter_context(reaping(*pair.brokers))
        yield images


async def _stand_still(broker: Broker) -> None:
    """Stop the process; returns when each of its threads has left the kernel."""
    broker.running.signal(signal.SIGSTOP)
    with trio.fail_after(60):
        while not _stands_still(broker.running.pid):  # noqa: ASYNC110 - nobody tells
            await trio.sleep(0.001)


def _stands_still(pid: int) -> bool:
    states = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            states.append((thread / "stat").read_text().rpartition(")")[2].split()[0])
    return set(states) == {"T"}


async def cut_power(victims: list[Broker], images: dict[Broker, Image], load: LoadProducer) -> set[int]:
    """Cut the power of these brokers, and give it back to their disks; returns what was acknowledged by then.

    They stand still for the moment of the cut, so that no call is under way in it: an fdatasync that is, may return 0
    although its pages never reach the device: a bare loop of pwrite and fdatasync lost the last one in 42 of 400 cuts
    on Linux 6.18. That is how the kernel shuts a file system down, not how a machine loses its power.
    """
    for broker in victims:
        await _stand_still(broker)
        images[broker].cut_power()
        broker.running.signal(signal.SIGCONT)
    for broker in victims:
        await broker.kill()
    acknowledged = set(load.acknowledged)
    for broker in victims:
        images[broker].restore_power()
    return acknowledged


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("victims", ["master", "slave", "master slave"])
async def test_no_power_cut_loses_an_acknowledged_message(tmp_path: Path, victims: str, flush: str) -> None:
    """What SEND_OK promised is on the disk itself after each cut, before any recovery; in the end the logs are equal.

    The slave's disk has it always, the master's with SYNC_FLUSH; else the master takes it back from the slave.
    """
    pair = make_pair(tmp_path, flushDiskType=flush)
    with on_images(pair, tmp_path) as images:
        cut = [broker for broker in reversed(pair.brokers) if broker.directory.name in victims.split()]
        held = {broker: HeldMessages(broker.store / "commitlog", "orders") for broker in pair.brokers}
        promised = [broker for broker in pair.brokers if flush == "SYNC_FLUSH" or broker is pair.slave]
        load = LoadProducer(pair.master.ports.listen, Sends("orders", body=body_of_size(700)))
        await pair.slave.start()
        await pair.master.start()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.run)
            for cycle in range(CYCLES):
                await load.wait_acknowledged(MESSAGES_A_CYCLE)
                acknowledged = await cut_power(cut, images, load)
                for broker in promised:
                    missing = acknowledged - held[broker].read(torn=True)
                    assert not missing, f"cut {cycle}: the {broker.directory.name} lacks {sorted(missing)[:5]}"
                for broker in cut:
                    await broker.start()
            await load.wait_acknowledged(MESSAGES_A_CYCLE)
            nursery.cancel_scope.cancel()
        await wait_identical(*(broker.store / "commitlog" for broker in pair.brokers))
        assert [await broker.stop() for broker in pair.brokers] == [0, 0]
        for broker in pair.brokers:
            assert not lost(load.acknowledged, broker)


async def _found(pair: Pair, victim: str, directory: Path) -> set[int]:
    """What one power cut took of the acknowledged messages from the victim's disk."""
    with on_images(pair, directory) as images:
        broker = pair.master if victim == "master" else pair.slave
        load = LoadProducer(pair.master.ports.listen, Sends("orders", body=body_of_size(700)))
        await pair.slave.start()
        await pair.master.start()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.run)
            await load.wait_acknowledged(MESSAGES_A_CYCLE)
            missing = lost(await cut_power([broker], images, load), broker)
            nursery.cancel_scope.cancel()
        return missing


@pytest.mark.parametrize("victim", ["master", "slave"])
async def test_control_a_flush_that_does_nothing_is_found(tmp_path: Path, victim: str) -> None:
    """If this fails, the test above shows nothing."""
    pair = make_pair(tmp_path)
    old = pair.master if victim == "master" else pair.slave
    broken = NeverFlushing(old.directory, old.conf, ports=old.ports)
    pair = pair._replace(**{victim: broken})
    assert await _found(pair, victim, tmp_path)


async def test_control_a_slave_that_acknowledges_from_memory_is_found(tmp_path: Path) -> None:
    """As a RocketMQ slave does it: what it acknowledged is lost with its power."""
    pair = make_pair(tmp_path)
    pair.slave.conf |= {"haAck": "written", "flushDiskType": "ASYNC_FLUSH", "flushIntervalCommitLog": 10_000}
    assert await _found(pair, "slave", tmp_path)
