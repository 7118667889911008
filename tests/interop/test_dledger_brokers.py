"""Brokers of RocketMQ and of rmqha on one DLedger log: any of them leads, or is killed, and all have the same."""

from pathlib import Path

import pytest
import trio

from tests.e2e.commitlog import Record
from tests.e2e.load import LoadProducer, Sends, body_of_size
from tests.e2e.pulling import Pulling
from tests.interop.dledger_brokers import MixedBrokers
from tests.interop.dledger_groups import JAVA, OURS
from tests.interop.feature_table import BROKER

LIVES: dict[tuple[str, ...], list[str]] = {
    (JAVA, JAVA, OURS): ["n2", "n1"],
    (JAVA, OURS, OURS): ["n0", "n2"],
}
"""Groups, and which of their brokers lead and are killed."""
BATCH = 20
pytestmark = [pytest.mark.timeout(600), pytest.mark.tries(BROKER, "lead or follow in a DLedger group")]


BODIES = {
    "orders": body_of_size(16, 300),
    "batches": body_of_size(300),
    "files": body_of_size(16, 200_000),
}


class Clients:
    """Of a group; they send to the leader, and note what was acknowledged."""

    def __init__(self) -> None:
        batches = {"batches": BATCH}
        self._loads = {topic: Sends(topic, body=body, batch=batches.get(topic, 1)) for topic, body in BODIES.items()}
        self._acknowledged: dict[str, set[int]] = {topic: set() for topic in BODIES}

    async def send(self, group: MixedBrokers, name: str, *, kill: bool = False) -> None:
        """Until some of all topics are acknowledged; the broker may be killed while orders come, which are small.

        A member of RocketMQ's that is killed just when it begins a data file gets no further entry from a leader of
        RocketMQ's (docs/dledger.md).
        """
        for topic, count in (("files", 8), ("batches", 10), ("orders", 100)):
            load = LoadProducer(group.brokers[name].ports.listen, self._loads[topic], window=4)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(load.run)
                await load.wait_acknowledged(count)
                if kill and topic == "orders":
                    await group.brokers[name].kill()
                load.stop()
            self._acknowledged[topic] |= load.acknowledged

    def acknowledged(self) -> dict[str, set[bytes]]:
        """Bodies, by topic."""
        numbers = self._acknowledged | {
            "batches": {number * BATCH + index for number in self._acknowledged["batches"] for index in range(BATCH)}
        }
        return {topic: set(map(body, numbers[topic])) for topic, body in BODIES.items()}


async def served(group: MixedBrokers, name: str) -> dict[tuple[str, int], list[Record]]:
    """Every queue, as this broker serves it."""
    async with await trio.open_tcp_stream("127.0.0.1", group.brokers[name].ports.listen) as stream:
        pulling = Pulling(stream)
        return {(topic, number): await pulling.whole_queue(topic, number) for topic in BODIES for number in range(4)}


async def assert_each_serves_it_all(group: MixedBrokers, clients: Clients) -> None:
    """As the leader each has every acknowledged message in its queue, at the place where the others have it.

    Each takes some more first: without a name server a member of RocketMQ's hears of a topic by a send alone, and who
    never led answers that there is none.
    """
    views = []
    for name in reversed(group.brokers):
        await group.hand_over(name)
        await clients.send(group, name)
        acknowledged = clients.acknowledged()
        with trio.fail_after(120):
            while True:
                view = await served(group, name)
                if all(bodies <= bodies_of(view, topic) for topic, bodies in acknowledged.items()):
                    break
                await trio.sleep(0.1)
        views.append(view)
    first, *others = views
    for queue, records in first.items():
        assert [record.queue_offset for record in records] == list(range(len(records))), queue
        assert all(a == b for other in others for a, b in zip(records, other[queue], strict=False)), queue


def bodies_of(view: dict[tuple[str, int], list[Record]], topic: str) -> set[bytes]:
    return {record.body for queue, records in view.items() if queue[0] == topic for record in records}


async def assert_same_files(group: MixedBrokers) -> None:
    """Entries, their bytes, and the consume queues, of brokers that were at rest."""
    first, *others = [await group.dump(name) for name in group.brokers]
    assert all(other == first for other in others)
    end = first[-1]["pos"] + first[-1]["size"]
    data, *rest = [b"".join(group.data_files(name).values())[:end] for name in group.brokers]
    assert all(one == data for one in rest)
    queues, *rest_of_queues = [group.queue_files(name) for name in group.brokers]
    assert len(queues) >= 12
    assert all(one == queues for one in rest_of_queues)


async def test_leaders_of_both_kinds_are_killed_and_all_have_the_same(tmp_path: Path) -> None:
    """Two groups at once: most of the time goes by in elections, which RocketMQ's followers begin after 6 s."""
    async with trio.open_nursery() as nursery:
        for kinds in LIVES:
            nursery.start_soon(live, MixedBrokers(tmp_path / "-".join(kinds), kinds, mappedFileSizeConsumeQueue=20_000))


async def live(group: MixedBrokers) -> None:
    """Of one group."""
    clients, kinds = Clients(), tuple(group.kinds.values())
    try:
        await group.start()
        for name in LIVES[kinds]:
            await group.hand_over(name)
            await clients.send(group, name, kill=True)
            await clients.send(group, await group.leader(besides=name))
            await group.brokers[name].start()
        await assert_each_serves_it_all(group, clients)
        await group.at_rest()
        for broker in group.brokers.values():
            await broker.kill()
        await assert_same_files(group)
    finally:
        group.close()
