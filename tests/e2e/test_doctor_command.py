"""`rmqha doctor` before a pair runs, while it does, and for a broker that would take another's place."""

from pathlib import Path

import pytest

from tests.e2e.commands import rmqha
from tests.e2e.conftest import Pair
from tests.e2e.name_servers import RmqhaNameServer
from tests.e2e.processes import ON_ANY_DISK

pytestmark = pytest.mark.e2e


async def test_a_doctor_finds_a_running_pair_well_and_a_second_master_of_its_name_not(
    pair: Pair, tmp_path: Path
) -> None:
    server = RmqhaNameServer(tmp_path / "namesrv")
    try:
        await server.start()
        pair.master.conf |= {"namesrvAddr": server.address, "haPeers": pair.slave.ha_address, **ON_ANY_DISK}
        pair.slave.conf |= ON_ANY_DISK
        await pair.start()
        await server.knows(pair.master)
        for broker in pair.brokers:
            code, out, err = await rmqha("doctor", "-c", str(broker.directory / "broker.conf"))
            assert (code, err) == (0, ""), out
            assert "in use by its broker, which runs" in out
        other = ["--set", f"storePathRootDir={tmp_path}/other", "--set", "storePathCommitLog="]
        ports = ["--set", "listenPort=0", "--set", "haListenPort=0"]
        code, out, _ = await rmqha("doctor", "-c", str(pair.master.directory / "broker.conf"), *other, *ports)
        assert code == 1
        assert f"{server.address} knows pair with brokerId 0 at {pair.master.address}" in out
        code, out, _ = await rmqha("doctor", "-c", str(pair.master.directory / "broker.conf"), *other)
        assert (code, f"its storePathRootDir is {pair.master.store}, the file's is" in out) == (1, True), out
    finally:
        server.close()
