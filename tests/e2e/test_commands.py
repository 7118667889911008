"""The commands of `rmqha`, as an operator and a producer use them, against real brokers."""

import json
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import trio

from tests.e2e.commands import rmqha
from tests.e2e.conftest import Pair
from tests.e2e.processes import CHECKOUT, Child


async def replicas_named(master: str) -> list[str]:
    """What the master calls its slaves: each says its name by remoting, a moment after it follows."""
    code, out, _ = await rmqha("status", "-b", master)
    assert code == 0, out
    return re.findall(r"replica  127\.0\.0\.1:\d+ \((\S+)\)", out)


async def tailed(broker: str) -> list[str]:
    """All messages of the topic that this broker shows; a slave knows of the topic from the first one that it shows."""
    code, out, err = await rmqha("tail", "orders", "-b", broker, "--from", "start")
    if "does not know topic orders" in err:
        return []
    assert (code, err) == (0, "")
    return out.splitlines()


async def test_what_is_sent_is_tailed_dumped_and_survives_the_master(pair: Pair) -> None:
    pair.master.conf["slaveTimeout"] = 20_000
    await pair.start()
    master, slave = pair.master.address, pair.slave.address
    assert (await rmqha("status", "-b", master, "--wait", "in-sync"))[0] == 0

    lines = "".join(f"order {number}\n" for number in range(200))
    code, out, err = await rmqha("send", "orders", "-b", master, "--tag", "new", "--key", "k1", stdin=lines)
    assert (code, err) == (0, "")
    assert out.split()[:2] == ["SEND_OK", "200"]
    code, out, _ = await rmqha("send", "orders", "-b", master, "--count", "50", "--size", "20", "--format", "json")
    assert json.loads(out)["statuses"] == {"SEND_OK": 50}

    code, out, err = await rmqha("tail", "orders", "-b", master, "--from", "start", "--tag", "new")
    assert (code, err) == (0, "")
    assert sorted(out.splitlines()) == sorted(lines.splitlines())
    code, out, _ = await rmqha("tail", "orders", "-b", master, "--from", "-3", "--format", "json")
    newest = [json.loads(line) for line in out.splitlines()]
    assert [message["body"][:3] for message in newest] == ["47 ", "48 ", "49 "]

    assert (await rmqha("status", "-b", slave, "--wait", "in-sync"))[0] == 0
    with trio.fail_after(60):
        while await replicas_named(master) != ["pair/1"]:  # noqa: ASYNC110 - another process
            await trio.sleep(0.2)
    await pair.master.kill()
    assert (await rmqha("status", "-b", master))[0] == 3
    with trio.fail_after(60):
        while len(await tailed(slave)) < 250:  # noqa: ASYNC110 - in sync is what is durable; shown is what is dispatched
            await trio.sleep(0.2)
    assert len(await tailed(slave)) == 250

    code, out, _ = await rmqha("log", "dump", str(pair.slave.store), "--key", "k1", "--body", "-n", "2")
    assert (code, [json.loads(line)["body"] for line in out.splitlines()]) == (0, ["order 0", "order 1"])


async def test_follow_prints_what_comes(pair: Pair) -> None:
    pair.master.conf["slaveTimeout"] = 20_000
    await pair.start()
    master = pair.master.address
    assert (await rmqha("status", "-b", master, "--wait", "in-sync"))[0] == 0
    assert (await rmqha("send", "orders", "-b", master, stdin="before\n"))[0] == 0
    command = [sys.executable, "-m", "rmqha", "tail", "orders", "-b", master, "--from", "start", "-f", "-n", "2"]
    async with trio.open_nursery() as nursery:
        with trio.fail_after(120):
            tail = await nursery.start(partial(trio.run_process, command, stdout=subprocess.PIPE, cwd=CHECKOUT))
            assert tail.stdout is not None
            assert await tail.stdout.receive_some() == b"before\n"
            assert (await rmqha("send", "orders", "-b", master, stdin="after\n"))[0] == 0
            assert await tail.stdout.receive_some() == b"after\n"


async def test_receipts_that_cannot_be_written_are_an_error_beside_the_counts(pair: Pair) -> None:
    await pair.master.start()  # without a slave all five get the same status
    arguments = ["orders", "-b", pair.master.address, "--count", "5", "--receipts", "/dev/full"]
    code, out, err = await rmqha("send", *arguments)
    assert code == 1
    assert "\nError: the receipts are not complete\nWhy:   No space left on device\nNext:  " in err, err
    assert re.search(r" 5$", out, re.MULTILINE), out


async def test_a_send_that_is_interrupted_does_not_end_as_if_all_were_sent(pair: Pair, tmp_path: Path) -> None:
    pair.master.conf["slaveTimeout"] = 20_000
    await pair.start()
    assert (await rmqha("status", "-b", pair.master.address, "--wait", "in-sync"))[0] == 0
    arguments = ["send", "orders", "-b", pair.master.address, "--count", "1000000", "--window", "1"]
    sending = Child([sys.executable, "-m", "rmqha", *arguments], log=tmp_path / "send.log")
    try:
        first = 0
        while not first or await _stored_bytes(pair) == first:  # with a window of 1 the second follows an answer
            assert sending.returncode is None
            first = first or await _stored_bytes(pair)
        sending.signal(signal.SIGINT)
        assert await sending.wait_exit() == 130
    finally:
        sending.reap()
    assert re.search(r"Interrupted; so far:\nSEND_OK +[1-9]", sending.output()), sending.output()


async def _stored_bytes(pair: Pair) -> int:
    found = re.search(r"max ([\d,]+) ", (await rmqha("status", "-b", pair.master.address))[1])
    assert found is not None
    return int(found[1].replace(",", ""))


async def test_what_goes_wrong_is_said_and_counted(pair: Pair) -> None:
    await pair.master.start()
    master = pair.master.address
    code, out, _ = await rmqha("send", "orders", "-b", master, stdin="nobody copies this\n")
    assert (code, out.split()[:2]) == (1, ["SLAVE_NOT_AVAILABLE", "1"])
    code, _, err = await rmqha("status", "-b", master, "--wait", "in-sync", "--timeout", "5")
    assert code == 1
    assert "0 of the 1 slaves that a send needs are in sync" in err
    code, _, err = await rmqha("tail", "nosuch", "-b", master)
    assert code == 1
    assert "topic nosuch cannot be read" in err
    code, _, err = await rmqha("send", "or ders", "-b", master, stdin="x\n")
    assert code == 2, "no broker is asked"
    assert "may only hold" in err
    await pair.master.stop()
    for command in (["send", "orders"], ["tail", "orders"], ["status"]):
        assert (await rmqha(*command, "-b", master, stdin="x\n"))[0] == 3
