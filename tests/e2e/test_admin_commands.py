"""`rmqha topics`, `groups` and `message` against a running pair, by the brokers' addresses and by a name server's."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from rmqha.client import open_consumer
from rmqha.spark import iter_batches
from tests.broker.acl.files import account, home_with
from tests.e2e.commands import rmqha
from tests.e2e.conftest import Pair
from tests.e2e.name_servers import RmqhaNameServer

pytestmark = pytest.mark.e2e


async def told(*arguments: str) -> list[Any]:
    """What a command prints as JSON."""
    code, out, err = await rmqha(*arguments, "--format", "json")
    assert (code, err) == (0, ""), (arguments, out, err)
    return [json.loads(line) for line in out.splitlines()]


async def told_at_last(holds: Callable[[list[Any]], bool], *arguments: str) -> list[Any]:
    """As :func:`told`, once it is as wanted: a slow disk shows a message later, and its keys are indexed after that."""
    with trio.fail_after(120):
        while True:
            code, out, _ = await rmqha(*arguments, "--format", "json")
            if code == 0 and holds(found := [json.loads(line) for line in out.splitlines()]):
                return found
            await trio.sleep(0.1)


async def test_an_operator_makes_a_topic_finds_its_messages_sets_a_group_back_and_deletes_it(
    pair: Pair, tmp_path: Path
) -> None:
    server = RmqhaNameServer(tmp_path / "namesrv")
    try:
        await server.start()
        pair.master.conf |= {
            "brokerRole": "ASYNC_MASTER",
            "namesrvAddr": server.address,
            "flushDiskType": "ASYNC_FLUSH",
        }
        await pair.start()
        await server.knows(pair.master)
        await _topics(pair.master.address, pair.slave.address, server.address)
        await _messages(pair.master.address)
        await _groups(pair.master.address)
        code, _, err = await rmqha("topics", "delete", "orders", "-b", server.address)
        assert (code, "give --yes" in err) == (2, True), err
        (deleted,) = await told("topics", "delete", "orders", "-b", server.address, "--yes")
        assert (deleted["topic"], deleted["messages"]) == ("orders", 10)
        assert "orders" not in [one["topic"] for one in await told("topics", "list", "-b", pair.master.address)]
        assert (await rmqha("topics", "describe", "orders", "-b", server.address))[0] == 1
        left = [row for batch in iter_batches(str(pair.master.store)) for row in batch.to_pylist()]
        assert "orders" not in {row["topic"] for row in left}, "nor does a replay bring it back"
    finally:
        server.close()


async def _topics(master: str, slave: str, name_server: str) -> None:
    (made,) = await told("topics", "create", "orders", "--queues", "2", "-b", name_server)
    assert (made["writeQueueNums"], made["readQueueNums"], made["perm"]) == (2, 2, 6)
    assert (await rmqha("topics", "create", "orders", "-b", master))[0] == 1
    (changed,) = await told("topics", "update", "orders", "--read-queues", "3", "-b", master)
    assert (changed["writeQueueNums"], changed["readQueueNums"]) == (2, 3)
    code, _, err = await rmqha("topics", "update", "orders", "--perm", "r", "-b", slave)
    assert (code, "it is a slave" in err) == (1, True)
    assert await told("topics", "list", "-b", master) == [
        {"topic": "orders", "broker": "pair", "writeQueues": 2, "readQueues": 3, "perm": "rw"}
    ]
    code, out, _ = await rmqha("topics", "list", "--all", "-b", master)
    assert (code, "TBW102" in out) == (0, True)


async def _messages(master: str) -> None:
    lines = "".join(f"order {number}\n" for number in range(10))
    assert (await rmqha("send", "orders", "-b", master, "--key", "k1", "--property", "a=b", stdin=lines))[0] == 0
    arguments: tuple[str, ...] = ("topics", "describe", "orders", "-b", master)
    (document,) = await told_at_last(lambda found: sum(queue["end"] for queue in found[0]["queues"]) == 10, *arguments)
    assert [queue["end"] for queue in document["queues"]] == [5, 5, 0], "the third is read, and not written"
    arguments = ("message", "get", "--key", "k1", "-t", "orders", "-b", master)
    by_key = await told_at_last(lambda found: len(found) == 10, *arguments)
    assert sorted(one["body"] for one in by_key) == sorted(lines.splitlines())
    one = by_key[0]
    for asked in ([one["offsetMsgId"]], [one["msgId"], "-t", "orders"], ["--offset", str(one["physicalOffset"])]):
        assert await told("message", "get", *asked, "-b", master) == [one]
    since = str(min(message["storeTimestamp"] for message in by_key))
    first = await told("message", "get", "-t", "orders", "--since", since, "-n", "10", "-b", master)
    assert sorted(one["body"] for one in first) == sorted(lines.splitlines())
    code, out, _ = await rmqha("message", "get", one["offsetMsgId"], "-b", master)
    assert (code, "property   a=b" in out, out.splitlines()[-1]) == (0, True, one["body"])
    code, _, err = await rmqha("message", "get", "--key", "k2", "-t", "orders", "-b", master)
    assert (code, "no such message is found" in err) == (1, True)


async def _groups(master: str) -> None:
    async with open_consumer(master, "orders", group="billing") as consumer:
        got = 0
        with trio.fail_after(60):
            while got < 10:
                got += len(await consumer.poll())
        await consumer.commit()
    assert [one["lag"] for one in await told("groups", "list", "-b", master) if one["group"] == "billing"] == [0]
    arguments = ["groups", "reset", "billing", "--topic", "orders", "--to", "earliest", "-b", master]
    (plan,) = await told(*arguments)
    assert [queue["change"] for queue in plan["queues"]] == [-5, -5, 0]
    assert (await told("groups", "describe", "billing", "-b", master))[0]["lag"] == 0
    assert (await told(*arguments, "--execute"))[0]["executed"] is True
    (document,) = await told("groups", "describe", "billing", "-b", master)
    assert (document["lag"], document["members"]) == (10, [])
    (latest,) = await told(*arguments[:-4], "--to", "@-0s", "--execute", "-b", master)
    assert [queue["wanted"] for queue in latest["queues"]] == [5, 5, 0]
    code, out, _ = await rmqha("groups", "describe", "billing", "-b", master)
    assert (code, "lag: 0 messages" in out) == (0, True)
    (gone,) = await told("groups", "delete", "billing", "--yes", "-b", master)
    assert gone["offsetsDeleted"] > 0
    assert "billing" not in [one["group"] for one in await told("groups", "list", "-b", master)]
    code, _, err = await rmqha("groups", "reset", *arguments[2:-2], "-b", master, "--execute")
    assert (code, "group billing does not exist" in err) == (1, True)
    code, _, err = await rmqha("groups", "describe", "nosuch", "-b", master)
    assert (code, "group nosuch does not exist" in err) == (1, True)


async def test_accounts_are_those_of_the_other_commands(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("yaml")
    accounts = "accounts:\n" + account("operator", "admin: true") + account("stranger1", "defaultTopicPerm: DENY")
    home = home_with(pair.master.directory, accounts)
    pair.master.conf |= {"brokerRole": "ASYNC_MASTER", "aclEnable": "true", "rocketmqHome": home}
    await pair.master.start()
    at = ["-b", pair.master.address]
    code, _, err = await rmqha("topics", "list", *at)
    assert (code, "RMQHA_CREDENTIALS" in err) == (1, True), err
    monkeypatch.setenv("RMQHA_SECRET_KEY", "12345678")
    monkeypatch.setenv("RMQHA_ACCESS_KEY", "stranger1")
    assert (await rmqha("topics", "create", "orders", *at))[0] == 1
    monkeypatch.setenv("RMQHA_ACCESS_KEY", "operator")
    assert (await told("topics", "create", "orders", *at))[0]["topicName"] == "orders"
    assert [one["topic"] for one in await told("topics", "list", *at)] == ["orders"]
    assert (await rmqha("top", *at, "--count", "1"))[0] == 0
