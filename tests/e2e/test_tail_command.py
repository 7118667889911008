"""`rmqha tail` shows what was answered SEND_OK, whenever the broker flushes; and says what a wrong address is."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.e2e.commands import rmqha
from tests.e2e.conftest import Pair
from tests.e2e.name_servers import RmqhaNameServer

pytestmark = pytest.mark.e2e


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A directory on a disk that flushes at once: longer than half a second nobody waits for that."""
    shared = Path("/dev/shm")
    with TemporaryDirectory(dir=shared if shared.is_dir() else None) as directory:
        yield Path(directory)


async def test_what_was_answered_is_printed_though_nothing_would_be_flushed_for_minutes(
    in_memory: Path, pair: Pair
) -> None:
    pair.master.conf |= {
        "brokerRole": "ASYNC_MASTER",
        "flushDiskType": "ASYNC_FLUSH",
        "flushIntervalCommitLog": 300_000,
        "flushCommitLogThoroughInterval": 300_000,
    }
    pair.master.move_store(in_memory / "store")
    await pair.master.start()
    for number in range(3):  # the first one's topic is saved, which may flush as well
        assert (await rmqha("send", "orders", "-b", pair.master.address, stdin=f"{number}\n"))[0] == 0
        code, out, err = await rmqha("tail", "orders", "-b", pair.master.address, "--from", "start")
        assert (code, sorted(out.split()), err) == (0, [str(one) for one in range(number + 1)], "")


async def test_a_name_server_is_told_from_a_broker_with_the_brokers_that_it_knows(pair: Pair, tmp_path: Path) -> None:
    server = RmqhaNameServer(tmp_path / "namesrv")
    try:
        await server.start()
        pair.master.conf |= {"namesrvAddr": server.address, "brokerRole": "ASYNC_MASTER"}
        await pair.master.start()
        await server.knows(pair.master)
        for command in (["tail", "orders"], ["status"]):
            code, out, err = await rmqha(*command, "-b", server.address)
            assert (code, out) == (1, "")
            assert f"{server.address} is a name server's address, not a broker's" in err
            assert f"name a broker with --broker, one of {pair.master.address} (" in err
        both = ["-b", pair.master.address, "-b", pair.slave.address]
        code, out, err = await rmqha("status", *both)
        assert code == 3
        assert out.startswith("ok: ASYNC_MASTER")
        assert f"the broker at {pair.slave.address} cannot be reached" in err
    finally:
        server.close()
