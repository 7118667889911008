"""Topics, groups, messages and rates of a real RocketMQ broker, by rmqha's commands."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from rmqha.client import open_consumer
from rmqha.codec import java_json
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.dashboard.questions import brokers_at
from rmqha.remoting.client import open_remoting_client
from rmqha.transport import TcpNetwork
from tests.e2e.commands import rmqha
from tests.e2e.name_servers import RmqhaNameServer
from tests.e2e.processes import reaping
from tests.interop.feature_table import BROKER
from tests.interop.peers import JavaBroker, JavaNameServer

pytestmark = pytest.mark.tries(BROKER, "rmqha topics, groups, message, top")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[JavaBroker]:
    broker = JavaBroker(tmp_path / "java", {"brokerRole": "ASYNC_MASTER"})
    with reaping(broker):
        yield broker


async def told(*arguments: str) -> list[Any]:
    """What a command prints as JSON."""
    code, out, err = await rmqha(*arguments, "--format", "json")
    assert (code, err) == (0, ""), (arguments, out, err)
    return [json.loads(line) for line in out.splitlines()]


async def test_rocketmq_answers_every_question(broker: JavaBroker, tmp_path: Path) -> None:
    server = RmqhaNameServer(tmp_path / "namesrv")
    try:
        await server.start()
        broker.conf |= {"namesrvAddr": server.address}
        await broker.start()
        with trio.fail_after(120):
            while (await rmqha("status", "-b", broker.address))[0] != 0:  # noqa: ASYNC110 - another process
                await trio.sleep(0.5)
            while (await rmqha("topics", "list", "-b", server.address))[0] != 0:  # noqa: ASYNC110
                await trio.sleep(0.5)
        await _ask(broker.address, server.address)
    finally:
        server.close()


async def test_a_name_server_of_rocketmqs_stands_for_its_brokers(broker: JavaBroker, tmp_path: Path) -> None:
    """It answers nothing that it does not know, and every command but `send` said that it cannot be reached."""
    server = JavaNameServer(tmp_path / "namesrv")
    try:
        broker.conf |= {"namesrvAddr": server.address}
        await broker.start()
        at = ["-b", server.address]
        with trio.fail_after(120):
            while (await rmqha("topics", "list", *at))[0] != 0:  # noqa: ASYNC110 - another process
                await trio.sleep(0.5)
        await told("topics", "create", "orders", *at)
        assert [one["topic"] for one in await told("topics", "list", *at)] == ["orders"]
        await _wait_route(server.address, {})
        assert (await rmqha("send", "orders", *at, "--count", "10", "--retries", "100", "--timeout", "60"))[0] == 0
        assert [one["topic"] for one in await told("topics", "describe", "orders", *at)] == ["orders"]
        assert await told("groups", "list", *at) == []
        (first,) = await told("message", "get", "--offset", "0", *at)
        assert first["topic"] == "orders"
        assert (await rmqha("top", "--count", "1", *at))[0] == 0
        for command in (["status"], ["tail", "orders"]):
            code, _, err = await rmqha(*command, *at)
            assert (code, "is a name server's address, not a broker's" in err) == (1, True), err
            assert f"{broker.address} (pair, master)" in err
        code, out, _ = await rmqha("doctor", "-c", str(broker.conf_file))
        assert f"{server.address}: pair with brokerId 0 is registered" in out
        assert "does not say what it goes by: it is RocketMQ's" in out
        brokers = await trio.to_thread.run_sync(partial(brokers_at, server.address, timeout_s=30))
        assert [one.address for one in brokers] == [broker.address]
    finally:
        server.close()


async def _wait_route(name_server: str, queues: dict[str, int]) -> None:
    """The name server has heard of the topic, and of so many queues."""
    request = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "orders"})
    async with open_remoting_client(TcpNetwork(), name_server) as client:
        with trio.fail_after(120):
            while True:
                answer = await client.invoke(request, timeout_s=60)
                found = java_json.loads(answer.body)["queueDatas"] if answer.code == ResponseCode.SUCCESS else []
                if found and all(one.items() >= queues.items() for one in found):
                    return
                await trio.sleep(0.2)


async def _ask(address: str, name_server: str) -> None:
    at = ["-b", address]
    (made,) = await told("topics", "create", "orders", "--queues", "2", *at)
    assert (made["broker"], made["writeQueueNums"]) == (address, 2)
    assert (await told("topics", "update", "orders", "--read-queues", "3", *at))[0]["readQueueNums"] == 3
    assert [one["topic"] for one in await told("topics", "list", *at)] == ["orders"]
    await _wait_route(name_server, {"readQueueNums": 3, "writeQueueNums": 2})
    patiently = ("--retries", "100", "--timeout", "60")
    assert (await rmqha("send", "orders", "-b", name_server, "--count", "10", "--key", "k1", *patiently))[0] == 0
    with trio.fail_after(120):
        while True:  # what is sent is dispatched, and indexed, a moment later
            found = await rmqha("message", "get", "--key", "k1", "-t", "orders", *at, "--format", "json")
            if len(found[1].splitlines()) == 10:
                break
            await trio.sleep(0.2)
    one = json.loads(found[1].splitlines()[0])
    for asked in ([one["offsetMsgId"]], [one["msgId"], "-t", "orders"], ["--offset", str(one["physicalOffset"])]):
        assert await told("message", "get", *asked, *at) == [one]
    (document,) = await told("topics", "describe", "orders", *at)
    assert sum(queue["end"] for queue in document["queues"]) == 10
    async with open_consumer(name_server, "orders", group="billing") as consumer:
        got = 0
        with trio.fail_after(120):
            while got < 10:
                got += len(await consumer.poll())
        await consumer.commit()
    reset = ["groups", "reset", "billing", "--topic", "orders", *at, "--to"]
    *changes, of_the_third = [queue["change"] for queue in (await told(*reset, "earliest"))[0]["queues"]]
    assert (len(changes), sum(changes), of_the_third) == (2, -10, 0)
    await told(*reset, "earliest", "--execute")
    (document,) = await told("groups", "describe", "billing", *at)
    assert (document["lag"], document["members"]) == (10, [])
    assert {one["group"]: one["lag"] for one in await told("groups", "list", *at)}["billing"] == 10
    (sample,) = await told("top", *at, "--count", "1")
    assert (sample["consumerLag"], sample["groups"]["billing"]) == (10, 10)
    code, _, err = await rmqha("groups", "reset", "biling", "--topic", "orders", "--to", "latest", "--execute", *at)
    assert (code, "did you mean billing?" in err) == (1, True)
    (forgotten,) = await told("groups", "delete", "billing", "--yes", *at)
    assert forgotten["offsetsDeleted"] > 0
    assert "billing" not in [one["group"] for one in await told("groups", "list", *at)]
    (deleted,) = await told("topics", "delete", "orders", "--yes", "-b", name_server)
    assert deleted["messages"] == 10
    assert await told("topics", "list", *at) == []
