"""A topic that is deleted: nothing of it comes back, and nothing that comes after is lost."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.tables import topic_config_manager
from rmqha.broker.tables.deleted_topics import DeletedTopics
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.cli.store_place import deleted_queues
from rmqha.codec import java_json
from rmqha.codec.admin_headers import CreateTopicRequestHeader, TopicRequestHeader
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.consume_queue import UNIT
from rmqha.codec.deleted_topic import DeletedQueue, DeletedTopic, decode_deleted
from rmqha.codec.headers import QueryConsumerOffsetRequestHeader, encode_header
from rmqha.codec.record.message import decode_message
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import RemoteProtocolError
from rmqha.remoting.client import RemotingClient
from rmqha.store.consume_queue_table import ConsumeQueueTable
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.os_disk import OsDisk
from rmqha.store.queue_verify import verify_queues
from tests.broker.machines import Machine, ask, pull_request, send_request
from tests.broker.test_dledger_broker import asked, group_of
from tests.broker.test_pair import Pair
from tests.settings import topic_rules
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import dispatched, message, put, running
from tests.store.test_queue_rebuild import healed, offsets


def topic_manager() -> TopicConfigManager:
    return TopicConfigManager(topic_rules(), now_ms=lambda: 0)


def delete_request(topic: str = "t") -> RemotingCommand:
    return RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields=encode_header(TopicRequestHeader(topic)))


def update_request(topic: str = "t", *, queues: int = 4, fields: Mapping[str, str] | None = None) -> RemotingCommand:
    header = CreateTopicRequestHeader(topic, queues, queues, perm=6)
    more = {"defaultTopic": "TBW102", "order": "false"} | dict(fields or {})
    return RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields=encode_header(header) | more)


async def send(client: RemotingClient, *bodies: bytes, queue_id: int = 0) -> list[int]:
    """Returns their positions in the queue."""
    answers = [await ask(client, send_request(body, queue_id=queue_id)) for body in bodies]
    assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
    return [int(answer.ext_fields["queueOffset"]) for answer in answers]


async def pulled(client: RemotingClient, offset: int = 0, *, queue_id: int = 0) -> tuple[int, int, list[bytes]]:
    """The code, where to go on, and the bodies; waits for a message, and for a queue that is being built again."""
    request = pull_request(offset, queue_id=queue_id, suspend_ms=1000)
    while "being built again" in ((answer := await ask(client, request)).remark or ""):  # noqa: ASYNC110
        await trio.sleep(0.1)
    bodies, at = [], 0
    while at < len(answer.body):
        size = int.from_bytes(answer.body[at : at + 4], "big")
        bodies.append(bytes(decode_message(answer.body[at : at + size]).body))
        at += size
    return answer.code, int((answer.ext_fields or {}).get("nextBeginOffset", -1)), bodies


def queue_files(machine: Machine) -> list[str]:
    return [path for path in machine.disk.files if "/consumequeue/t/" in path and not path.endswith("/")]


async def gone(machine: Machine) -> None:
    with trio.fail_after(30):
        while queue_files(machine):  # noqa: ASYNC110 - virtual time
            await trio.sleep(0.1)


@asynccontextmanager
async def serving(machine: Machine, *, crash: bool = False) -> AsyncIterator[RemotingClient]:
    """A broker and a client; with ``crash`` the broker is killed at the end."""
    controller = machine.controller()
    async with trio.open_nursery() as nursery:
        await nursery.start(controller.run)
        async with machine.client() as client:
            yield client
        if crash:
            nursery.cancel_scope.cancel()
        controller.stop()
    if crash:
        machine.disk.kill()


async def test_a_deleted_topic_is_gone_with_its_queues(machine: Machine, virtual_clock: VirtualClock) -> None:
    async with serving(machine) as client:
        await send(client, b"1", b"2")
        await pulled(client)
        assert queue_files(machine)
        assert (await ask(client, delete_request())).code == ResponseCode.SUCCESS
        assert (await pulled(client))[0] == ResponseCode.TOPIC_NOT_EXIST
        await gone(machine)
    async with serving(machine) as client:
        assert (await pulled(client))[0] == ResponseCode.TOPIC_NOT_EXIST


async def test_the_queues_go_when_the_deletion_is_saved_though_nobody_waits_for_it(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    async with serving(machine) as client:
        await send(client, b"1")
        await pulled(client)
        machine.disk.faults.full = True
        assert (await ask(client, delete_request())).code == ResponseCode.SYSTEM_ERROR
        assert queue_files(machine)
        machine.disk.faults.full = False
        await gone(machine)


async def test_the_queues_of_all_go_whose_deletions_are_saved_together(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    async with serving(machine) as client:
        await send(client, b"1")
        await pulled(client)
        assert (await ask(client, send_request(b"2", topic="other"))).code == ResponseCode.SUCCESS
        machine.disk.faults.full = True
        for topic in ("t", "other"):
            assert (await ask(client, delete_request(topic))).code == ResponseCode.SYSTEM_ERROR
        assert queue_files(machine)
        machine.disk.faults.full = False
        await gone(machine)


@pytest.mark.parametrize("is_dispatched", [True, False])
async def test_a_topic_made_again_goes_on_behind_what_the_log_still_holds(
    machine: Machine, virtual_clock: VirtualClock, is_dispatched: bool
) -> None:
    """No position is given twice, or slaves and rebuilt queues would take new messages for old ones."""
    async with serving(machine) as client:
        await send(client, b"old", b"older")
        if is_dispatched:
            await pulled(client)
        await ask(client, delete_request())
        assert await send(client, b"new", b"newer") == [2, 3]
        assert await pulled(client) == (ResponseCode.PULL_OFFSET_MOVED, 2, [])
        assert await pulled(client, 2) == (ResponseCode.SUCCESS, 4, [b"new", b"newer"])


async def test_what_another_broker_deleted_may_end_within_a_record_of_this_log(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    """Its log ended there, with another tail: dispatch stopped for good at what was called a corrupt record."""
    async with machine.broker() as broker, machine.client() as client:
        await send(client, b"old", b"older", b"new")
        assert await pulled(client) == (ResponseCode.SUCCESS, 3, [b"old", b"older", b"new"])
        end = broker.store.max_offset
        broker.topics.deleted.merge("t", DeletedTopic(end // 2 + 7, {0: 2}), log_end=end)
        await trio.sleep(30)
        assert await pulled(client) == (ResponseCode.PULL_OFFSET_MOVED, 2, [])
        assert await pulled(client, 2) == (ResponseCode.SUCCESS, 3, [b"new"])
        assert await send(client, b"newer") == [3]
        assert await pulled(client, 3) == (ResponseCode.SUCCESS, 4, [b"newer"])
        assert broker.store.running_flags.dispatch_error is None


@pytest.mark.parametrize("lost", ["nothing", "queues", "queue ends"])
@pytest.mark.parametrize("crash", [True, False])
async def test_what_was_deleted_stays_so_when_the_queues_are_built_again(
    machine: Machine, virtual_clock: VirtualClock, lost: str, crash: bool
) -> None:
    async with serving(machine, crash=crash) as client:
        await send(client, b"old", b"older")
        await pulled(client)
        await ask(client, delete_request())
        assert await send(client, b"new") == [2]
        await pulled(client, 2)
    if lost == "queues":
        machine.disk.remove("/store/consumequeue")
    if lost == "queue ends":
        for name in ("queueEnds.json", "queueEnds.json.bak"):
            machine.disk.files.pop(f"/store/config/{name}", None)
    async with serving(machine) as client:
        assert await pulled(client) == (ResponseCode.PULL_OFFSET_MOVED, 2, [])
        assert await pulled(client, 2) == (ResponseCode.SUCCESS, 3, [b"new"])
        assert await send(client, b"newer") == [3]


@pytest.mark.parametrize("numbers", [(0, 1, 2, 3, 4, 0, 1), (0, 1, 5, 0, 1), (0, 2**61, 0, 1), (0, -1, 0, 1)])
async def test_so_it_does_where_a_rocketmq_master_had_begun_it_again(
    machine: Machine, virtual_clock: VirtualClock, numbers: tuple[int, ...]
) -> None:
    """Hidden messages came back in the places of new ones, which nobody was given, and the queue stopped."""
    async with running_broker(machine) as controller:
        await send_raw(controller.store, *numbers)
    async with running_broker(machine) as controller, machine.client() as client:
        assert await pulled(client) == (ResponseCode.SUCCESS, 2, [b"1"] * 2)
        await ask(client, delete_request())
        first, _ = new = await send(client, b"new", b"newer")
        assert new == [first, first + 1]
        for _ in range(2):
            assert await pulled(client, first) == (ResponseCode.SUCCESS, first + 2, [b"new", b"newer"])
            controller.store.queues.note_missing("/store/consumequeue/t/0", damaged="a file")
            await trio.sleep(10)
        assert await pulled(client, first) == (ResponseCode.SUCCESS, first + 2, [b"new", b"newer"])
        assert await send(client, b"newest") == [first + 2]
    async with serving(machine) as client:
        assert await pulled(client, first) == (ResponseCode.SUCCESS, first + 3, [b"new", b"newer", b"newest"])
        assert await pulled(client) == (ResponseCode.PULL_OFFSET_MOVED, first, [])


@asynccontextmanager
async def running_broker(machine: Machine) -> AsyncIterator[BrokerController]:
    controller = machine.controller()
    async with trio.open_nursery() as nursery:
        await nursery.start(controller.run)
        yield controller
        controller.stop()


async def send_raw(store: DefaultMessageStore, *numbers: int) -> None:
    """As a slave takes it from a RocketMQ master."""
    for number in numbers:
        begin = store.max_offset
        record = message(b"1", topic="t").pack(queue_offset=number, physical_offset=begin, store_timestamp_ms=5)
        taken = 0
        while taken < len(record):
            taken += store.append_raw(record[taken:], begin + taken)
            await store.wait_allocated()
    await dispatched(store)


@pytest.mark.parametrize("crash", [True, False])
async def test_a_topic_that_is_only_deleted_does_not_come_back(
    machine: Machine, virtual_clock: VirtualClock, crash: bool
) -> None:
    async with serving(machine, crash=crash) as client:
        await send(client, b"old")
        await ask(client, delete_request())
    machine.disk.remove("/store/consumequeue")
    async with serving(machine) as client:
        assert (await pulled(client))[0] == ResponseCode.TOPIC_NOT_EXIST
        assert await send(client, b"new") == [1]


async def test_a_group_that_has_not_committed_begins_where_a_topic_made_again_does(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    """As in a queue that begins at 0; told that nothing is found, its clients begin at the end."""
    async with serving(machine) as client:
        await send(client, b"old", b"older")
        await pulled(client)
        await ask(client, delete_request())
        await send(client, b"new")
        await pulled(client, 2)
        header = QueryConsumerOffsetRequestHeader("new", "t", 0)
        request = RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=encode_header(header))
        answer = await ask(client, request)
        assert (answer.code, answer.ext_fields) == (ResponseCode.SUCCESS, {"offset": "2"})


async def test_a_held_pull_of_a_topic_that_is_deleted_is_told_so(machine: Machine, virtual_clock: VirtualClock) -> None:
    async with serving(machine) as client:
        await send(client, b"1")
        codes: list[int] = []

        async def pull() -> None:
            codes.append((await ask(client, pull_request(1, suspend_ms=5000))).code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pull)
            await trio.sleep(1)
            await ask(client, delete_request())
        assert codes == [ResponseCode.TOPIC_NOT_EXIST]


async def test_a_held_pull_gets_what_comes_to_the_topic_made_again(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    async with serving(machine) as client:
        await send(client, b"1")
        answers: list[RemotingCommand] = []

        async def pull() -> None:
            answers.append(await ask(client, pull_request(1, suspend_ms=50_000)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pull)
            await trio.sleep(1)
            await ask(client, delete_request())
            assert await send(client, b"2") == [1]
        assert answers[0].code == ResponseCode.SUCCESS


async def test_queues_that_the_topic_has_no_more_are_deleted_with_it(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    async with serving(machine) as client:
        assert (await ask(client, update_request(queues=4))).code == ResponseCode.SUCCESS
        await send(client, b"1", queue_id=3)
        await pulled(client, queue_id=3)
        await ask(client, update_request(queues=1))
        await ask(client, delete_request())
        await gone(machine)
        await ask(client, update_request(queues=4))
        assert await send(client, b"2", queue_id=3) == [1]


async def test_so_is_what_lies_in_one_that_is_only_read_and_is_not_visible_yet(
    machine: Machine, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue that takes no more messages is still the topic's, though nothing of it has been dispatched."""
    settings = {"flushDiskType": "ASYNC_FLUSH", "flushIntervalCommitLog": "1000"}
    async with machine.broker(**settings) as broker, machine.client() as client:
        assert (await ask(client, update_request(queues=4))).code == ResponseCode.SUCCESS
        config = broker.topics.select("t")
        assert config is not None
        broker.topics.update_topic_config(replace(config, write_queue_nums=1))
        with monkeypatch.context() as unflushed:
            unflushed.setattr(DefaultMessageStore, "request_flush", lambda _: None)
            await send(client, b"1", queue_id=3)
            assert broker.store.get_max_offset_in_queue("t", 3) == 0
            await ask(client, delete_request())
            await ask(client, update_request(queues=4))
        await trio.sleep(5)
        assert await send(client, b"2", queue_id=3) == [1]
        assert (await pulled(client, queue_id=3))[1] == 1
        assert (await pulled(client, 1, queue_id=3))[2] == [b"2"]


async def test_a_slave_deletes_what_its_master_did(virtual_clock: VirtualClock) -> None:
    pair = Pair()
    async with pair.running(), pair.master.client() as client:
        await send(client, b"old", b"older")
        await pulled(client)
        await trio.sleep(15)
        assert queue_files(pair.slave)
        await ask(client, delete_request())
        await trio.sleep(15)
        assert not queue_files(pair.slave)
        async with pair.slave.client() as other:
            assert (await pulled(other))[0] == ResponseCode.TOPIC_NOT_EXIST
        assert await send(client, b"new") == [2]
        await trio.sleep(15)
        async with pair.slave.client() as other:
            assert await pulled(other, 2) == (ResponseCode.SUCCESS, 3, [b"new"])


async def test_a_slave_that_begins_later_has_nothing_of_a_deleted_topic(virtual_clock: VirtualClock) -> None:
    pair = Pair()
    async with pair.master.broker(brokerRole="ASYNC_MASTER"), pair.master.client() as client:
        await send(client, b"old")
        await ask(client, delete_request())
        await send(client, b"new")
        async with pair.slave.broker(), pair.slave.client() as other:
            await trio.sleep(30)
            assert await pulled(other, 1) == (ResponseCode.SUCCESS, 2, [b"new"])


async def test_a_store_with_a_deleted_topic_is_good(machine: Machine, virtual_clock: VirtualClock) -> None:
    """As `rmqha log verify` looks at it."""
    async with serving(machine) as client:
        await send(client, b"old", b"older")
        await pulled(client)
        await ask(client, delete_request())
        await gone(machine)
        await send(client, b"new")
        await pulled(client, 2)
    disk = machine.disk.mount()
    deleted = deleted_queues(disk, "/store")
    assert {key: queue.end for key, queue in deleted.items()} == {("t", 0): 2}
    places = ("/store/commitlog", "/store/consumequeue")
    found = verify_queues(disk, *places, deleted=deleted)
    assert (found.units, found.problems) == (1, [])
    assert verify_queues(disk, *places).problems


async def test_a_deleted_topic_stays_so_with_the_next_leader(virtual_clock: VirtualClock) -> None:
    async with group_of() as group:
        await group.send(*[b"%d" % number for number in range(8)])
        master = await group.wait_master()
        await group.wait_same()
        assert (await asked(master, delete_request())).code == ResponseCode.SUCCESS
        await group.wait(lambda: all(node.running.topics.select("t") is None for node in group.nodes.values()))
        ends = {key: queue.end for key, queue in master.running.store.queues.deleted.items() if key[0] == "t"}
        assert sum(ends.values()) == 8
        master.kill()
        await group.wait(lambda: not master.is_master)
        new = await group.wait_master()
        answer = await asked(new, send_request(b"new"))
        end = ends["t", 0]
        assert int(answer.ext_fields["queueOffset"]) == end
        await group.wait(lambda: new.running.store.get_max_offset_in_queue("t", 0) == end + 1)
        assert new.running.store.get_min_offset_in_queue("t", 0) == end


@pytest.mark.parametrize("topic", ["TBW102", "SCHEDULE_TOPIC_XXXX", "broker-a", "DefaultCluster", "no/topic", ""])
async def test_some_topics_are_nobodys_to_change(machine: Machine, virtual_clock: VirtualClock, topic: str) -> None:
    async with serving(machine) as client:
        for request in (delete_request(topic), update_request(topic)):
            assert (await ask(client, request)).code == ResponseCode.SYSTEM_ERROR


async def test_a_slaves_topics_are_its_masters(virtual_clock: VirtualClock) -> None:
    pair = Pair()
    async with pair.running(), pair.slave.client() as client:
        for request in (delete_request(), update_request()):
            answer = await ask(client, request)
            assert (answer.code, "master" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)


async def test_a_topic_that_an_operator_makes_is_durable_when_that_is_answered(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    async with serving(machine, crash=True) as client:
        assert (await ask(client, update_request("made", queues=3, fields={"perm": "4"}))).code == ResponseCode.SUCCESS
        table = java_json.loads(bytes(machine.disk.files["/store/config/topics.json"].cache))
        entry = table["topicConfigTable"]["made"]
        assert (entry["readQueueNums"], entry["writeQueueNums"], entry["perm"]) == (3, 3, 4)


@pytest.mark.parametrize(
    "fields", [{"readQueueNums": "0"}, {"writeQueueNums": "70000"}, {"perm": "16"}, {"topicFilterType": "x"}]
)
async def test_no_topic_is_made_that_cannot_be(
    machine: Machine, virtual_clock: VirtualClock, fields: dict[str, str]
) -> None:
    async with serving(machine) as client:
        assert (await ask(client, update_request(fields=fields))).code == ResponseCode.SYSTEM_ERROR


def test_what_the_log_holds_nothing_of_is_forgotten() -> None:
    deleted, queues = DeletedTopics(), ConsumeQueueTable(OsDisk(), "nowhere", file_size=200)
    begins = [0]
    deleted.connect(queues, log_begins_at=lambda: begins[0])
    deleted.add("a", {0: 5}, before=1000)
    deleted.add("b", {0: 7}, before=2000)
    assert queues.deleted == {("a", 0): DeletedQueue(5, 1000), ("b", 0): DeletedQueue(7, 2000)}
    assert not deleted.expire()
    begins[0] = 1000
    assert deleted.expire()
    assert queues.deleted == {("b", 0): DeletedQueue(7, 2000)}
    assert queues.range_of("a", 0) == (5, 5), "where it ends is known all the same"
    assert decode_deleted(java_json.loads(java_json.dumps(deleted.to_json()))["deletedTopics"]) == {
        "b": DeletedTopic(2000, {0: 7})
    }


def test_what_another_master_has_not_deleted_is_there_again() -> None:
    deleted, queues = DeletedTopics(), ConsumeQueueTable(OsDisk(), "nowhere", file_size=200)
    deleted.connect(queues, log_begins_at=lambda: 0)
    deleted.add("a", {0: 5}, before=1000)
    deleted.replace({})
    assert (queues.deleted, list(queues.missing)) == ({}, ["nowhere/a/0"]), "built again from the log"


def test_what_another_master_has_deleted_less_of_is_there_again() -> None:
    """It had not heard that the topic was deleted a second time, in one queue or with one more."""
    deleted, queues = DeletedTopics(), ConsumeQueueTable(OsDisk(), "nowhere", file_size=200)
    deleted.connect(queues, log_begins_at=lambda: 0)
    deleted.replace({"a": DeletedTopic(2000, {0: 5, 1: 7, 2: 3, 3: 0}), "b": DeletedTopic(2000, {0: 5})})
    deleted.replace({"a": DeletedTopic(2000, {0: 5, 1: 6}), "b": DeletedTopic(1000, {0: 5, 1: 1})})
    of_a = {("a", 0): DeletedQueue(5, 2000), ("a", 1): DeletedQueue(6, 2000), ("a", 3): DeletedQueue(0, 2000)}
    assert queues.deleted == of_a | {("b", 0): DeletedQueue(5, 1000), ("b", 1): DeletedQueue(1, 1000)}
    assert set(queues.missing) == {"nowhere/a/1", "nowhere/a/2", "nowhere/b/0"}, "built again from the log"
    assert deleted.queue_count == 4


@pytest.mark.parametrize("is_made_again", [True, False])
async def test_a_second_deletion_that_a_failover_undoes_leaves_no_hole(
    is_made_again: bool, autojump_clock: MockClock
) -> None:
    """A former master had units of nothing where its messages are, at which its consumers stood still."""
    deleted = DeletedTopics()
    async with running(SimDisk().mount()) as store:
        deleted.connect(store.queues, log_begins_at=lambda: 0)
        places = list[list[int]]()
        for end in (3, 6, 0):
            results = await put(store, *[message() for _ in range(3 if end or is_made_again else 0)])
            places.append([result.wrote_offset for result in results])
            await dispatched(store)
            if end:
                deleted.add("TopicTest", {0: end}, before=store.max_offset)
                deleted.drop("TopicTest")
                await trio.sleep(5)
        deleted.replace({"TopicTest": DeletedTopic(places[1][0], {0: 3})})
        await trio.sleep(5)  # until that is noticed
        await healed(store)
        assert offsets(store, 0) == places[1] + places[2]
        assert store.queues.range_of("TopicTest", 0) == (3, 9 if is_made_again else 6)


def test_what_another_masters_log_holds_no_more_stays_deleted_as_long_as_ours_does() -> None:
    """The master forgets what its log is behind of; a slave's may still hold it, and that does not come back."""
    begins, ours, theirs = [0], topic_manager(), topic_manager()
    queues = ConsumeQueueTable(OsDisk(), "nowhere", file_size=200)
    ours.deleted.connect(queues, log_begins_at=lambda: begins[0])
    theirs.deleted.connect(ConsumeQueueTable(OsDisk(), "elsewhere", file_size=200), log_begins_at=lambda: 1000)

    def take_over() -> None:
        ours.replace_from_json(java_json.loads(java_json.dumps(theirs.to_json())))

    theirs.delete_topic_config("a", {0: 5}, before=1000)
    take_over()
    theirs.expire_deleted()
    for _ in range(2):
        take_over()
        assert (queues.deleted, list(queues.missing)) == ({("a", 0): DeletedQueue(5, 1000)}, [])
        theirs.delete_topic_config("b", {}, before=2000)
    restarted = topic_manager()
    restarted.replace_from_json(java_json.loads(java_json.dumps(ours.to_json())))
    assert restarted.deleted.find("a") == DeletedTopic(1000, {0: 5})
    assert restarted.to_json()["deletedBefore"] == 1000
    begins[0] = 1000
    take_over()
    assert (queues.deleted, list(queues.missing)) == ({}, [])


def test_what_one_master_has_forgotten_stays_deleted_under_another_that_has_not() -> None:
    """That one's log began later than this one, too; and it was no master when the topic was deleted."""
    deleted, queues = DeletedTopics(), ConsumeQueueTable(OsDisk(), "nowhere", file_size=200)
    deleted.connect(queues, log_begins_at=lambda: 0)
    deleted.replace({"a": DeletedTopic(1000, {0: 5})})
    deleted.replace({}, forgotten_before=1000)
    deleted.replace({}, forgotten_before=300)
    assert (queues.deleted, list(queues.missing)) == ({("a", 0): DeletedQueue(5, 1000)}, [])
    assert deleted.to_json()["deletedBefore"] == 1000


def test_a_topic_made_again_can_be_deleted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its queues are remembered once: one with more than half of all was refused until the log's files had gone."""
    monkeypatch.setattr(topic_config_manager, "DELETED_QUEUES_MAX", 4)
    topics = topic_manager()
    topics.delete_topic_config("a", dict.fromkeys(range(3), 5), before=1000)
    topics.delete_topic_config("a", dict.fromkeys(range(4), 7), before=2000)
    assert topics.deleted.find("a") == DeletedTopic(2000, dict.fromkeys(range(4), 7))
    with pytest.raises(RemoteProtocolError, match="at most 4 are remembered"):
        topics.delete_topic_config("b", {0: 1}, before=3000)
    topics.delete_topic_config("c", {}, before=3000)


def test_what_comes_behind_the_log_of_the_broker_that_deleted_is_new() -> None:
    """That log may have lost its end since; and of what it has forgotten it says only where that lay."""
    deleted, disk = DeletedTopics(), SimDisk(latency_s=(0, 0)).mount()
    queues = ConsumeQueueTable(disk, "/queues", file_size=200)
    deleted.connect(queues, log_begins_at=lambda: 0)
    deleted.merge("told", DeletedTopic(500, {0: 8}), log_end=200)
    queue = queues.find_or_create("forgotten", 0)
    queue.create_file()
    queue.append(memoryview(b"".join(UNIT.pack(100 * number, 50, 0) for number in range(5))))
    deleted.merge_forgotten(["forgotten"], before=250)
    assert queues.deleted == {("told", 0): DeletedQueue(8, 200), ("forgotten", 0): DeletedQueue(3, 250)}
    assert queues.range_of("forgotten", 0) == (3, 5)


def test_what_is_deleted_again_includes_what_was() -> None:
    """A master that knew nothing of the first deletion had numbered the queue's messages from 0 since."""
    deleted = DeletedTopics()
    deleted.add("a", {0: 5, 1: 9}, before=1000)
    deleted.add("a", {0: 3}, before=2000)
    assert deleted.find("a") == DeletedTopic(2000, {0: 5, 1: 9})


def test_what_was_deleted_here_stays_so_whoever_tells_of_the_topic() -> None:
    """A peer whose log ends earlier deleted what it had of it: that says nothing of what lies behind."""
    deleted = DeletedTopics()
    deleted.add("a", {0: 5, 1: 9}, before=1000)
    deleted.merge("a", DeletedTopic(300, {0: 3, 2: 4}), log_end=400)
    assert deleted.find("a") == DeletedTopic(1000, {0: 5, 1: 9, 2: 4})


@pytest.mark.parametrize("value", [[], {"a": {}}, {"a/b": {"before": 0, "queues": {}}}, {"a": {"before": -1}}])
def test_what_is_no_table_is_refused(value: object) -> None:
    with pytest.raises((AttributeError, KeyError, TypeError, ValueError)):
        decode_deleted(value)


def test_what_is_counted_of_deleted_topics_is_what_there_is() -> None:
    """Each topic that is made asks for it, so it is not counted anew each time."""
    deleted, queues = DeletedTopics(), ConsumeQueueTable(OsDisk(), "nowhere", file_size=200)
    begins = [0]
    deleted.connect(queues, log_begins_at=lambda: begins[0])

    def check(queue_count: int) -> None:
        assert deleted.queue_count == queue_count
        assert deleted.json_size >= len(java_json.dumps(deleted.to_json().get("deletedTopics", {}))) - len("{}")
        assert deleted.json_size <= 200 * queue_count

    check(0)
    deleted.add("a", {0: 5, 1: 2**40}, before=1000)
    check(2)
    deleted.add("a", {1: 2**41, 2: 7}, before=1500)
    check(3)
    deleted.add("b", {0: 7}, before=2000)
    check(4)
    begins[0] = 1500
    deleted.expire()
    check(1)
    deleted.replace({"b": DeletedTopic(2000, {0: 7, 1: 8}), "c": DeletedTopic(3000, {0: 1})})
    check(3)
    deleted.replace({})
    check(0)


def test_a_table_that_is_told_again_hides_only_what_is_new() -> None:
    """Told again of 65,536, a slave was busy for 0.4 s with each change of its master's topics."""
    deleted, queues = DeletedTopics(), ConsumeQueueTable(OsDisk(), "nowhere", file_size=20)
    deleted.connect(queues, log_begins_at=lambda: 0)
    table = {"t": DeletedTopic(9, {0: 5})}
    for hidden in (1, 1, 2):
        table["t2"] = DeletedTopic(9 + hidden, {0: 5})
        deleted.replace(dict(table))
        assert queues.changes == hidden + 1
    assert (deleted.queue_count, set(deleted.to_json()["deletedTopics"])) == (2, {"t", "t2"})
