"""Limits of the operating system reached by a running broker: descriptors, address space, size of files."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from rmqha.exit_codes import EXIT_STORE_FAILED
from tests.e2e.conftest import Pair
from tests.e2e.load import LoadProducer, Sends, body_of_size, wait_in_sync
from tests.e2e.processes import Broker, reaping
from tests.faults.conftest import make_pair
from tests.faults.proofs import all_there, all_there_after_restart, ends_acknowledgement, no_send_ok_any_more
from tests.faults.unprotected import UnprotectedBroker, alone

SIDES = ["master", "slave"]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = make_pair(tmp_path, slaveTimeout=2_000)
    with reaping(*pair.brokers):
        yield pair


def limit(broker: Broker, what: int, value: int) -> None:
    """Let a running broker have no more of something than this; its hard limit stays, so this can be taken back."""
    _, hard = resource.prlimit(broker.running.pid, what)
    resource.prlimit(broker.running.pid, what, (value, hard))


def unlimit(broker: Broker, what: int) -> None:
    """Let it have as much as it could have had."""
    _, hard = resource.prlimit(broker.running.pid, what)
    resource.prlimit(broker.running.pid, what, (hard, hard))


def descriptors(broker: Broker) -> int:
    """The highest descriptor in use, and one more: the limit at which nothing more can be opened."""
    return 1 + max(int(path.name) for path in Path(f"/proc/{broker.running.pid}/fd").iterdir())


def address_space(broker: Broker) -> int:
    """How much is mapped."""
    return int(Path(f"/proc/{broker.running.pid}/statm").read_text().split()[0]) * resource.getpagesize()


@pytest.mark.parametrize("side", SIDES)
async def test_no_descriptor_for_the_next_file_is_a_refusal_until_there_is_one(pair: Pair, side: str) -> None:
    """EMFILE wherever a file should be opened: refused, said, and when descriptors are free again all goes on."""
    victim = pair.master if side == "master" else pair.slave
    await pair.start()
    await wait_in_sync(pair.master.ports.listen)
    load = LoadProducer(pair.master.ports.listen, Sends("orders", body=body_of_size(2_000)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await load.wait_acknowledged(500)
        limit(victim, resource.RLIMIT_NOFILE, 3)  # so few that closing other files does not help
        await no_send_ok_any_more(load)
        await victim.running.wait_output("Too many open files")
        unlimit(victim, resource.RLIMIT_NOFILE)
        await load.wait_acknowledged(len(load.acknowledged) + 500)
        nursery.cancel_scope.cancel()
    await all_there(pair, load.acknowledged)
    assert [await broker.stop() for broker in pair.brokers] == [0, 0]


async def test_strangers_that_take_all_descriptors_disturb_nobody(pair: Pair) -> None:
    """No new connection is taken until there are descriptors again; those that are there go on."""
    pair.master.conf["slaveTimeout"] = 20_000
    await pair.start()
    await wait_in_sync(pair.master.ports.listen)
    load = LoadProducer(pair.master.ports.listen, Sends("orders", body=body_of_size(10)), window=4)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await load.wait_acknowledged(100)
        limit(pair.master, resource.RLIMIT_NOFILE, descriptors(pair.master))
        strangers = [await trio.open_tcp_stream("127.0.0.1", pair.master.ports.listen) for _ in range(20)]
        await pair.master.running.wait_output("listener.accepts_nobody")
        await load.wait_acknowledged(500)
        for stranger in strangers:
            await stranger.aclose()
        assert load.connections == 1
        unlimit(pair.master, resource.RLIMIT_NOFILE)
        await wait_in_sync(pair.master.ports.listen)  # over a new connection
        nursery.cancel_scope.cancel()
    assert load.refused == 0
    await all_there(pair, load.acknowledged)


@pytest.mark.parametrize("side", SIDES)
async def test_a_limit_of_the_file_size_is_an_honest_end(pair: Pair, side: str) -> None:
    """EFBIG, in the middle of a write as well; the signal that comes with it does not end the process."""
    victim = pair.master if side == "master" else pair.slave
    acknowledged = await ends_acknowledgement(
        pair, victim, breaks=lambda: limit(victim, resource.RLIMIT_FSIZE, 300_000), reason="File too large"
    )
    await all_there_after_restart(pair, acknowledged)


@pytest.mark.parametrize("side", SIDES)
async def test_no_address_space_is_an_honest_end(pair: Pair, side: str) -> None:
    """ENOMEM where a segment should be mapped, or for the stack of a thread; there is enough for all that is small."""
    victim = pair.master if side == "master" else pair.slave
    for broker in pair.brokers:
        broker.conf["mappedFileSizeCommitLog"] = 8 << 20
    acknowledged = await ends_acknowledgement(
        pair,
        victim,
        breaks=lambda: limit(victim, resource.RLIMIT_AS, address_space(victim) + (6 << 20)),
        reason="Cannot allocate memory|no thread",
        exit_codes=(
            0,
            EXIT_STORE_FAILED,
        ),  # tried again: making a segment, fdatasync without a thread; other lacks are final
        relapses=20,  # a thread that has nothing to do ends, and gives its stack back
    )
    await all_there_after_restart(pair, acknowledged)


async def test_control_a_write_that_is_cut_short_and_forgotten_is_acknowledged(tmp_path: Path) -> None:
    """Without the protection SEND_OK goes on: what the tests above forbid."""
    with alone(tmp_path) as broker:
        broker.conf["mappedFileSizeCommitLog"] = 1 << 30  # no second file is needed: the limit would forbid it
        await broker.start()
        load = LoadProducer(broker.ports.listen, Sends("orders", body=body_of_size(2_000)), window=4)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.run)
            await load.wait_acknowledged(50)
            limit(broker, resource.RLIMIT_FSIZE, 300_000)
            await broker.running.wait_output("swallowed:")
            await load.wait_acknowledged(200)
            nursery.cancel_scope.cancel()
        assert isinstance(broker, UnprotectedBroker)
        assert load.refused == 0
