"""Immutable files and directories (chattr +i), as a hasty operator leaves them: EPERM, for root too."""

import subprocess
from pathlib import Path

import pytest
import trio

from rmqha.exit_codes import EXIT_FAILED
from tests.e2e.commands import rmqha
from tests.e2e.load import LoadProducer, Sends, body_of_size
from tests.e2e.processes import Broker
from tests.faults.conftest import MakePair
from tests.faults.images import mounted_image, why_no_images
from tests.faults.proofs import all_there_after_restart, ends_acknowledgement, lost
from tests.faults.unprotected import alone

REASON = "Operation not permitted"


def chattr(change: str, path: Path) -> None:
    subprocess.run(["chattr", change, str(path)], check=True)


def newest_with_data(broker: Broker) -> Path:
    return [path for path in broker.segments().values() if path.read_bytes()[:8] != bytes(8)][-1]


@pytest.mark.parametrize("what", ["directory", "segment"])
@pytest.mark.parametrize("side", ["master", "slave"])
async def test_what_must_not_be_changed_is_an_honest_end(pair_on_image: MakePair, side: str, what: str) -> None:
    """The next segment cannot be made, or this one not written any more; once it may be again, nothing is missing."""
    pair, _ = pair_on_image(side, slaveTimeout=2_000)
    victim = pair.master if side == "master" else pair.slave
    frozen: list[Path] = []

    def freeze() -> None:
        frozen.append(victim.store / "commitlog" if what == "directory" else newest_with_data(victim))
        chattr("+i", frozen[0])

    acknowledged = await ends_acknowledgement(pair, victim, breaks=freeze, reason=REASON)
    chattr("-i", frozen[0])
    await all_there_after_restart(pair, acknowledged)


async def test_control_an_immutable_segment_that_is_not_noticed_is_acknowledged(tmp_path: Path) -> None:
    """Without the protection SEND_OK goes on, for messages that are nowhere: what the test above forbids."""
    if reason := why_no_images():
        pytest.skip(reason)
    with mounted_image(tmp_path / "image", size_mib=64) as image, alone(tmp_path) as broker:
        broker.move_store(image.mount_point / "store")
        await broker.start()
        load = LoadProducer(broker.ports.listen, Sends("orders", body=body_of_size(2_000)), window=4)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.run)
            await load.wait_acknowledged(50)
            frozen = newest_with_data(broker)
            chattr("+i", frozen)
            await broker.running.wait_output(f"swallowed:.*{REASON}")
            await load.wait_acknowledged(200)
            nursery.cancel_scope.cancel()
        chattr("-i", frozen)
        assert load.refused == 0
        assert lost(load.acknowledged, broker)


@pytest.mark.parametrize("what", ["store", "store/lock", "store/commitlog/00000000000000000000"])
async def test_a_start_on_immutable_files_is_refused_with_the_reason(pair_on_image: MakePair, what: str) -> None:
    """No traceback; the last line names the file. Afterwards it starts as if nothing had been."""
    pair, image = pair_on_image("master")
    await pair.master.start()
    load = LoadProducer(pair.master.ports.listen, Sends("orders", body=body_of_size(700)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await load.wait_refused(10)  # stored, but no slave is there
        nursery.cancel_scope.cancel()
    await pair.master.stop()
    path = image.mount_point / what
    chattr("+i", path)
    try:
        assert await pair.master.launch().wait_exit() == EXIT_FAILED
        last = pair.master.running.output().splitlines()[-1]
        assert (REASON in last, str(path) in last) == (True, True), last
    finally:
        chattr("-i", path)
    await pair.master.start()
    code, out, _ = await rmqha("log", "verify", str(pair.master.store / "commitlog"))
    assert code == 0, out
