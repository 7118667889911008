"""MetadataService: when the tables are saved."""

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.broker.schedule.delay_offsets import DelayOffsets
from rmqha.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from rmqha.broker.tables.metadata import MetadataService
from rmqha.broker.tables.queue_ends import QueueEnds
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupManager
from rmqha.broker.tables.tables_origin import TablesOrigin
from rmqha.broker.tables.topic_config import TopicConfig, TopicTable
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.cli.verdict import judge, read_status
from rmqha.codec import java_json
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import FLAG_ONEWAY, RemotingCommand
from rmqha.codec.send_answers import decode_send_response
from rmqha.remoting.client import RemotingClient
from rmqha.replication.role import Role
from rmqha.store.config_files import ConfigFiles
from tests.broker.machines import Machine, ask, send_request
from tests.settings import topic_rules
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import Clock, make_store, options


def queue_ends() -> QueueEnds:
    return QueueEnds(make_store(options(), SimDisk().mount(), now_ms=Clock()))


def groups() -> SubscriptionGroupManager:
    return SubscriptionGroupManager(Role(), auto_create=True, now_ms=lambda: 0)


def metadata_on(disk: SimDisk, topics: TopicConfigManager, *, interval_s: float = 1_000_000) -> MetadataService:
    """Nobody has anything but topics; it saves what is asked for, and otherwise nothing for long."""
    return MetadataService(
        ConfigFiles(disk.mount(), "/store/config"),
        topics,
        ConsumerOffsetManager(),
        groups(),
        queue_ends(),
        delay_offsets=DelayOffsets(lambda: 0),
        interval_s=interval_s,
    )


TOPICS_JSON = "/store/config/topics.json"
OFFSETS_JSON = "/store/config/consumerOffset.json"


async def test_a_new_topic_is_saved_long_before_the_next_interval(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A RocketMQ broker that opens our store after a kill -9 knows no topic but the saved ones."""
    topics = TopicConfigManager(topic_rules("cluster", "broker"), now_ms=lambda: 0)
    disk = SimDisk()
    service = metadata_on(disk, topics)
    nursery.start_soon(service.run)
    for topic in ("orders", "payments"):
        topics.create_topic_in_send_message_method(topic, default_topic="TBW102", client_default_topic_queue_nums=4)
        await trio.sleep(1)
        saved = json.loads(disk.files["/store/config/topics.json"].durable)
        assert topic in saved["topicConfigTable"]


async def test_topics_that_were_taken_over_are_saved_before_anybody_is_served(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Simulator, seed 1034: sends to them were SEND_OK, and a restart would have known none."""
    topics, disk = TopicConfigManager(topic_rules("cluster", "broker"), now_ms=lambda: 0), SimDisk()
    service = metadata_on(disk, topics, interval_s=60)
    topics.replace(TopicTable((1, 0), {"alpha": TopicConfig("alpha", 2, 2)}))
    await nursery.start(service.run)
    assert "alpha" in json.loads(disk.files[TOPICS_JSON].durable)["topicConfigTable"]


async def test_a_new_topic_does_not_wait_for_the_consumer_offsets(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy broker takes seconds for a hundred thousand; meanwhile sends to new topics were refused as not saved."""
    topics, disk = TopicConfigManager(topic_rules("cluster", "broker"), now_ms=lambda: 0), SimDisk()
    service = metadata_on(disk, topics, interval_s=5)
    service.offsets.commit_offset("g", "t", 0, offset=1)

    async def slow() -> dict[str, Any]:
        await trio.sleep(60)
        return service.offsets.to_json()

    monkeypatch.setattr(service.offsets, "to_json_in_turns", slow)
    nursery.start_soon(service.run)
    await trio.sleep(10)
    topics.create_topic_in_send_message_method("new", default_topic="TBW102", client_default_topic_queue_nums=4)
    await trio.sleep(1)
    assert "new" in json.loads(disk.files[TOPICS_JSON].durable)["topicConfigTable"]


def saved_topics(machine: Machine) -> dict[str, Any]:
    table: dict[str, Any] = json.loads(machine.disk.files[TOPICS_JSON].durable)["topicConfigTable"]
    return table


def route_request(topic: str) -> RemotingCommand:
    return RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": topic})


async def test_a_new_topic_is_durable_before_its_first_send_ok(machine: Machine, autojump_clock: MockClock) -> None:
    """Killed at that moment, the broker comes back with as many queues as it told."""
    async with machine.broker() as broker, machine.client() as client:
        for number in range(20):
            answer = await ask(client, send_request(b"1", topic=f"t{number}", d="3"))
            assert answer.code == ResponseCode.SUCCESS
            assert saved_topics(machine)[f"t{number}"]["writeQueueNums"] == 3
        assert broker.topics.unsaved == {}


async def test_sends_to_a_new_topic_keep_their_order(machine: Machine, autojump_clock: MockClock) -> None:
    """Those that come while the topic is being saved, and those that come just afterwards."""
    machine.disk.faults.slowness = 20
    answers: list[tuple[int, int]] = []

    async def send(client: RemotingClient, number: int) -> None:
        answer = await ask(client, send_request(b"%d" % number, topic="new"))
        answers.append((number, decode_send_response(answer).queue_offset))

    async with machine.broker(), machine.client() as client, trio.open_nursery() as nursery:
        for number in range(200):
            nursery.start_soon(send, client, number)
            await trio.sleep(0.001)
    assert sorted(answers) == [(number, number) for number in range(200)]


async def fail(self: ConfigFiles, name: str, value: dict[str, Any]) -> None:
    self._disk.replace_bytes("/missing/topics.json", b"")


async def hang(self: ConfigFiles, name: str, value: dict[str, Any]) -> None:
    await trio.sleep_forever()


@pytest.mark.parametrize("trouble", [fail, hang])
async def test_a_topic_that_cannot_be_saved_takes_no_sends(
    machine: Machine,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    trouble: Callable[[ConfigFiles, str, dict[str, Any]], Awaitable[None]],
) -> None:
    """Nothing is stored, the reason is told in time, and known topics go on as if nothing were wrong."""
    async with machine.broker() as broker, machine.client() as client:
        assert (await ask(client, send_request(b"1", topic="known"))).code == ResponseCode.SUCCESS
        end = broker.store.max_offset
        with monkeypatch.context() as patch:
            patch.setattr(ConfigFiles, "save", trouble)
            begun_at = trio.current_time()
            answer = await ask(client, send_request(b"2", topic="new"))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            how = "was not saved to topics.json within 2 s" if trouble is hang else "could not be saved"
            assert f"new is new and {how}" in (answer.remark or "")
            assert trio.current_time() - begun_at < (2.1 if trouble is hang else 0.1)
            assert broker.store.max_offset == end
            assert (await ask(client, route_request("new"))).code == ResponseCode.TOPIC_NOT_EXIST
            begun_at = trio.current_time()
            assert (await ask(client, send_request(b"3", topic="known"))).code == ResponseCode.SUCCESS
            assert trio.current_time() - begun_at < 0.1
            assert "new" not in saved_topics(machine)
    assert "new" in saved_topics(machine), "the end of the broker is another chance"


async def test_a_topic_that_could_not_be_saved_is_saved_at_the_next_send(
    machine: Machine, autojump_clock: MockClock
) -> None:
    async with machine.broker() as broker, machine.client() as client:
        await ask(client, send_request(b"1", topic="known"))
        machine.disk.faults.full = True
        assert (await ask(client, send_request(b"2", topic="new"))).code == ResponseCode.SYSTEM_ERROR
        machine.disk.faults.full = False
        assert (await ask(client, send_request(b"2", topic="new"))).code == ResponseCode.SUCCESS
        assert "new" in saved_topics(machine)
        assert (await ask(client, route_request("new"))).code == ResponseCode.SUCCESS
        assert broker.store.write_error is None


async def test_after_a_disk_hung_topics_are_saved_again_at_once(machine: Machine, autojump_clock: MockClock) -> None:
    """The pause after a save is in proportion to the save, but not to a minute of it."""
    async with machine.broker(), machine.client() as client:
        machine.disk.faults.hung_until = trio.current_time() + 60
        assert (await ask(client, send_request(b"1", topic="new"))).code == ResponseCode.SYSTEM_ERROR
        await trio.sleep_until(machine.disk.faults.hung_until + 1)
        assert (await ask(client, send_request(b"2", topic="newer"))).code == ResponseCode.SUCCESS


async def test_one_way_messages_to_a_new_topic_are_not_held(
    machine: Machine, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is told of them, and nothing bounds how many come."""
    async with machine.broker() as broker, machine.client() as client:
        monkeypatch.setattr(ConfigFiles, "save", fail)
        request = send_request(b"1", topic="new")
        request.flag |= FLAG_ONEWAY
        client.put_nowait(request.encode())
        await trio.sleep(1)
        assert broker.store.max_offset > 0


@pytest.mark.parametrize("lost", [[], ["consumerOffset.json"]])
def test_topics_that_are_missing_are_told_of_whatever_else_is_lost(lost: list[str]) -> None:
    metadata = metadata_on(SimDisk(), TopicConfigManager(topic_rules("cluster", "broker"), now_ms=lambda: 0))
    metadata.files.lost.update(dict.fromkeys(lost, "is no table"))
    metadata.check_found()
    assert [*metadata.files.lost] == [*lost, "topics.json"]


async def test_a_save_that_is_cut_short_is_made_up_for(autojump_clock: MockClock) -> None:
    """The end of a broker cancels the service in the middle of a save: the last save must not take that for done."""
    topics = TopicConfigManager(topic_rules("cluster", "broker"), now_ms=lambda: 0)
    disk = SimDisk()
    service = metadata_on(disk, topics, interval_s=1)
    topics.dirty = True
    await service.save()
    topics.create_topic_in_send_message_method("t", default_topic="TBW102", client_default_topic_queue_nums=4)
    with trio.move_on_after(0.0001):
        await service.save()
    await service.save()
    assert "t" in json.loads(disk.files[TOPICS_JSON].durable)["topicConfigTable"]


async def test_a_topic_made_during_a_save_counts_only_with_the_next(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Its send waits for the save that has it, which follows at once; the one under way has not."""
    topics = TopicConfigManager(topic_rules("cluster", "broker"), now_ms=lambda: 0)
    disk = SimDisk()
    await ConfigFiles(disk.mount(), "/store/config").save("tablesOrigin.json", {"term": -1, "tables": []})
    disk.latency_s = (0.5, 0.5)
    service = metadata_on(disk, topics)
    durable_when_told: dict[str, bool] = {}

    def make(topic: str) -> None:
        topics.create_topic_in_send_message_method(topic, default_topic="TBW102", client_default_topic_queue_nums=4)
        topics.untold.when_told(topic, trio.current_time() + 60, partial(note, topic))

    def note(topic: str, is_saved: bool, _value: int) -> None:
        assert is_saved
        durable_when_told[topic] = topic in json.loads(disk.files[TOPICS_JSON].durable)["topicConfigTable"]

    nursery.start_soon(service.run)
    make("before")
    await trio.sleep(0.1)
    make("meanwhile")
    await trio.sleep(0.6)
    assert durable_when_told == {"before": True}
    assert list(topics.unsaved) == ["meanwhile"]
    await trio.sleep(3)
    assert durable_when_told == {"before": True, "meanwhile": True}
    assert topics.unsaved == {}


async def test_a_group_s_offsets_that_are_removed_during_a_save_are_gone_with_the_next(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The save under way has them still: after a crash they would be back, though their removal was answered."""
    disk = SimDisk(latency_s=(0.5, 0.5))
    service = metadata_on(disk, TopicConfigManager(topic_rules("cluster", "broker"), now_ms=lambda: 0))
    service.offsets.commit_offset("gone", "orders", 0, offset=7)
    nursery.start_soon(service.save)
    await trio.sleep(0.1)
    await service.offsets.remove_offset_in_turns("gone")
    was_saved = list[bool]()
    service.offsets.saved.add(service.offsets.awaited, trio.current_time() + 60, lambda done, _: was_saved.append(done))
    await trio.sleep(10)
    assert (b"orders@gone" in disk.files[OFFSETS_JSON].durable, was_saved) == (True, [])
    await service.save()
    assert (b"orders@gone" in disk.files[OFFSETS_JSON].durable, was_saved) == (False, [True])


def test_topics_that_are_taken_over_are_saved_and_each_change_has_a_version(mock_clock: MockClock) -> None:
    topics = TopicConfigManager(topic_rules("cluster", "broker"), now_ms=lambda: 7)
    versions = [topics.data_version]
    for queue_id in range(3):
        topics.learn_queue("orders", queue_id)
        versions.append(topics.data_version)
    assert len(set(versions)) == 4, "in one and the same millisecond, too"
    other = TopicConfigManager(topic_rules("cluster", "broker"), now_ms=lambda: 8)
    assert not other.dirty
    assert other.replace_from_json({**topics.to_json(), "topicConfigTable": {"orders": {"readQueueNums": 3}}})
    assert other.dirty


async def test_each_reason_for_not_saving_is_told_once_until_a_save_succeeds(autojump_clock: MockClock) -> None:
    topics = TopicConfigManager(topic_rules("cluster", "broker"), now_ms=lambda: 0)
    disk = SimDisk()
    service = metadata_on(disk, topics)
    await service.save()
    topics.create_topic_in_send_message_method("orders", default_topic="TBW102", client_default_topic_queue_nums=4)
    with capture_logs() as logs:
        for name, is_broken in [("full", True), ("read_only", True), ("full", False), ("read_only", False)]:
            setattr(disk.faults, name, is_broken)
            await service.save()
            await service.save()
        for queue_id in (8, 9):
            topics.learn_queue("orders", queue_id)
            disk.faults.read_only = True
            await service.save()
            disk.faults.heal()
            await service.save()
    told = [entry["reason"].partition("(errno ")[2] for entry in logs if entry["event"] == "metadata.not_saved"]
    assert told == ["28)", "30)", "30)", "30)"]
    saved = json.loads(disk.files["/store/config/topics.json"].durable)
    assert "orders" in saved["topicConfigTable"]


@pytest.mark.parametrize("is_full", [False, True])
async def test_the_end_of_a_queue_is_saved_before_its_last_message_goes(
    machine: Machine, autojump_clock: MockClock, is_full: bool
) -> None:
    """A crash that takes the queue's files, too, would have it begin at 0 again; but a full disk must be emptied."""
    saved: list[bool] = []
    files = machine.disk.files
    async with machine.broker(flushConsumerOffsetInterval="3600000", fileReservedTime="1") as broker:
        async with machine.client() as client:
            for topic in ("silent", *["busy"] * 3):
                await ask(client, send_request(b"x" * 30_000, topic=topic))
        await trio.sleep(1.5 * 3600)
        machine.disk.on_unlink = lambda _path: saved.append("/store/config/queueEnds.json" in files)
        machine.disk.faults.full = is_full
        broker.store.cleaner.execute_delete_files_manually()
        assert await broker.store.cleaner.clean() == 1
        assert saved == [not is_full]
        machine.disk.faults.heal()
        await broker.metadata.save()
        assert b"silent" in files["/store/config/queueEnds.json"].durable


async def test_what_is_expired_stays_until_the_ends_of_its_queues_are_saved(
    machine: Machine, autojump_clock: MockClock
) -> None:
    """The disk of all but the log is full: deleting would make no room there, and a queue could begin at 0 again."""
    async with machine.broker(flushConsumerOffsetInterval="3600000", fileReservedTime="1") as broker:
        async with machine.client() as client:
            for topic in ("silent", *["busy"] * 3):
                await ask(client, send_request(b"x" * 30_000, topic=topic))
        await trio.sleep(1.5 * 3600)
        machine.disk.faults.root_full = True
        broker.store.cleaner.execute_delete_files_manually()
        assert await broker.store.cleaner.clean() == 0
        machine.disk.faults.heal()
        assert await broker.store.cleaner.clean() == 1
        assert b"silent" in machine.disk.files["/store/config/queueEnds.json"].durable


@pytest.mark.parametrize(("faults", "says"), [({"full": True}, "No space left"), ({"hung": True}, "has not answered")])
async def test_what_cannot_be_saved_is_told_by_the_status(
    machine: Machine, autojump_clock: MockClock, faults: dict[str, bool], says: str
) -> None:
    """A full disk of config was a line of the log: consumers' offsets went unsaved for as long, and all was well."""
    async with machine.broker(flushConsumerOffsetInterval="1000") as broker:

        async def reasons() -> tuple[str, ...]:
            async with machine.client() as client:
                answer = await ask(client, RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
            return judge(read_status(json.loads(answer.body)["table"])).reasons

        assert await reasons() == ()
        if faults.get("full"):
            machine.disk.faults.full = True
        else:
            machine.disk.faults.hung_until = trio.current_time() + 25
        broker.topics.learn_queue("orders", 8)
        await trio.sleep(15)
        assert [says in reason and "config/" in reason for reason in await reasons()].count(True) == 1
        machine.disk.faults.full = False
        await trio.sleep(15)
        assert await reasons() == ()


def noted(disk: SimDisk, origin: TablesOrigin) -> MetadataService:
    """Topics and an offset of ``origin``, to be saved."""
    metadata = metadata_on(disk, TopicConfigManager(topic_rules(), now_ms=lambda: 1))
    metadata.topics.learn_queue("t", 0)
    metadata.topics.dirty = True
    metadata.offsets.commit_offset("g", "t", 0, offset=1)
    metadata.origin = lambda: origin
    return metadata


def found_on(disk: SimDisk) -> TablesOrigin:
    metadata = metadata_on(disk, TopicConfigManager(topic_rules(), now_ms=lambda: 1))
    metadata.load()
    return metadata.found


async def test_whose_tables_are_saved_is_noted_with_them(autojump_clock: MockClock) -> None:
    """And again when one has changed, or its master has gone on for a minute."""
    disk, seconds = SimDisk(), [0.5]
    metadata = noted(disk, TablesOrigin())
    metadata.origin = lambda: TablesOrigin(7, was_master=True, for_ms=int(seconds[0] * 1000), leader_id="n1")
    found = list[int]()
    for now_s in (1.0, 2.0, 50.0, 62.0):
        seconds[0] = now_s
        if now_s == 2.0:
            metadata.offsets.commit_offset("g", "t", 0, offset=2)
        await metadata.save()
        found.append(json.loads(disk.files["/store/config/tablesOrigin.json"].durable)["for_ms"])
    assert found == [1000, 2000, 2000, 62_000]
    origin = found_on(disk)
    assert (origin, origin.leader_id) == (TablesOrigin(7, for_ms=62_000), "n1"), "nobody is master in a new process"


@pytest.mark.parametrize(
    ("name", "content", "term"),
    [
        ("consumerOffset.json", None, -2),
        ("consumerOffset.json", b"{", -2),
        ("topics.json", None, -2),
        ("tablesOrigin.json", None, -1),
        ("tablesOrigin.json", b"[]", -1),
        ("tablesOrigin.json", b'{"term":"7"}', -1),
        ("tablesOrigin.json", b'{"term":9223372036854775808,"tables":[]}', -1),
        ("tablesOrigin.json", b'{"term":7,"for_ms":-1,"tables":[]}', -1),
    ],
)
async def test_of_tables_that_are_not_all_there_it_says_nothing(
    name: str, content: bytes | None, term: int, autojump_clock: MockClock
) -> None:
    """A member that lost consumers' offsets would have all others forget theirs."""
    disk = SimDisk()
    await noted(disk, TablesOrigin(7)).save()
    assert found_on(disk).term == 7
    if content is None:
        del disk.files[f"/store/config/{name}"]
    else:
        disk.mount().replace_bytes(f"/store/config/{name}", content)
    assert found_on(disk).term == term


async def test_it_is_noted_of_no_table_that_cannot_be_saved(autojump_clock: MockClock) -> None:
    disk = SimDisk()
    metadata = noted(disk, TablesOrigin(7))
    disk.faults.full = True
    await metadata.save()
    assert "/store/config/tablesOrigin.json" not in disk.files
    disk.faults.full = False
    await metadata.save()
    assert found_on(disk).term == 7


async def test_whose_tables_are_saved_stays_as_it_was_while_topics_cannot_be_saved(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member with topics of an earlier term passed for the newest one, and the others took its tables."""
    disk = SimDisk()
    await noted(disk, TablesOrigin(7)).save()
    metadata, save = noted(disk, TablesOrigin(8)), ConfigFiles.save

    async def refuse_topics(files: ConfigFiles, name: str, value: dict[str, Any]) -> None:
        await (fail if name == "topics.json" else save)(files, name, value)

    with monkeypatch.context() as patch:
        patch.setattr(ConfigFiles, "save", refuse_topics)
        metadata.offsets.commit_offset("g", "t", 0, offset=2)
        await metadata.save()
    assert java_json.loads(disk.files[OFFSETS_JSON].durable)["offsetTable"] == {"t@g": {0: 2}}
    assert json.loads(disk.files["/store/config/tablesOrigin.json"].durable)["term"] == 7
    await metadata.save()
    assert found_on(disk).term == 8
