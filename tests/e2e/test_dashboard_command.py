"""`rmqha dashboard` as a process, of a real pair: what it tells while the slave is there, and when it is gone."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rmqha.client import Message, open_producer
from tests.e2e.conftest import Pair
from tests.e2e.monitoring import Reply, fetch, wait_until
from tests.e2e.processes import CHECKOUT, Child, nobody_listens

pytest.importorskip("h11", reason="h11 is in the extra [web]")


async def wait_levels(address: str, *levels: str) -> Reply:
    def holds(reply: Reply) -> bool:
        return tuple(row["level"] for row in json.loads(reply.text)["brokers"]) == levels

    return await wait_until(address, "/api/cluster", holds)


async def told(address: str, path: str) -> Any:
    reply = await fetch(address, path)
    assert reply.status == 200, reply.text
    return json.loads(reply.text)


async def test_a_pair_in_the_browser(pair: Pair, tmp_path: Path) -> None:
    pair.master.conf["slaveTimeout"] = 20_000
    await pair.start()
    async with open_producer(pair.master.address) as producer:
        await producer.send(Message("orders", b"<b>tea</b>", keys="4711"))
    with nobody_listens() as silent:
        brokers = [
            f"--broker={address}" for address in (pair.master.address, pair.slave.address, f"127.0.0.1:{silent}")
        ]
        times = ["--interval", "2s", "--timeout", "20"]
        argv = [sys.executable, "-m", "rmqha", "dashboard", *brokers, "--listen", "0", *times]
        dashboard = Child(argv, log=tmp_path / "dashboard.log")
        try:
            found = await dashboard.wait_output(r'http://(127\.0\.0\.1:\d+)/", "event": "dashboard\.started')
            address = found[1]
            reply = await wait_levels(address, "failed", "ok", "ok")
            shown = json.loads(reply.text)
            assert "Connection refused" in shown["brokers"][0]["reasons"][0]
            (edge,) = next(group["edges"] for group in shown["groups"] if group["name"] == "pair")
            assert (edge["from"], edge["to"], edge["state"]) == (pair.master.address, pair.slave.address, "in-sync")
            await look_around(address, pair)
            await pair.slave.kill()
            await wait_levels(address, "failed", "degraded", "failed")
            assert await dashboard.stop() == 0
        finally:
            dashboard.reap()


async def look_around(address: str, pair: Pair) -> None:
    """All that is asked of brokers when somebody looks."""
    assert "<title>rmqha" in (await fetch(address, "/")).text
    assert "orders" in {row["topic"] for row in (await told(address, "/api/topics"))["topics"]}
    (of_topic,) = (await told(address, "/api/topic?topic=orders"))["brokers"]
    assert sum(queue["end"] for queue in of_topic["queues"]) == 1
    (message,) = (await told(address, "/api/message?topic=orders&key=4711"))["messages"]
    assert (message["body"], message["bodyKind"]) == ("<b>tea</b>", "text")
    (again,) = (await told(address, f"/api/message?id={message['offsetMsgId']}"))["messages"]
    assert again["offset"] == message["offset"]
    keys = {one["key"]: one for one in (await told(address, f"/api/config?broker={pair.master.address}"))["keys"]}
    assert keys["listenPort"]["origin"].endswith(":4")
    assert keys["haAck"]["origin"] == "default"
    assert (await told(address, "/api/history"))["series"][pair.master.address]["points"]


@pytest.mark.parametrize(
    ("arguments", "told_there"),
    [
        (["--interval", "1s"], "2s to 1m"),
        (["--listen", "here"], "neither PORT nor HOST:PORT"),
        (["--namesrv", "a:b"], "--namesrv"),
    ],
)
def test_wrong_usage_is_told(arguments: list[str], told_there: str) -> None:
    argv = [sys.executable, "-m", "rmqha", "dashboard", *arguments]
    ended = subprocess.run(argv, check=False, cwd=CHECKOUT, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, told_there in ended.stderr) == (2, True), ended.stderr


def test_without_the_library_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "h11.py").write_text("raise ImportError('no such library')")
    argv = [sys.executable, "-m", "rmqha", "dashboard", "--listen", "0"]
    env = {"PATH": "", "PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)}
    ended = subprocess.run(argv, check=False, cwd=CHECKOUT, env=env, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, "pip install 'rmqha[web]'" in ended.stderr) == (2, True), ended.stderr
