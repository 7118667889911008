"""What clients may make a broker remember is bounded, whatever they send; what is known goes on."""

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from sys import getsizeof, setprofile
from typing import Any

import pytest
import structlog
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.broker import pull_request_hold_service
from rmqha.broker.clients.client_channel_info import ClientChannelInfo
from rmqha.broker.clients.consumer_manager import ConsumerManager
from rmqha.broker.clients.heartbeat_room import SIZE_MAX
from rmqha.broker.pull_request_hold_service import PullRequestHoldService
from rmqha.broker.tables import consumer_offset_manager, topic_config_manager
from rmqha.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from rmqha.broker.tables.topic_config import TopicConfig, TopicTable
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.frame_decoder import FrameDecoder
from rmqha.codec.heartbeat import ConsumerData, SubscriptionData, build_subscription_data, decode_subscription
from rmqha.codec.host import join_address
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import RemoteProtocolError
from tests.broker.machines import Machine, ask, pull_request, send_request
from tests.reachable import count_entries
from tests.settings import remoting_limits, topic_rules
from tests.sim.sim_net import SimNet


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as captured:
        yield captured


async def test_topics_beyond_max_queues_are_not_made(autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1", {"maxQueues": "40"})
    async with machine.broker(), machine.client() as client:
        codes = [(await ask(client, send_request(b"x", topic=f"t{number}"))).code for number in range(8)]
        assert codes == [ResponseCode.SUCCESS] * 5 + [ResponseCode.SYSTEM_ERROR] * 3, "half, of four queues each"
        assert (await ask(client, send_request(b"x", topic="t4", queue_id=3))).code == ResponseCode.SUCCESS
        answer = await ask(client, send_request(b"x", topic="t5"))
        assert "maxQueues" in (answer.remark or "")
    async with machine.broker(maxQueues="23"), machine.client() as client:
        assert (await ask(client, send_request(b"x", topic="t5"))).code == ResponseCode.SYSTEM_ERROR
        assert (await ask(client, send_request(b"x", topic="t4"))).code == ResponseCode.SUCCESS
    async with machine.broker(maxQueues="28"), machine.client() as client:
        assert (await ask(client, send_request(b"x", topic="t5"))).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("asked", ["0", "-1", "1"])
async def test_topics_without_queues_count_as_well(asked: str, autojump_clock: MockClock) -> None:
    """The first message makes their queue."""
    machine = Machine(SimNet(), "10.0.0.1", {"maxQueues": "6"})
    async with machine.broker() as broker, machine.client() as client:
        for number in range(5):
            answer = await ask(client, send_request(b"x", topic=f"t{number}", d=asked))
            assert answer.code == (ResponseCode.SUCCESS if number < 3 else ResponseCode.SYSTEM_ERROR)
        assert [broker.topics.select(f"t{number}") is not None for number in range(5)] == [True] * 3 + [False] * 2


async def test_a_topic_whose_queues_would_be_too_many_is_not_made(autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1", {"maxQueues": "13"})
    async with machine.broker(), machine.client() as client:
        assert (await ask(client, send_request(b"x", topic="t0", d="4"))).code == ResponseCode.SUCCESS
        answer = await ask(client, send_request(b"x", topic="t1", d="4"))
        assert (answer.code, "maxQueues" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        assert (await ask(client, send_request(b"x", topic="t2", d="2"))).code == ResponseCode.SUCCESS


async def test_a_store_with_more_queues_than_the_limit_starts(autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker(), machine.client() as client:
        for number in range(5):
            assert (await ask(client, send_request(b"x", topic=f"t{number}"))).code == ResponseCode.SUCCESS
    async with machine.broker(maxQueues="4"), machine.client() as client:
        for number in range(5):
            assert (await ask(client, send_request(b"x", topic=f"t{number}"))).code == ResponseCode.SUCCESS
        assert (await ask(client, send_request(b"x", topic="new"))).code == ResponseCode.SYSTEM_ERROR


def test_no_host_makes_all_topics_that_there_may_be() -> None:
    """One client did, and no other got a new one then."""
    rules = topic_rules("cluster", "broker", max_queues=400)
    topics = TopicConfigManager(rules, now_ms=lambda: 0)

    def make(host: str, number: int) -> None:
        assert topics.create_topic_in_send_message_method(
            f"{host}-{number}".replace(".", "_"),
            default_topic="TBW102",
            client_default_topic_queue_nums=4,
            peer=f"{host}:{40_000 + number}",
        )

    for host, most in (("10.0.0.1", 50), ("10.0.0.2", 25)):
        made, reason = until_refused(partial(make, host))
        assert (made, f"those of {host} have {4 * most} queues since" in reason) == (most, True)
    make("10.0.0.3", 1)
    make("10.0.0.1", 0)  # it is known
    for number in range(30):
        topics.delete_topic_config(f"10_0_0_1-{number}", {}, before=0)
    make("10.0.0.1", 100)


def test_no_host_fills_the_table_of_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_config_manager, "TABLE_SIZE_MAX", 50_000)
    topics = TopicConfigManager(topic_rules("cluster", "broker"), now_ms=lambda: 0)

    def make(host: str, number: int) -> None:
        topics.create_topic_in_send_message_method(
            f"{host}-{number}".replace(".", "_") + "x" * 100,
            default_topic="TBW102",
            client_default_topic_queue_nums=1,
            peer=f"{host}:1",
        )

    made, _ = until_refused(partial(make, "10.0.0.1"))
    assert 40 < made < 70, "half of it"
    make("10.0.0.2", 0)


def test_a_topic_that_grows_counts_with_the_queues_it_has() -> None:
    topics = TopicConfigManager(topic_rules("cluster", "broker", max_queues=20), now_ms=lambda: 0)
    for queue_id in range(12):
        topics.learn_queue("grows", queue_id)
    assert topics.create_topic_in_send_message_method("next", default_topic="TBW102", client_default_topic_queue_nums=8)
    with pytest.raises(RemoteProtocolError, match="maxQueues"):
        topics.create_topic_in_send_message_method(
            "one more", default_topic="TBW102", client_default_topic_queue_nums=1
        )


def test_a_queue_that_none_can_be_is_not_learned() -> None:
    """By a flipped bit consumers were told of a billion queues, and no other topic could be made.

    What operators asked of all its queues never came to an end, and to delete the topic took all memory.
    """
    topics = TopicConfigManager(topic_rules("cluster", "broker"), now_ms=lambda: 0)
    topics.learn_queue("t", 3)
    with capture_logs() as logs:
        for topic, queue_id in (("t", 2**30), ("t", 2**31 - 1), ("t", 65_536), ("u", 2**30)):
            topics.learn_queue(topic, queue_id)
    assert [(line["topic"], line["queue_id"]) for line in logs] == [("t", 2**30), ("u", 2**30)]
    known = topics.select("t")
    assert known is not None
    assert (known.read_queue_nums, known.write_queue_nums, topics.select("u")) == (4, 4, None)


def test_no_table_says_that_a_topic_has_more_queues_than_clients_make_room_for() -> None:
    topics = TopicConfigManager(topic_rules("cluster", "broker"), now_ms=lambda: 0)
    entry = {"readQueueNums": 2**31 - 1, "writeQueueNums": 2**30}
    topics.replace_from_json({"dataVersion": {"timestamp": 1}, "topicConfigTable": {"t": entry}})
    known = topics.select("t")
    assert known is not None
    assert (known.read_queue_nums, known.write_queue_nums) == (65_536, 65_536)


def test_queues_of_the_log_are_never_refused() -> None:
    topics = TopicConfigManager(topic_rules("cluster", "broker", max_queues=4), now_ms=lambda: 0)
    for number in range(10):
        topics.learn_queue("t", number)

    def make() -> None:
        topics.create_topic_in_send_message_method("u", default_topic="TBW102", client_default_topic_queue_nums=4)

    with pytest.raises(RemoteProtocolError, match="maxQueues"):
        make()
    topics.replace_from_json({"dataVersion": {"timestamp": 1, "counter": 1}, "topicConfigTable": {}})
    make()


def test_what_only_the_log_told_of_grows_to_what_others_know_and_nothing_else_does() -> None:
    topics = TopicConfigManager(topic_rules("cluster", "broker"), now_ms=lambda: 0)
    for topic in ("made", "as large", "unknown"):
        topics.learn_queue(topic, 1)
    topics.update_topic_config(TopicConfig("shrunk", 2, 2))
    told = [TopicConfig("made", 7, 7, 6), TopicConfig("as large", 2, 0), TopicConfig("shrunk", 8, 8)]
    topics.grow_learned(TopicTable((9, 9), {topic.topic_name: topic for topic in told}))
    assert topics.select("made") == told[0]
    for topic in ("as large", "unknown", "shrunk"):
        assert topics.select(topic) == TopicConfig(topic, 2, 2)
    topics.learn_queue("made", 8)
    known = topics.select("made")
    assert known is not None
    assert (known.read_queue_nums, known.write_queue_nums) == (9, 7), "it is no longer one that nobody made"


def test_a_table_that_was_taken_over_is_saved() -> None:
    topics = TopicConfigManager(topic_rules("cluster", "broker"), now_ms=lambda: 0)
    table = {"dataVersion": {"timestamp": 1, "counter": 1}, "topicConfigTable": {}}
    for is_news in (True, False):
        topics.dirty = False
        assert topics.replace_from_json(table) is is_news
        assert topics.dirty is is_news


def test_consumer_offsets_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_offset_manager, "ENTRIES_MAX", 10)
    offsets = ConsumerOffsetManager()
    for number in range(10):
        offsets.commit_offset("g", "t", number, offset=1)
    for group, topic, queue_id in (("g", "t", 10), ("h", "t", 0), ("g", "u", 0)):
        with pytest.raises(RemoteProtocolError, match="the limit"):
            offsets.commit_offset(group, topic, queue_id, offset=1)
    offsets.commit_offset("g", "t", 9, offset=2)
    again = ConsumerOffsetManager()
    again.replace_from_json(offsets.to_json())
    assert again.query_offset("g", "t", 9) == 2
    with pytest.raises(RemoteProtocolError, match="the limit"):
        again.commit_offset("g", "t", 10, offset=1)


def until_refused(add: Callable[[int], None]) -> tuple[int, str]:
    """How many can be added, and why no more."""
    for number in range(10_000):
        try:
            add(number)
        except RemoteProtocolError as error:
            return number, str(error)
    return 10_000, ""


def test_no_host_fills_the_table_of_consumer_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client's commits for ever new groups had all other new groups refused, for good."""
    monkeypatch.setattr(consumer_offset_manager, "ENTRIES_MAX", 100)
    offsets = ConsumerOffsetManager()
    offsets.replace_from_json({"offsetTable": {"t@known": dict.fromkeys(range(20), 1)}})

    def add(host: str, number: int) -> None:
        offsets.commit_offset(f"{host}-{number}", "t", 0, offset=1, peer=join_address(host, 40_000 + number))

    for host, most in (("10.0.0.1", 40), ("fe80::1", 20)):
        added, reason = until_refused(partial(add, host))
        assert (added, f"clients of {host} have added those of {most} queues" in reason) == (most, True)
    offsets.commit_offset("honest", "t", 0, offset=1, peer="10.0.0.3:1")
    offsets.commit_offset("10.0.0.1-0", "t", 0, offset=2, peer="10.0.0.1:1")
    offsets.commit_offset("known", "t", 0, offset=2, peer="10.0.0.1:1")


@pytest.mark.parametrize(("group", "topic"), [("", "t"), ("g" * 256, "t"), ("g", ""), ("g", "../t"), ("g", "t" * 128)])
async def test_offsets_of_impossible_names_are_not_kept(group: str, topic: str, autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker() as broker, machine.client() as client:
        fields = {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": "1"}
        answer = await ask(client, RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=fields))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert broker.offsets.to_json()["offsetTable"] == {}


def subscription(topic: str, size: int = 0) -> SubscriptionData:
    return build_subscription_data(topic, "a" * size or "*")


def register(
    consumers: ConsumerManager,
    group: str,
    member: Any,
    *,
    subscriptions: Sequence[SubscriptionData] = (),
    client_id: str = "c",
    peer: str = "",
) -> None:
    consumer = ConsumerData(group, subscription_data_set=tuple(subscriptions))
    consumers.register(consumer, ClientChannelInfo(member, client_id, peer))


def fill(consumers: ConsumerManager, members: list[Any]) -> int:
    """How many subscriptions were taken before one was refused."""
    for number in range(10_000):
        subscriptions = [subscription("t", 30_000)]
        try:
            register(consumers, f"g{number}", members[number % len(members)], subscriptions=subscriptions)
        except RemoteProtocolError:
            return number
    return 10_000


def test_what_heartbeats_say_is_bounded() -> None:
    consumers = ConsumerManager()
    members: list[Any] = [object() for _ in range(8)]
    taken = fill(consumers, members)
    assert 20 < taken < SIZE_MAX // 120_000
    assert consumers.find_group(f"g{taken}") is None
    for _ in range(1000):  # the same one again is no growth
        register(consumers, "g1", members[1], subscriptions=[subscription("t", 30_000)])
    consumers.forget_member(members[0])
    register(consumers, "late", members[1], subscriptions=[subscription("t", 30_000)])


def test_no_host_fills_what_others_subscribe_to() -> None:
    """One client's heartbeats for ever new groups had those of all others refused, who could not consume then."""
    consumers, subscriptions = ConsumerManager(), [subscription("t", 30_000)]

    def add(host: str, number: int) -> None:
        group = f"{host}-{number}"
        peer = f"{host}:{40_000 + number}"
        register(consumers, group, (group,), subscriptions=subscriptions, peer=peer)

    taken = []
    for host in ("10.0.0.1", "10.0.0.2"):
        added, reason = until_refused(partial(add, host))
        assert f"what groups subscribe to of clients of {host} fills" in reason
        taken.append(added)
    assert taken[0] > 2 * taken[1] - 10 > 20
    register(consumers, "honest", object(), subscriptions=subscriptions, peer="10.0.0.3:1")
    add("10.0.0.1", 0)
    for host, count in zip(("10.0.0.1", "10.0.0.2"), taken, strict=True):
        for number in range(count):
            forgotten: Any = (f"{host}-{number}",)
            consumers.forget_member(forgotten)
    for number in range(taken[0]):
        register(consumers, f"g{number}", object(), subscriptions=subscriptions, peer="10.0.0.1:1")


def test_codes_that_are_no_tags_count_as_well() -> None:
    """A heartbeat of 250 KB that names 36,000 of them for one tag made a broker keep 3 MB, uncounted."""
    consumers, codes = ConsumerManager(), [*range(100_000, 136_000)]
    for number in range(1000):
        subscription = {"topic": "t", "subString": "a", "codeSet": codes}
        kept = decode_subscription(subscription)
        try:
            register(consumers, f"g{number}", object(), subscriptions=(kept,))
        except RemoteProtocolError:
            break
    assert kept.code_set
    taken = getsizeof(kept.code_set, 0) + sum(getsizeof(code, 60) for code in kept.code_set)  # PyPy does not know
    assert 3 < number < SIZE_MAX / taken


def test_the_account_of_heartbeats_is_even_when_all_have_left() -> None:
    consumers = ConsumerManager()
    members: list[Any] = [object() for _ in range(5)]
    for number, member in enumerate(members * 3):
        for group in ("a", "b" * number):
            subscriptions = [subscription(f"t{number % 2}", number)]
            register(consumers, group, member, client_id="c" * number, subscriptions=subscriptions)
    consumers.unregister("a", members[0])
    consumers.unregister("a", members[0])
    for member in members:
        consumers.forget_member(member)
    assert consumers.find_group("a") is None
    assert count_entries(consumers) == count_entries(ConsumerManager())
    assert fill(consumers, members) == fill(ConsumerManager(), members)


async def test_bad_requests_do_not_fill_the_log(logs: list[Any], autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker():
        for _ in range(50):
            async with machine.client() as client:
                for _ in range(20):
                    answer = await ask(client, RemotingCommand(RequestCode.GET_MAX_OFFSET, ext_fields={"queueId": "x"}))
                    assert answer.code == ResponseCode.SYSTEM_ERROR
    events = [entry["event"] for entry in logs]
    assert events.count("request.failed") < 30
    assert events.count("remoting_connection.closed") < 30


async def test_held_pulls_are_bounded(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """What there is no room for is not held, and neither arrival nor end is counted twice."""
    monkeypatch.setattr(pull_request_hold_service, "HELD_MAX", 10)
    holds = PullRequestHoldService()
    nursery.start_soon(holds.run)
    ended: list[tuple[int, bool]] = []

    def hold(number: int) -> None:
        def retry(arrived: bool) -> None:
            ended.append((number, arrived))

        deadline = 100.0 + number
        holds.suspend_pull_request("t", number, offset=0, queue_end=0, deadline=deadline, retry=retry)

    for number in range(12):
        hold(number)
    assert (ended, holds.held) == ([(10, False), (11, False)], 10)
    holds.notify_message_arriving("t", 5, 1)
    assert (ended[2:], holds.held) == ([(5, True)], 9)
    await trio.sleep(200)
    assert (len(ended), holds.held) == (12, 0)
    nursery.cancel_scope.cancel()


async def test_no_host_takes_the_places_of_all_held_pulls(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """Those of honest consumers ended next, and at once, so that they asked without a pause."""
    monkeypatch.setattr(pull_request_hold_service, "HELD_MAX", 10)
    holds = PullRequestHoldService()
    nursery.start_soon(holds.run)
    ended: dict[str, list[float]] = {"10.0.0.1": [], "10.0.0.2": []}

    def hold(host: str, held_s: float) -> None:
        def retry(_arrived: bool) -> None:
            ended[host].append(trio.current_time())

        deadline = trio.current_time() + held_s
        holds.suspend_pull_request("t", 0, offset=0, queue_end=0, deadline=deadline, retry=retry, peer=f"{host}:1")

    for _ in range(3):
        hold("10.0.0.2", 15)
        for _ in range(20):
            hold("10.0.0.1", 60)
        await trio.sleep(16)
    assert ended["10.0.0.2"] == [15, 31, 47]
    await trio.sleep(100)
    assert (len(ended["10.0.0.1"]), holds.held) == (60, 0)
    nursery.cancel_scope.cancel()


async def test_a_held_pull_for_many_tags_takes_as_much_room_as_it_needs(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(pull_request_hold_service, "HELD_MAX", 500)
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker(), machine.client() as client:
        await ask(client, send_request(b"x"))
        tags = "||".join(f"{number:x}" for number in range(5000))
        answers: list[object] = []
        for _ in range(3):
            request = pull_request(1, suspend_ms=50_000, subscription=tags)
            client.invoke_nowait(request, deadline=trio.current_time() + 60, on_outcome=answers.append)
            await trio.sleep(1)
        assert len(answers) == 2, "there is room for one"


async def test_of_a_held_pull_no_more_is_kept_than_what_it_is_for(autojump_clock: MockClock) -> None:
    """A minute long, also for those who left: their requests are in nobody's account any more."""
    tracemalloc = pytest.importorskip("tracemalloc", reason="PyPy does not count allocations")
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker():
        async with machine.client() as client:
            await ask(client, send_request(b"x"))
        tracemalloc.start()
        for _ in range(10):
            async with machine.client() as client:
                request = pull_request(1, suspend_ms=50_000)
                request.body = bytes(1_000_000)
                client.put_nowait(request.encode())
                del request
                await trio.sleep(1)
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert kept < 5_000_000


async def test_held_pulls_keep_nobody_from_being_read(autojump_clock: MockClock) -> None:
    """32 with bodies of 16 MiB, of which nothing is kept, did for a minute."""
    limits = dict.fromkeys(("maxInFlightBytes", "maxInFlightBytesPerConnection"), str(1 << 20))
    machine = Machine(SimNet(), "10.0.0.1", limits)
    async with machine.broker(), machine.client() as holder, machine.client() as client:
        await ask(client, send_request(b"x"))
        for _ in range(3):
            request = pull_request(1, suspend_ms=50_000)
            request.body = bytes(500_000)
            holder.put_nowait(request.encode())
            await trio.sleep(1)
        begun_at = trio.current_time()
        for _ in range(2):  # of the first its connection had begun to wait before
            assert (await client.invoke(send_request(b"x", topic="u"), timeout_s=60)).code == ResponseCode.SUCCESS
        assert trio.current_time() - begun_at < 1


async def test_nothing_is_kept_of_what_a_client_asked_that_sits_there(autojump_clock: MockClock) -> None:
    """Each that had sent a frame of 16 MiB cost as much, in nobody's account, for as long as it stayed."""
    tracemalloc = pytest.importorskip("tracemalloc", reason="PyPy does not count allocations")
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker(), AsyncExitStack() as clients:
        connected = [await clients.enter_async_context(machine.client()) for _ in range(10)]
        tracemalloc.start()
        for client in connected:
            answer = await ask(client, RemotingCommand(RequestCode.HEART_BEAT, body=bytes(1_000_000)))
            assert answer.code == ResponseCode.SYSTEM_ERROR
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert kept < 5_000_000


async def test_nothing_is_kept_of_who_broke_the_protocol(autojump_clock: MockClock) -> None:
    """The error kept all that it had come through, 48 MB for a frame of 16, until the collector ran."""
    tracemalloc = pytest.importorskip("tracemalloc", reason="PyPy does not count allocations")
    net = SimNet()
    machine = Machine(net, "10.0.0.1")
    frame = RemotingCommand(RequestCode.HEART_BEAT, body=bytes(1_000_000)).encode().replace(b'"flag":', b'"flag";', 1)
    async with machine.broker():
        gc.disable()
        tracemalloc.start()
        for _ in range(10):
            async with machine.client() as client:
                client.put_nowait(frame)
                await trio.sleep(1)
                assert client.closed
            async with machine.client() as client:
                client.put_nowait(frame[:-1])
                await trio.sleep(1)
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        gc.enable()
        assert kept < 5_000_000


async def test_a_pull_is_held_for_a_minute_at_most(autojump_clock: MockClock) -> None:
    """Also of a client that left: for years it would be remembered."""
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker() as broker:
        async with machine.client() as client:
            await ask(client, send_request(b"x"))
            client.put_nowait(pull_request(1, suspend_ms=10**12).encode())
            await trio.sleep(1)
            assert broker.holds.held == 1
        await trio.sleep(61)
        assert broker.holds.held == 0


async def test_held_pulls_of_who_takes_no_answers_are_told_to_ask_again(autojump_clock: MockClock) -> None:
    """Whatever else one client held was answered with messages as well: 60 MB of pulls made 1 GB of answers."""
    machine = Machine(SimNet(capacity=10_000), "10.0.0.1")
    async with machine.broker() as broker, machine.client() as sender:
        await ask(sender, send_request(b"x"))
        await trio.sleep(1)
        stream = await machine.net.host("10.9.9.8").mount().connect(machine.address, 10911, timeout_s=1)
        for opaque in range(2000):
            pull = pull_request(1, suspend_ms=20_000)
            pull.opaque = opaque
            await stream.send_all(pull.encode())
        await trio.sleep(1)
        assert broker.holds.held == 2000
        await ask(sender, send_request(bytes(20_000)))
        await trio.sleep(1)
        assert broker.holds.held == 0
        assert broker.server is not None
        assert broker.server.capacity.owed.size < remoting_limits().connection_outgoing_bytes_max + 2000 * 400
        decoder, buffer, answers = FrameDecoder(), memoryview(bytearray(65_536)), list[RemotingCommand]()
        while len(answers) < 2000:
            answers += decoder.receive_data(bytes(buffer[: await stream.receive_into(buffer)]))
        assert sorted(answer.opaque for answer in answers) == [*range(2000)]
        told = Counter((answer.code, (answer.ext_fields or {})["nextBeginOffset"]) for answer in answers)
        assert set(told) == {(ResponseCode.SUCCESS, "2"), (ResponseCode.PULL_RETRY_IMMEDIATELY, "1")}
        stream.close()


async def test_tables_are_not_made_for_who_does_not_take_them(autojump_clock: MockClock) -> None:
    """25 bytes ask for megabytes: a thousand of them in one piece must not cost a thousand tables."""
    net = SimNet(capacity=10_000)
    machine = Machine(net, "10.0.0.1")
    async with machine.broker() as broker, machine.client() as client:
        for number in range(20_000):
            broker.offsets.commit_offset(f"group-{number}", "t", 0, offset=number)
        codes: Counter[int] = Counter()

        async def ask_for_it() -> None:
            codes[(await ask(client, RemotingCommand(RequestCode.GET_ALL_CONSUMER_OFFSET))).code] += 1

        async with trio.open_nursery() as nursery:
            for _ in range(200):
                nursery.start_soon(ask_for_it)
        assert codes[ResponseCode.SUCCESS] + codes[ResponseCode.SYSTEM_BUSY] == 200
        assert 1 <= codes[ResponseCode.SUCCESS] < 20
        assert len((await ask(client, RemotingCommand(RequestCode.GET_ALL_CONSUMER_OFFSET))).body) > 400_000


def test_a_heartbeat_costs_the_same_whatever_the_size_of_its_group() -> None:
    """So does a goodbye: nothing of the other members is touched, by calls or by copies."""
    calls_among_few, peak_among_few = cost_of_heartbeats(others=5)
    calls_among_many, peak_among_many = cost_of_heartbeats(others=5000)
    assert calls_among_many == calls_among_few
    assert peak_among_many < peak_among_few + 10_000


def cost_of_heartbeats(*, others: int) -> tuple[int, int]:
    """How many calls some heartbeats and a goodbye make, and how many bytes they take meanwhile."""
    tracemalloc = pytest.importorskip("tracemalloc", reason="PyPy does not count allocations")
    consumers = ConsumerManager()
    for number in range(others):
        register(consumers, "g", object(), client_id=f"c{number}", subscriptions=[subscription("t")])
        register(consumers, f"g{number}", f"c{number}")
    member: Any = object()
    said = [subscription("t"), subscription("u", 10)]
    calls: list[object] = []
    gc.disable()  # who watches the collector (Hypothesis) is called by it
    tracemalloc.start()
    setprofile(lambda _frame, event, _what: calls.append(event))
    for _ in range(3):
        register(consumers, "g", member, client_id="me", subscriptions=said)
    consumers.forget_member(member)
    setprofile(None)
    gc.enable()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return len(calls), peak
