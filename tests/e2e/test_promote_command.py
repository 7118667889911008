"""A failover by `rmqha promote`: kill, promote, rejoin. No acknowledged message is lost, no place given twice."""

import json

import pytest
import trio

from rmqha.config.java_properties import parse_properties
from tests.e2e.commands import rmqha, wait_status
from tests.e2e.conftest import Pair
from tests.e2e.processes import Broker

pytestmark = pytest.mark.e2e


async def test_a_slave_is_promoted_when_its_master_is_gone_and_the_master_comes_back_as_its_slave(pair: Pair) -> None:
    pair.master.conf |= {"slaveTimeout": 20_000, "haPeers": pair.slave.ha_address}  # a busy machine is no failure
    await pair.start()
    master, slave = pair.master, pair.slave
    assert (await rmqha("status", "-b", master.address, "--wait", "in-sync"))[0] == 0
    code, out, _ = await rmqha("send", "orders", "-b", master.address, "--count", "100", "--format", "json")
    assert (code, json.loads(out)["statuses"]) == (0, {"SEND_OK": 100})
    await slave.running.wait_output("queue_ends.learned")

    command = ["promote", "-c", str(slave.conf_file), "--role", "ASYNC_MASTER"]
    code, _, err = await rmqha(*command, "--execute")
    assert (code, f"the old master may be alive: {master.address}" in err) == (1, True), err
    await master.kill()
    await slave.running.wait_output(r"ha_client\.disconnected")  # while it follows somebody it is not promoted
    stale = slave.conf_file.with_name("stale.conf")
    stale.write_text(slave.conf_file.read_text().replace(str(slave.store), f"{slave.store}-of-before"))
    code, _, err = await rmqha("promote", "-c", str(stale), "--role", "ASYNC_MASTER")
    assert (code, f"the file's is {slave.store}-of-before" in err) == (1, True), err
    code, out, err = await rmqha(*command, "--old-store", str(master.store), "--execute")
    assert (code, err) == (0, ""), out
    assert await slave.stop() == 0
    properties, _ = parse_properties(slave.conf_file.read_bytes())
    slave.conf = {one.key: one.value for one in properties}
    await slave.start()
    code, out, _ = await rmqha("send", "orders", "-b", slave.address, "--count", "100", "--format", "json")
    assert (code, json.loads(out)["statuses"]) == (0, {"SEND_OK": 100})

    old_file = master.launch()  # as if nothing had happened meanwhile
    assert await old_file.wait_exit() != 0
    assert "a second master is to be its slave" in old_file.output()
    master.conf |= {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": slave.ha_address}
    await master.start()
    await wait_status(master, 0, says="transfer from")
    assert (await rmqha("status", "-b", slave.address, "--wait", "in-sync"))[0] == 0
    for broker in (slave, master):
        places: list[tuple[int, int]] = []
        with trio.fail_after(120):
            while len(places) < 200:  # in sync is what is durable; shown is what is dispatched
                places = await shown_places(broker)
        assert (len(places), len(set(places))) == (200, 200)


async def shown_places(broker: Broker) -> list[tuple[int, int]]:
    """Of all messages of the topic that this broker shows."""
    code, out, err = await rmqha("tail", "orders", "-b", broker.address, "--from", "start", "--format", "json")
    assert code == 0, err
    return [(one["queueId"], one["queueOffset"]) for one in map(json.loads, out.splitlines())]
