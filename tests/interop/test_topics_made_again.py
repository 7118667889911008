"""A topic that is deleted on a RocketMQ master, and made again, begins at 0: in the log its positions stand twice."""

from pathlib import Path

import pytest
import trio

from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import RemotingCommand
from tests.broker.machines import pull_request, send_request
from tests.broker.test_broker import messages_of
from tests.e2e.processes import Broker, RmqhaBroker, reaping
from tests.interop.feature_table import BROKER
from tests.interop.peers import JavaBroker
from tests.interop.test_tables import COMMON, ask


async def send(master: Broker, topic: str, *bodies: str) -> None:
    for body in bodies:
        with trio.fail_after(120):
            while (await ask(master, send_request(body.encode(), topic=topic))).code != ResponseCode.SUCCESS:  # noqa: ASYNC110
                await trio.sleep(0.2)


async def wait_seen(broker: Broker, topic: str, *bodies: str) -> None:
    """Consumers of this broker see these, from the first on."""
    seen: tuple[str, ...] = ()
    with trio.move_on_after(120):
        while seen != bodies:
            answer = await ask(broker, pull_request(0, topic=topic))
            found = answer.code == ResponseCode.SUCCESS
            seen = tuple(str(one.body, "ascii") for one in messages_of(answer)) if found else ()
            await trio.sleep(0.2)
    assert seen == bodies


@pytest.mark.tries(BROKER, "delete topics and make them again")
async def test_our_slave_shows_what_its_java_master_does(tmp_path: Path) -> None:
    """It stopped dispatch, of all topics. Started on the master's store a broker of ours shows the same."""
    master = JavaBroker(tmp_path / "master", {"brokerRole": "ASYNC_MASTER", **COMMON})
    links = {"haMasterAddress": master.ha_address, "masterAddress": master.address}
    slave = RmqhaBroker(tmp_path / "slave", {"brokerRole": "SLAVE", "brokerId": 1, **links, **COMMON})
    with reaping(master, slave):
        await master.start()
        await slave.start()
        await send(master, "travels", "a", "b", "c")
        await send(master, "orders", "1")
        await wait_seen(slave, "travels", "a", "b", "c")
        deleted = await ask(
            master, RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields={"topic": "travels"})
        )
        assert deleted.code == ResponseCode.SUCCESS
        await send(master, "travels", "d", "e")
        await send(master, "orders", "2")
        for broker in (master, slave):
            await wait_seen(broker, "travels", "d", "e")
            await wait_seen(broker, "orders", "1", "2")
        await slave.running.wait_output('"hidden_messages": 3, "event": "consume_queue.begun_again"')
        await slave.kill()
        await slave.start()
        await send(master, "travels", "f")
        await wait_seen(slave, "travels", "d", "e", "f")
        await master.stop()
    successor = RmqhaBroker(tmp_path / "master", {"brokerRole": "ASYNC_MASTER", **COMMON})
    with reaping(successor):
        await successor.start()
        await send(successor, "travels", "g")
        await wait_seen(successor, "travels", "d", "e", "f", "g")
        await wait_seen(successor, "orders", "1", "2")
