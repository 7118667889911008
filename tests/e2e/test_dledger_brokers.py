"""Three brokers on one DLedger log, as processes: leaders are killed, and clients go on exactly."""

import os
import re
import signal

import pytest
import trio

from rmqha.client.consumer import open_consumer
from rmqha.client.message import Message
from rmqha.client.producer import Producer, open_producer
from rmqha.errors import RmqhaError
from tests.e2e.commands import rmqha, wait_status
from tests.e2e.dledger_brokers import BrokerGroup, Reader

KILLS = int(os.environ.get("RMQHA_KILL_CYCLES", "3"))
MESSAGES_A_KILL = 200
TOPIC = "orders"
pytestmark = pytest.mark.timeout(300 + 60 * KILLS)


class Sender:
    """Sends numbers, one after the other, each until it is acknowledged."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.acknowledged: list[int] = []

    async def run(self) -> None:
        while True:
            if await self._is_sent(len(self.acknowledged)):
                self.acknowledged.append(len(self.acknowledged))

    async def _is_sent(self, number: int) -> bool:
        try:
            result = await self._producer.send(Message(TOPIC, b"%d" % number), retries=100, timeout_s=3)
        except RmqhaError:
            return False
        assert result.status.name == "SEND_OK"
        return True

    async def wait(self, count: int) -> None:
        with trio.fail_after(120):
            while len(self.acknowledged) < count:  # noqa: ASYNC110 - it tells nobody
                await trio.sleep(0.01)


async def test_leaders_are_killed_and_nothing_acknowledged_is_lost(group: BrokerGroup) -> None:
    """A consumer that reads all the while gets each queue's messages once, in order, without a gap."""
    await group.start()
    async with (
        open_producer(group.addresses) as producer,
        open_consumer(group.addresses, TOPIC, start="first") as consumer,
    ):
        sender, reader = Sender(producer), Reader(consumer)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sender.run)
            nursery.start_soon(reader.run)
            for turn in range(KILLS):
                await sender.wait((turn + 1) * MESSAGES_A_KILL)
                leader = await group.master()
                await group.brokers[leader].kill()
                await sender.wait(len(sender.acknowledged) + 50)
                await group.brokers[leader].start()
            await sender.wait((KILLS + 1) * MESSAGES_A_KILL)
            sent = set(sender.acknowledged)
            with trio.fail_after(120):
                while not sent <= reader.numbers:  # noqa: ASYNC110 - likewise
                    await trio.sleep(0.05)
            nursery.cancel_scope.cancel()
    for queue_id, offsets in reader.seen.items():
        assert offsets == list(range(len(offsets))), f"queue {queue_id}"
    await group.healthy()
    code, out, err = await rmqha("status", "-b", group.brokers["n0"].address, "--wait", "in-sync")
    assert (code, "member n0 of group raft" in out) == (0, True), out + err
    assert await group.stop() == [0, 0, 0]
    first, *others = [group.data_files(name) for name in group.brokers]
    assert others == [first, first]


async def one_says(what: str, group: BrokerGroup, *names: str) -> None:
    """Wait until the status of one of these is 1 and says so: who leads does, and that may be another by now."""
    with trio.fail_after(120):
        while True:
            for name in names:
                code, out, _ = await rmqha("status", "-b", group.brokers[name].address)
                if code == 1 and what in out:
                    return


async def test_what_an_operator_is_told(group: BrokerGroup) -> None:
    """A follower that stands still, one that is gone, and a group without a majority: who, since when, and why."""
    await group.start()
    await group.healthy()
    leader = await group.master()
    hung, gone = [name for name in group.brokers if name != leader]
    group.brokers[hung].running.signal(signal.SIGSTOP)
    await one_says(f"{hung} is connected, but has not answered for", group, leader, gone)
    group.brokers[hung].running.signal(signal.SIGCONT)
    await group.healthy()
    code, out, err = await rmqha("status", "-b", group.brokers[leader].address, "--wait", "in-sync")
    assert (code, re.search(r"leader n\d for ", out) is not None) == (0, True), out + err
    await group.brokers[gone].kill()
    await one_says(f"{gone} cannot be reached for", group, leader, hung)
    group.brokers[hung].running.signal(signal.SIGSTOP)
    broker = group.brokers[leader]
    await wait_status(broker, 1, says="a majority is missing: 2 of 3")
    await wait_status(broker, 1, says="nobody leads the group for")
    code, _, err = await rmqha("status", "-b", broker.address, "--wait", "in-sync", "--timeout", "5")
    assert (code, "not in sync within 5 s" in err) == (1, True), err
    group.brokers[hung].running.signal(signal.SIGCONT)
    await group.brokers[gone].start()
    await group.healthy()


async def test_a_file_of_a_member_is_for_broker_alone(group: BrokerGroup) -> None:
    broker = group.brokers["n0"]
    broker.prepare()
    for command in ("master", "slave"):
        code, _, err = await rmqha(command, "-c", str(broker.conf_file))
        assert (code, "use 'rmqha broker'" in err) == (2, True), err
    give = str(broker.conf_file)
    code, out, err = await rmqha("config", "check", give)
    assert code == 0, out + err
    code, _, err = await rmqha("broker", "-c", give, "--set", "dLegerSelfId=n7")
    assert (code, "none of dLegerPeers" in err) == (2, True), err
