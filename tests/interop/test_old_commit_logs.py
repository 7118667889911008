"""A broker that came to DLedger with a classic commitlog, and its store, which the other kind of broker opens."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.e2e.commitlog import Record
from tests.e2e.dledger_brokers import MemberBroker
from tests.e2e.load import LoadProducer, Sends, body_of_size
from tests.e2e.processes import Broker, Ports, free_ports, give_back, reaping
from tests.e2e.pulling import Pulling
from tests.interop.dledger_brokers import MixedBrokers
from tests.interop.dledger_groups import JAVA, OURS
from tests.interop.feature_table import BROKER
from tests.interop.peers import JavaBroker
from tests.interop.test_live_pairs import KINDS

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.tries(BROKER, "go on behind a classic log and a DLedger log"),
]

SEGMENT = 256 * 1024
CLASSIC: dict[str, Any] = {"brokerRole": "ASYNC_MASTER", "mappedFileSizeCommitLog": SEGMENT}
MEMBERS: dict[str, type[Broker]] = {"rmqha": MemberBroker, "java": JavaBroker}
TOPIC, QUEUES = "orders", 4
LATE = {"minVoteIntervalMs": 20_000, "maxVoteIntervalMs": 30_000}
"""Of members that do not lead first."""


def member(kind: str, directory: Path, group: Ports) -> Broker:
    """The only one of its group."""
    conf = {
        "enableDLegerCommitLog": "true",
        "dLegerGroup": "g",
        "dLegerSelfId": "n0",
        "dLegerPeers": f"n0-127.0.0.1:{group.listen}",
        "mappedFileSizeCommitLog": SEGMENT,
    }
    broker = MEMBERS[kind](directory, conf)
    if kind == "rmqha":
        for key in ("haListenPort", "brokerId"):
            del broker.conf[key]
    return broker


async def send(broker: Broker, *, count: int) -> None:
    """So many are acknowledged, sooner or later."""
    sends = Sends(TOPIC, body=body_of_size(300, 4000), queue_nums=QUEUES)
    await LoadProducer(broker.ports.listen, sends, window=4).send(count)


def total(queues: list[list[Record]]) -> int:
    return sum(map(len, queues))


async def serves(broker: Broker, *, least: int) -> list[list[Record]]:
    """What it serves once it is so much: what is acknowledged may be in its queue a little later."""
    with trio.fail_after(120):
        while total(queues := await served_by(broker)) < least:  # noqa: ASYNC110 - another process
            await trio.sleep(0.1)
    return queues


async def served_by(broker: Broker) -> list[list[Record]]:
    """Every message of each queue, without a gap."""
    async with await trio.open_tcp_stream("127.0.0.1", broker.ports.listen) as stream:
        pulling = Pulling(stream)
        queues = [await pulling.whole_queue(TOPIC, queue_id) for queue_id in range(QUEUES)]
    for records in queues:
        assert [record.queue_offset for record in records] == [*range(len(records))]
    return queues


@pytest.mark.parametrize("ending", ["stopped", "killed"])
@pytest.mark.parametrize(("writer", "reader"), [("java", "rmqha"), ("rmqha", "java")])
async def test_the_other_broker_goes_on_behind_both_parts(
    tmp_path: Path, writer: str, reader: str, ending: str
) -> None:
    group = free_ports()
    classic = KINDS[writer](tmp_path / "classic", CLASSIC)
    first, second = member(writer, tmp_path / "first", group), member(reader, tmp_path / "second", group)
    with reaping(classic, first, second):
        await classic.start()
        await send(classic, count=200)
        await (classic.stop() if ending == "stopped" else classic.kill())
        shutil.copytree(classic.store, first.store)
        await first.start()
        await send(first, count=200)
        before = await serves(first, least=400)
        await first.stop()
        shutil.copytree(first.store, second.store)
        await second.start()
        await send(second, count=200)
        after = await serves(second, least=total(before) + 200)
        assert [records[: len(former)] for records, former in zip(after, before, strict=True)] == before
    give_back(group)
    old = sorted((second.store / "commitlog").iterdir())
    assert len(old) > 1
    entries = sorted((second.store / "dledger-n0" / "data").iterdir())
    assert int(entries[0].name) == int(old[-1].name) + SEGMENT


@pytest.mark.parametrize("first", ["n0", "n1"])
async def test_brokers_of_both_kinds_go_on_behind_the_same_log(tmp_path: Path, first: str) -> None:
    """The first entry is of either kind of leader: one of RocketMQ's names no old log in it."""
    group = MixedBrokers(tmp_path / "group", (JAVA, OURS, OURS), mappedFileSizeCommitLog=SEGMENT)
    if first == "n0":
        for name in ("n1", "n2"):
            group.brokers[name].conf |= LATE
    classic = KINDS["rmqha"](tmp_path / "classic", CLASSIC | {"brokerName": "raft"})
    try:
        with reaping(classic):
            await classic.start()
            await send(classic, count=200)
            before = await serves(classic, least=200)
            await classic.stop()
        for broker in group.brokers.values():
            shutil.copytree(classic.store, broker.store)
        if first == "n0":
            await group.brokers["n0"].start()  # and asks for votes before there is anybody else
        await group.start()
        leaders = [await group.leader()]
        if first == "n0":
            assert leaders == ["n0"]
        leaders += [name for name in ("n0", "n1") if group.kinds[name] != group.kinds[leaders[0]]]
        for name in leaders:
            await group.hand_over(name)
            await send(group.brokers[name], count=100)
        await group.at_rest()
        views = [await serves(broker, least=total(before) + 200) for broker in group.brokers.values()]
        assert all(view == views[0] for view in views)
        assert [records[: len(former)] for records, former in zip(views[0], before, strict=True)] == before
    finally:
        group.close()
