"""Kill, promote, rejoin, again and again under load, by the commands and rules of docs/operations.md.

No message that any master acknowledged is lost, and no place is given twice. RMQHA_KILL_CYCLES sets how often (3 unless
told; a release is tested with 50).
"""

import json
import os
import shutil
from typing import Any

import pytest
import trio

from rmqha.config.java_properties import parse_properties
from tests.e2e.commands import rmqha
from tests.e2e.commitlog import HeldMessages, read_records, wait_identical
from tests.e2e.conftest import Pair
from tests.e2e.load import LoadProducer, Sends, body_of_size
from tests.e2e.processes import Broker

CYCLES = int(os.environ.get("RMQHA_KILL_CYCLES", "3"))
MESSAGES_A_CYCLE = 300
PEER_IS_LONGER = "holds messages beyond this log's end"
"""So sends are refused while an old master is back with a tail that reaches further than the new one's log by then."""
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300 + 120 * CYCLES)]


async def test_no_failover_by_hand_loses_an_acknowledged_message_or_gives_a_place_twice(pair: Pair) -> None:
    pair.master.conf["haPeers"] = pair.slave.ha_address
    pair.slave.conf |= {"haPeers": pair.master.ha_address, "masterAddress": pair.master.address}
    sends, acknowledged = Sends("orders", body=body_of_size(700)), set[int]()
    master, slave = pair.brokers
    await pair.start()
    for _ in range(CYCLES):
        await be_sent_to(master, sends, acknowledged, killed_before=slave)
        await promote(slave)
        assert acknowledged <= HeldMessages(slave.store / "commitlog", "orders").read(torn=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(be_sent_to, slave, sends, acknowledged)
            await rejoin(master, slave)
        master, slave = slave, master
    assert [await broker.stop() for broker in (master, slave)] == [0, 0]
    await wait_identical(master.store / "commitlog", slave.store / "commitlog")
    for broker in pair.brokers:
        assert acknowledged <= HeldMessages(broker.store / "commitlog", "orders").read(torn=False)
        records = read_records(broker.store / "commitlog")
        places = [(one.queue_id, one.queue_offset) for one in records if one.topic == "orders"]
        assert len(places) == len(set(places))


async def be_sent_to(
    master: Broker, sends: Sends, acknowledged: set[int], *, killed_before: Broker | None = None
) -> None:
    """Until so many are acknowledged, by a SYNC_MASTER: its slave has them. Then it may be killed, under load.

    Not before the slave that is to follow it knows where queues end, and has its tables: it could not be promoted.
    """
    load = LoadProducer(master.ports.listen, sends)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await load.wait_acknowledged(MESSAGES_A_CYCLE)
        if killed_before is not None:
            await killed_before.running.wait_output("queue_ends.learned")
            with trio.fail_after(60):
                while (await facts_of(killed_before))["tables_not_taken"]:  # noqa: ASYNC110 - another process
                    await trio.sleep(0.1)
            await master.kill()
        nursery.cancel_scope.cancel()
    acknowledged |= load.acknowledged
    assert [text for text in load.unexpected if PEER_IS_LONGER not in text] == []


async def promote(slave: Broker) -> None:
    """By the command, once it follows nobody any more, then a restart with the file that it wrote."""
    with trio.fail_after(120):
        while await slave_state(slave) == "transfer":  # noqa: ASYNC110 - another process
            await trio.sleep(0.1)
    code, out, err = await rmqha("promote", "-c", str(slave.conf_file), "--role", "SYNC_MASTER", "--execute")
    assert (code, err) == (0, ""), out
    assert await slave.stop() == 0
    properties, _ = parse_properties(slave.conf_file.read_bytes())
    slave.conf = {one.key: one.value for one in properties}
    await slave.start()


async def rejoin(old: Broker, new: Broker) -> None:
    """As the new master's slave; with an empty store, if it holds what nobody acknowledged."""
    old.conf |= {"brokerRole": "SLAVE", "brokerId": 1}
    old.conf |= {"haMasterAddress": new.ha_address, "masterAddress": new.address}
    await old.start()
    with trio.fail_after(120):
        while (state := await slave_state(old)) not in {"transfer", "diverged", "ahead"}:  # noqa: ASYNC110
            await trio.sleep(0.1)
    if state != "transfer":
        await old.kill()
        shutil.rmtree(old.store)
        await old.start()


async def slave_state(slave: Broker) -> str:
    return str((await facts_of(slave))["ha_client"]["state"])


async def facts_of(broker: Broker) -> dict[str, Any]:
    _, out, _ = await rmqha("status", "-b", broker.address, "--format", "json")
    facts: dict[str, Any] = json.loads(out)
    return facts
