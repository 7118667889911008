"""The operator's and the engineer's commands against a real pair."""

import json
import subprocess
import sys
from pathlib import Path

import trio

from tests.e2e.commitlog import wait_identical
from tests.e2e.conftest import Pair

COUNT = 500


async def rmqha(*arguments: str | Path, expect: int = 0, stdin: bytes = b"") -> str:
    """Run one command; returns its stdout. Its exit code must be the expected one."""
    command = [sys.executable, "-m", "rmqha", *map(str, arguments)]
    with trio.fail_after(60):
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, stdin=stdin, check=False)
    assert done.returncode == expect, f"{command[2:]}: exit code {done.returncode}\n{_text(done)}"
    return str(done.stdout.decode())


def _text(done: "subprocess.CompletedProcess[bytes]") -> str:
    return (done.stdout + done.stderr).decode(errors="replace")


def _lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


async def test_messages_are_sent_read_dumped_and_verified(pair: Pair) -> None:
    """What `send` was told SEND_OK for is what `tail` prints on both sides and `log dump` finds on disk."""
    await pair.start()
    await rmqha("status", "--broker", pair.master.address, "--wait", "in-sync", "--timeout", "30")
    receipts = pair.master.directory / "receipts.jsonl"
    count = ["--count", str(COUNT), "--size", "300", "--receipts", str(receipts)]
    await rmqha("send", "orders", "--broker", pair.master.address, *count)
    sent = _lines(receipts.read_text())
    assert [receipt["status"] for receipt in sent] == ["SEND_OK"] * COUNT
    places = {(receipt["queueId"], receipt["queueOffset"], receipt["bodySha256"]) for receipt in sent}
    assert len(places) == COUNT
    await wait_identical(*(broker.store / "commitlog" for broker in pair.brokers))

    await pair.master.kill()
    place = ["--broker", pair.slave.address, "--from", "start"]
    tail = _lines(await rmqha("tail", "orders", *place, "--format", "json"))
    assert {(line["queueId"], line["queueOffset"], line["bodySha256"]) for line in tail} == places
    for broker in pair.brokers:
        dump = [line for line in _lines(await rmqha("log", "dump", broker.store)) if line["topic"] == "orders"]
        assert {(line["queueId"], line["queueOffset"], line["bodySha256"]) for line in dump} == places
        await rmqha("log", "verify", broker.store)


async def test_status_says_how_a_pair_is_and_exits_accordingly(pair: Pair) -> None:
    """0 in sync, 1 without its slave, 3 when it is gone."""
    await pair.start()
    await rmqha("status", "--broker", pair.master.address, "--wait", "in-sync", "--timeout", "30")
    status = json.loads(await rmqha("status", "--broker", pair.master.address, "--format", "json"))
    assert len(json.dumps(status)) > 100
    await pair.slave.kill()
    await rmqha("status", "--broker", pair.master.address, expect=1)
    await pair.master.kill()
    await rmqha("status", "--broker", pair.master.address, expect=3)


async def test_verify_names_the_first_bad_byte(pair: Pair) -> None:
    """One flipped bit in a body is found, at its record's offset."""
    await pair.start()
    await rmqha("status", "--broker", pair.master.address, "--wait", "in-sync", "--timeout", "30")
    await rmqha("send", "orders", "--broker", pair.master.address, "--count", "100", "--size", "300")
    await pair.master.stop()
    dump = _lines(await rmqha("log", "dump", pair.master.store))
    victim = dump[len(dump) // 2]
    at = int(str(victim["physicalOffset"]))
    with (pair.master.store / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.seek(at + 100)
        byte = log.read(1)[0]
        log.seek(at + 100)
        log.write(bytes([byte ^ 1]))
    assert str(at) in await rmqha("log", "verify", pair.master.store, expect=1)
