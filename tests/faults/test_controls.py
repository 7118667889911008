"""The controls: the same faults met by a broker whose protection was taken out. If these fail, the others show nothing.

What is taken out is what RocketMQ 4.9 lacks: there a failed flush is logged, and the flushed position moves on.
Executed on 4.9.7: 60 of 60 sends across one EIO and 20 of 20 after it, and 20,377 across a read-only flip, were
all SEND_OK.
"""

import shutil
from pathlib import Path

import pytest
import trio

from tests.e2e.load import LoadProducer, Sends, body_of_size, wait_in_sync
from tests.e2e.processes import reaping
from tests.faults.conftest import failing, make_pair
from tests.faults.images import mounted_image, why_no_images
from tests.faults.proofs import lost
from tests.faults.unprotected import UnprotectedBroker, alone


async def test_control_a_failed_flush_that_is_forgotten_is_acknowledged(tmp_path: Path) -> None:
    """One EIO, and SEND_OK goes on: what ``test_no_send_ok_follows_a_failed_flush`` forbids."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    with alone(tmp_path) as broker:
        broker.prefix = failing("fdatasync", error="EIO", when="60")
        await broker.start()
        load = LoadProducer(broker.ports.listen, Sends("orders", body=body_of_size(700)), window=4)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.run)
            await broker.running.wait_output("swallowed:")
            await load.wait_acknowledged(200)
            nursery.cancel_scope.cancel()
        assert load.refused == 0


async def test_control_a_read_only_disk_that_is_not_noticed_is_acknowledged(tmp_path: Path) -> None:
    """The file system turned read-only, and SEND_OK goes on, for messages that are nowhere."""
    if reason := why_no_images():
        pytest.skip(reason)
    with mounted_image(tmp_path / "image", size_mib=64) as image, alone(tmp_path) as broker:
        broker.move_store(image.mount_point / "store")
        broker.conf["mappedFileSizeCommitLog"] = 32 << 20  # nobody can make a second file
        await broker.start()
        load = LoadProducer(broker.ports.listen, Sends("orders", body=body_of_size(700)), window=4)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.run)
            await load.wait_acknowledged(200)
            image.turn_read_only()
            await broker.running.wait_output("swallowed:")
            await load.wait_acknowledged(200)
            nursery.cancel_scope.cancel()


async def test_control_a_full_disk_that_is_not_noticed_is_acknowledged(tmp_path: Path) -> None:
    """More is acknowledged than the disk can hold: what ``test_full_disk.py`` forbids."""
    if reason := why_no_images():
        pytest.skip(reason)
    with mounted_image(tmp_path / "image", size_mib=24) as image, alone(tmp_path) as broker:
        broker.move_store(image.mount_point / "store")
        await broker.start()
        load = LoadProducer(broker.ports.listen, Sends("orders", body=body_of_size(8_000)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.run)
            await load.wait_acknowledged(4_000)
            nursery.cancel_scope.cancel()
        assert "No space left on device" in broker.running.output()
        assert len(load.acknowledged) * 8_000 > 24 << 20


async def test_control_a_slave_that_does_not_notice_its_disk_is_believed(tmp_path: Path) -> None:
    """SEND_OK by a slave whose disk turned read-only, of what only the master has."""
    if reason := why_no_images():
        pytest.skip(reason)
    pair = make_pair(tmp_path, slaveTimeout=20_000, mappedFileSizeCommitLog=32 << 20)
    slave = UnprotectedBroker(pair.slave.directory, pair.slave.conf, ports=pair.slave.ports)
    with mounted_image(tmp_path / "image", size_mib=64) as image, reaping(pair.master, slave):
        slave.move_store(image.mount_point / "store")
        await pair.master.start()
        await slave.start()
        await wait_in_sync(pair.master.ports.listen)
        load = LoadProducer(pair.master.ports.listen, Sends("orders", body=body_of_size(700)), window=4)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.run)
            await load.wait_acknowledged(200)
            image.turn_read_only()
            await slave.running.wait_output("swallowed:")
            await load.wait_acknowledged(200)
            nursery.cancel_scope.cancel()
        assert load.refused == 0
        assert lost(load.acknowledged, slave)
