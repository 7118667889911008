"""RocketMQ 5.3.3's broker beside ours: as a pair, each as master, and in each other's stores."""

import shutil
import signal
from pathlib import Path
from typing import Final

import pytest
import trio

from rmqha.codec import java_json
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import RemotingCommand
from tests.e2e.commitlog import HeldMessages, first_difference, wait_identical
from tests.e2e.load import LoadProducer, Sends, body_of_size, wait_in_sync
from tests.e2e.processes import Broker, RmqhaBroker, reaping
from tests.interop.dledger_brokers import queue_files_of
from tests.interop.feature_table import BROKER_5, JAVA_CLIENT_5
from tests.interop.peers import VERSION_5, JavaBroker5
from tests.interop.programs import Program, programs
from tests.interop.test_consumers import WITHIN_S, Consumers, Rounds, ending
from tests.interop.test_stores import CONF, assert_serves_it_all, fill_and_end
from tests.interop.test_tables import ask, fill, wait_tables

pytestmark = pytest.mark.timeout(900)

KINDS: Final[dict[str, type[Broker]]] = {"rmqha": RmqhaBroker, "java5": JavaBroker5}
SIZES: Final = (1, 100, 1_024, 32_768, 163_840, 7, 300_000)
FIFO: Final = {"message.type": "FIFO"}
SET_MESSAGE_REQUEST_MODE: Final = 401
FROM_A_SLAVE: Final = ("concurrent", "lite", "broadcast")
"""Orderly consumers wait for the master: they lock queues there alone."""


def a_pair(directory: Path, kinds: str, name_server: str) -> tuple[Broker, Broker]:
    """A SYNC_MASTER, which waits for its slave, and the slave; files of the log and of queues are small.

    RocketMQ 5.3.3's slave finds its master by the name server alone: with ``haMasterAddress`` it never connects.
    """
    of_master, of_slave = (KINDS[word] for word in kinds.split())
    sizes = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 2_000}
    keys = {"namesrvAddr": name_server, "registerNameServerPeriod": 10_000, **sizes}
    replicas = {"inSyncReplicas": 2}  # of RocketMQ 5 it is 1 otherwise: it does not wait for its slave
    master = of_master(directory / "master", {"brokerRole": "SYNC_MASTER", **replicas, **keys})
    return master, of_slave(directory / "slave", {"brokerRole": "SLAVE", "brokerId": 1, **keys})


async def make_group(broker: Broker) -> None:
    """Of :func:`fill`; RocketMQ 5 keeps no offsets of a group that it does not know."""
    request = RemotingCommand(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName":"g"}')
    assert (await ask(broker, request)).code == ResponseCode.SUCCESS


async def make_fifo_topic(broker: Broker) -> None:
    """As ``mqadmin updateTopic -a +message.type=FIFO`` does."""
    fields = {"topic": "fifo", "defaultTopic": "TBW102", "readQueueNums": "3", "writeQueueNums": "3", "perm": "6"}
    fields |= {"topicFilterType": "SINGLE_TAG", "order": "false", "attributes": "+message.type=FIFO"}
    answer = await ask(broker, RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields=fields))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def wait_fifo_topic(broker: Broker) -> None:
    """A slave asks its master for topics every ten seconds."""
    found = None
    with trio.move_on_after(120):
        while (found := await attributes_of_fifo(broker)) != FIFO:  # noqa: ASYNC110 - another process
            await trio.sleep(0.2)
    assert found == FIFO


async def attributes_of_fifo(broker: Broker) -> dict[str, str] | None:
    answer = await ask(broker, RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG))
    topics = java_json.loads(answer.body)["topicConfigTable"] if answer.body else {}
    attributes: dict[str, str] | None = topics.get("fifo", {}).get("attributes")
    return attributes


async def wait_same_queues(one: Broker, other: Broker) -> None:
    """The files of their consume queues have the same bytes, as far as they are filled."""
    with trio.move_on_after(120):
        while not (queues := queue_files_of(one)) or queues != queue_files_of(other):  # noqa: ASYNC110 - other processes
            await trio.sleep(0.2)
        assert len(queues) >= 12, sorted(queues)
        return
    mine, others = queue_files_of(one), queue_files_of(other)
    differing = sorted(name for name in mine.keys() | others.keys() if mine.get(name) != others.get(name))
    raise AssertionError(f"these files of consume queues differ: {differing}")


@pytest.mark.tries(BROKER_5, "be master or slave in a pair", "keep the attributes of topics")
@pytest.mark.parametrize("kinds", ["java5 rmqha", "rmqha java5"])
async def test_a_pair_with_rocketmq_5_whose_master_is_killed_and_returns(
    tmp_path: Path, java_name_server: str, kinds: str
) -> None:
    """RocketMQ 5's consumers go on from the slave; what was acknowledged is in both logs, which are equal.

    Of a topic with attributes RocketMQ 5.3.3's slave takes nothing, nor of others, whichever make its master is.
    """
    master, slave = a_pair(tmp_path, kinds, java_name_server)
    load = LoadProducer(master.ports.listen, Sends("files", body=body_of_size(*SIZES)), window=4)
    with reaping(master, slave):
        await master.start()
        await slave.start()
        await wait_in_sync(master.ports.listen)
        rounds = Rounds(master)
        await rounds.send()
        await make_group(master)
        await fill(master)
        await wait_tables(slave)
        if isinstance(slave, RmqhaBroker):
            await make_fifo_topic(master)
            await wait_fifo_topic(slave)
        consumer = Consumers(tmp_path, java_name_server, "consumers", version=VERSION_5)
        with ending(consumer):
            await rounds.wait_all(consumer)
            await go_on_without_master(master, rounds, consumer, load)
        await wait_identical(master.store / "commitlog", slave.store / "commitlog")
        await wait_same_queues(master, slave)
        if isinstance(slave, RmqhaBroker):
            for broker in (master, slave):
                await wait_fifo_topic(broker)
        await assert_holds_it_all(master, slave, load)


async def go_on_without_master(master: Broker, rounds: Rounds, consumer: Consumers, load: LoadProducer) -> None:
    """What it has yet to read when the master is killed, under load, comes from the slave; then the master returns."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        consumer.running.signal(signal.SIGSTOP)
        bodies = await rounds.send()
        await load.wait_acknowledged(60)
        await master.kill()
        consumer.running.signal(signal.SIGCONT)
        await rounds.wait_consumed(bodies, consumer, kinds=FROM_A_SLAVE)
        await master.start()
        await load.wait_acknowledged(60)
        load.stop()
    await rounds.wait_consumed(await rounds.send(), consumer, kinds=FROM_A_SLAVE)


async def assert_holds_it_all(master: Broker, slave: Broker, load: LoadProducer) -> None:
    assert load.unexpected == []
    assert len(master.segments()) >= 8
    for broker in (slave, master):
        await broker.stop()
        missing = load.acknowledged - HeldMessages(broker.store / "commitlog", "files").read(torn=False)
        assert not missing, f"the {broker.directory.name} lacks acknowledged {sorted(missing)[:5]}"


@pytest.mark.tries(BROKER_5, "serve the other's store", "keep the attributes of topics")
@pytest.mark.parametrize("end", ["stopped", "killed"])
@pytest.mark.parametrize(("writer", "reader"), [("rmqha", "java5"), ("java5", "rmqha")])
async def test_a_store_is_served_whole_by_the_other_broker(
    tmp_path: Path, java_name_server: str, writer: str, reader: str, end: str
) -> None:
    """As with RocketMQ 4; a topic has its attributes there."""
    conf = {**CONF, "namesrvAddr": java_name_server}
    first, second = KINDS[writer](tmp_path / "first", conf), KINDS[reader](tmp_path / "second", conf)
    with reaping(first, second):
        await first.start()
        await make_fifo_topic(first)
        await fill_and_end(first, end)
        shutil.copytree(first.store, second.store)
        await second.start()
        await assert_serves_it_all(first, second)
        await wait_fifo_topic(second)
        await second.stop()
        assert first_difference(first.store / "commitlog", second.store / "commitlog") is None


class Pops(Program):
    """``Pops.java``."""

    def __init__(self, directory: Path, name_server: str, group: str, who_shares_out: str) -> None:
        name, words = f"{group}-{who_shares_out}", (name_server, "orders", group, who_shares_out)
        super().__init__(
            "Pops.java", directory, name, *words, version=VERSION_5, **{"user.home": str(directory / name)}
        )

    async def wait_all(self, bodies: set[str]) -> None:
        """It has consumed these."""
        with trio.fail_after(WITHIN_S):
            while not bodies <= self.got():  # noqa: ASYNC110 - another process
                await trio.sleep(0.2)

    def got(self) -> set[str]:
        """The bodies of what it consumed."""
        return {words[0] for words in self.told("got")}


async def have_pops(broker: Broker) -> None:
    """As ``mqadmin setConsumeMode -m POP`` does."""
    body = b'{"topic":"orders","consumerGroup":"pops","mode":"POP","popShareQueueNum":0}'
    assert (await ask(broker, RemotingCommand(SET_MESSAGE_REQUEST_MODE, body=body))).code == ResponseCode.SUCCESS


@pytest.mark.tries(JAVA_CLIENT_5, "push, with queues shared out by the client alone")
async def test_pop_consumers_get_nothing_and_are_told_and_consume_once_they_do_without(
    tmp_path: Path, java_name_server: str
) -> None:
    """One had a broker of RocketMQ 5 before, and pops on; one begins, and asks which queues are its own."""
    conf = {**CONF, "namesrvAddr": java_name_server}
    theirs = JavaBroker5(tmp_path / "theirs", conf)
    ours = RmqhaBroker(tmp_path / "ours", conf, ports=theirs.ports)
    ours.move_store(theirs.store)
    with reaping(theirs, ours):
        await theirs.start()
        rounds = Rounds(theirs)
        before = await rounds.send()
        await have_pops(theirs)
        with programs(pops := Pops(tmp_path, java_name_server, "pops", "broker")):
            await pops.wait_all(before)
            await theirs.stop()
            await ours.start()
            rounds.broker = ours
            bodies = await rounds.send()
            with programs(begins := Pops(tmp_path, java_name_server, "begins", "broker")):
                await ours.running.wait_output('"group": "pops", .*"event": "pop.refused"')
                await ours.running.wait_output('"group": "begins", .*"code": 400, .*"event": "pop.refused"')
            assert (pops.got() & bodies, begins.got()) == (set(), set())
        with programs(pulls := Pops(tmp_path, java_name_server, "pops", "client")):
            await pulls.wait_all(bodies)
