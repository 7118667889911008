"""The controls: the same faults met by a broker whose protection was taken out. If these fail, the others show nothing.

What is taken out is what RocketMQ 4.9 lacks: there a failed flush is logged, and the flushed position moves on.
Executed on 4.9.7: 60 of 60 sends across one EIO and 20 of 20 after it, and 20,377 across a read-only flip, were
all SEND_OK.
"""

import shutil
from pathlib import Path

import pytest
import trio

from tests.e2e.load import LoadProducer, Sends, body_of_size
from tests.faults.conftest import failing
from tests.faults.images import mounted_image, why_no_images
from tests.faults.unprotected import alone


async def test_control_a_failed_flush_that_is_forgotten_is_acknowledged(tmp_path: Path) -> None:
    """One EIO, and SEND_OK goes on: what ``test_no_send_ok_follows_a_failed_flush`` forbids."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    with alone(tmp_path) as broker:
        broker.prefix = failing("fdatasync", error="EIO", when="60")
        await broker.start()
        load = LoadProducer(broker.ports.listen, Sends("orders", body_of_size(700)), window=4)
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
        await broker.start()
        load = LoadProducer(broker.ports.listen, Sends("orders", body_of_size(700)), window=4)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.run)
            await load.wait_acknowledged(200)
            image.turn_read_only()
            await broker.running.wait_output("swallowed:")
            await load.wait_acknowledged(200)
            nursery.cancel_scope.cancel()
