"""What `send` was told, held against what the other commands find."""

import json

import trio

from tests.e2e.commands import rmqha, wait_status
from tests.e2e.commitlog import wait_identical
from tests.e2e.conftest import Pair

COUNT = 500
Place = tuple[object, object, object]


async def _run(*arguments: str, expect: int = 0) -> str:
    code, out, err = await rmqha(*arguments)
    assert code == expect, f"{arguments}: exit code {code}\n{out}{err}"
    return out


def _places(lines: str) -> set[Place]:
    messages = [json.loads(line) for line in lines.splitlines()]
    return {(message["queueId"], message["queueOffset"], message["bodySha256"]) for message in messages}


async def test_every_receipt_is_true_on_both_sides(pair: Pair) -> None:
    """Queue, offset and body of each acknowledged message: on the slave's wire and in both logs, which verify."""
    pair.master.conf["slaveTimeout"] = 20_000
    await pair.start()
    await _run("status", "-b", pair.master.address, "--wait", "in-sync")
    receipts = pair.master.directory / "receipts.jsonl"
    size = ["--count", str(COUNT), "--size", "300"]
    await _run("send", "orders", "-b", pair.master.address, *size, "--receipts", str(receipts))
    assert {json.loads(line)["status"] for line in receipts.read_text().splitlines()} == {"SEND_OK"}
    places = _places(receipts.read_text())
    assert len(places) == COUNT

    await wait_identical(*(broker.store / "commitlog" for broker in pair.brokers))
    await pair.slave.kill()
    await wait_status(pair.master, 1)
    await pair.slave.start()
    await pair.master.kill()
    await _run("status", "-b", pair.master.address, expect=3)
    served = set[Place]()
    with trio.move_on_after(120):
        while served != places:  # its queues grow after its start
            served = _places(
                await _run("tail", "orders", "-b", pair.slave.address, "--from", "start", "--format", "json")
            )
    assert served == places
    for broker in pair.brokers:
        dump = await _run("log", "dump", str(broker.store), "--topic", "orders")
        assert _places(dump) == places
        await _run("log", "verify", str(broker.store))
