"""Where a producer's messages go while name servers are slow, away, or tell something else."""

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from rmqha.client.message import Message, MessageQueue
from rmqha.client.results import SendResult
from rmqha.client.topic_publish_infos import TopicPublishInfos
from rmqha.client.topic_routes import TopicPublishInfo, TopicRoutes
from rmqha.codec.codes import RequestCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.route import BrokerData, QueueData, TopicRouteData, encode_route
from rmqha.errors import NoRouteError, RemotingConnectError, RemotingError, RmqhaError
from tests.client.fake_broker import FakeBroker
from tests.client.test_retries import producing
from tests.fakes import MemoryNetwork


class FakeRoutes(TopicRoutes):
    """Tells a queue of the broker ``name``, or raises ``error``, after ``delay_s``."""

    def __init__(self) -> None:
        self.name, self.delay_s = "a", 0.0
        self.error: RmqhaError | None = None
        self.asked_at: list[float] = []

    async def find_publish_info(
        self, topic: str, *, default_queue_nums: int, may_make: bool = True
    ) -> TopicPublishInfo:
        self.asked_at.append(trio.current_time())
        name, error = self.name, self.error
        await trio.sleep(self.delay_s)
        if error is not None:
            raise error
        return TopicPublishInfo([(MessageQueue(topic, name, 0), name)], trio.current_time())


@pytest.fixture
def routes() -> FakeRoutes:
    return FakeRoutes()


@pytest.fixture
async def infos(routes: FakeRoutes, nursery: trio.Nursery, autojump_clock: MockClock) -> TopicPublishInfos:
    made = TopicPublishInfos(routes, nursery=nursery, default_queue_nums=4)
    await made.get("T")
    return made


async def used(infos: TopicPublishInfos) -> str:
    return (await infos.get("T")).queues[0][1]


async def test_who_sends_does_not_wait_for_a_slow_name_server(
    infos: TopicPublishInfos, routes: FakeRoutes, autojump_clock: MockClock
) -> None:
    routes.delay_s, routes.name = 2.5, "b"
    for _ in range(90):
        await trio.sleep(4)
        begun_at = trio.current_time()
        await infos.get("T")
        assert trio.current_time() == begun_at
    await trio.sleep(3)
    assert len(routes.asked_at) == 11, "once each time"
    assert await used(infos) == "b", "what was told is used"


@pytest.mark.parametrize("pause_s", [20, 31, 45, 59])
async def test_who_sends_seldom_does_not_go_to_a_former_master(
    pause_s: float, infos: TopicPublishInfos, routes: FakeRoutes, autojump_clock: MockClock
) -> None:
    """It was looked up behind the send, which went to where the topic had been for up to a minute."""
    await trio.sleep(10)
    assert await used(infos) == "a"
    routes.name = "b"
    await trio.sleep(21)
    for _ in range(3):
        assert await used(infos) == "b"
        await trio.sleep(pause_s)


async def test_who_sends_seldom_waits_for_no_name_server_that_is_slow(
    infos: TopicPublishInfos, routes: FakeRoutes, autojump_clock: MockClock
) -> None:
    routes.delay_s, routes.name = 2.5, "b"
    await trio.sleep(35)
    begun_at = trio.current_time()
    assert await used(infos) == "a"
    assert trio.current_time() <= begun_at + 0.5
    await trio.sleep(3)
    assert await used(infos) == "b"
    assert trio.current_time() <= begun_at + 3.5


async def test_while_one_look_is_under_way_no_other_begins(
    infos: TopicPublishInfos, routes: FakeRoutes, autojump_clock: MockClock
) -> None:
    routes.delay_s = 2.5
    await trio.sleep(29)
    await infos.get("T")
    await trio.sleep(2)
    for _ in range(20):
        await infos.get("T")
        await trio.sleep(0.1)
    assert len(routes.asked_at) == 2


@pytest.mark.parametrize("pause_s", [40, 100])
@pytest.mark.parametrize("delay_s", [0, 0.2, 2])
async def test_many_sends_after_a_pause_need_one_look(
    pause_s: float, delay_s: float, infos: TopicPublishInfos, routes: FakeRoutes, autojump_clock: MockClock
) -> None:
    """Each of a thousand asked the name servers."""
    await trio.sleep(pause_s)
    routes.delay_s, routes.name, used_by, asked = delay_s, "b", list[str](), len(routes.asked_at)

    async def send() -> None:
        used_by.append(await used(infos))

    async with trio.open_nursery() as nursery:
        for _ in range(1000):
            nursery.start_soon(send)
    assert len(routes.asked_at) == asked + 1
    assert used_by == ["a" if pause_s < 60 and delay_s > 1 else "b"] * 1000


@pytest.mark.parametrize("how", ["cancelled", "refused"])
async def test_who_waits_for_a_look_that_fails_looks_as_well(
    how: str, infos: TopicPublishInfos, routes: FakeRoutes, autojump_clock: MockClock
) -> None:
    await trio.sleep(100)
    routes.delay_s, used_by = 0.5, list[str]()
    if how == "refused":
        routes.error = NoRouteError("its permission is without w")

    async def send(time_s: float) -> None:
        with trio.move_on_after(time_s):
            try:
                used_by.append(await used(infos))
            except NoRouteError:
                used_by.append("refused")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send, 0.3)
        await trio.sleep(0.1)
        for _ in range(3):
            nursery.start_soon(send, 5)
        await trio.sleep(0.15)
        routes.name = "b"
    assert set(used_by) == {"refused" if how == "refused" else "b"}
    assert len(used_by) == 3


async def test_who_was_idle_for_long_looks_first(
    infos: TopicPublishInfos, routes: FakeRoutes, autojump_clock: MockClock
) -> None:
    routes.name = "b"
    await trio.sleep(61)
    assert await used(infos) == "b"


async def test_without_any_name_server_what_was_known_is_used(
    infos: TopicPublishInfos, routes: FakeRoutes, autojump_clock: MockClock
) -> None:
    """So do RocketMQ's producers; whether somebody sends all the time, sends seldom, or had a send fail."""
    routes.error = RemotingConnectError("10.0.0.9:9876", "refused")
    for pause_s in [10] * 20 + [3600, 31, 31]:
        await trio.sleep(pause_s)
        assert await used(infos) == "a"
    infos.forget("T")
    assert await used(infos) == "a"
    assert len(routes.asked_at) < 15, "the name servers are not asked by each send"
    routes.error, routes.name = None, "b"
    await trio.sleep(31)
    await infos.get("T")
    await trio.testing.wait_all_tasks_blocked()
    assert await used(infos) == "b"


async def test_who_has_less_time_than_a_name_server_takes_goes_on_all_the_same(
    infos: TopicPublishInfos, routes: FakeRoutes, autojump_clock: MockClock
) -> None:
    """Each send waited for as long as it might, and the next one began the same again."""
    routes.delay_s, routes.error = 3, RemotingConnectError("10.0.0.9:9876", "no answer")
    infos.forget("T")
    with pytest.raises(trio.TooSlowError), trio.fail_after(2):
        await infos.get("T")
    for _ in range(20):
        with trio.fail_after(2):
            assert await used(infos) == "a"
        await trio.sleep(20)
    routes.delay_s, routes.error, routes.name = 0, None, "b"
    infos.forget("T")
    with pytest.raises(trio.TooSlowError), trio.fail_after(0):
        await infos.get("T")
    await trio.sleep(0.01)
    assert await used(infos) == "b", "and the name servers are asked at once"


async def test_who_has_hardly_any_time_goes_on_as_well(
    infos: TopicPublishInfos, routes: FakeRoutes, autojump_clock: MockClock
) -> None:
    routes.delay_s, routes.name = 2.5, "b"
    await trio.sleep(35)
    with pytest.raises(trio.TooSlowError), trio.fail_after(0.1):
        await infos.get("T")
    with trio.fail_after(0.1):
        assert await used(infos) == "a"
    await trio.sleep(3)
    with trio.fail_after(0.1):
        assert await used(infos) == "b"


async def test_a_first_look_without_an_answer_fails(
    routes: FakeRoutes, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    routes.error = RemotingConnectError("10.0.0.9:9876", "refused")
    infos = TopicPublishInfos(routes, nursery=nursery, default_queue_nums=4)
    with pytest.raises(RemotingConnectError):
        await infos.get("T")


async def test_that_a_topic_may_not_be_sent_to_is_told_by_the_next_send(
    infos: TopicPublishInfos, routes: FakeRoutes, autojump_clock: MockClock
) -> None:
    routes.error = NoRouteError("topic T may not be sent to")
    for pause_s in (29, 2):
        await trio.sleep(pause_s)
        assert await used(infos) == "a"
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(NoRouteError):
        await infos.get("T")


async def test_that_no_master_is_known_for_a_while_is_no_reason(
    infos: TopicPublishInfos, routes: FakeRoutes, autojump_clock: MockClock
) -> None:
    routes.error = NoRouteError("no master takes messages for topic T now", retryable=True)
    for _ in range(4):
        await trio.sleep(31)
        assert await used(infos) == "a"
        await trio.testing.wait_all_tasks_blocked()


async def test_what_a_look_tells_is_not_used_once_its_broker_has_failed(
    infos: TopicPublishInfos, routes: FakeRoutes, autojump_clock: MockClock
) -> None:
    """It began before that, and may tell of the broker that failed."""
    routes.delay_s = 2.5
    await trio.sleep(31)
    await infos.get("T")
    await trio.sleep(1)
    infos.forget("T")
    routes.name = "b"
    assert await used(infos) == "b"
    await trio.sleep(10)
    assert await used(infos) == "b"


@pytest.mark.parametrize("pause_s", [1, 31, 45, 150])
@pytest.mark.parametrize("fails", [False, True])
async def test_a_name_server_that_begins_anew_has_no_other_broker_make_the_topic(
    pause_s: float, autojump_clock: MockClock, *, fails: bool
) -> None:
    """Others may register first: messages went there, and so did the topic. Java's clients keep what they know."""
    network, broker, name_server = MemoryNetwork(), FakeBroker(), FakeBroker(port=9876)
    other = FakeBroker("broker-b", port=10912)
    broker.topics["T"] = name_server.topics["T"] = 1
    name_server.addrs = {0: broker.address}
    async with producing(network, name_server.address) as (producer, nursery):
        for one in (broker, other, name_server):
            nursery.start_soon(one.run, network)
        await trio.testing.wait_all_tasks_blocked()
        assert (await producer.send(Message("T", b"x"))).is_ok
        name_server.topics, name_server.name, name_server.addrs = {}, other.name, {0: other.address}
        if fails:
            await broker.die()
            with pytest.raises(RemotingError):
                await producer.send(Message("T", b"x"), timeout_s=1)
            broker = FakeBroker()
            broker.topics["T"] = 1
            nursery.start_soon(broker.run, network)
        for _ in range(5):
            await trio.sleep(pause_s)
            assert (await producer.send(Message("T", b"x"))).queue.broker_name == "broker-a"
        assert (await producer.send(Message("new", b"x"))).queue.broker_name == "broker-b"
        assert "T" not in other.topics


async def test_nor_if_it_ends_before_the_next_send(
    infos: TopicPublishInfos, routes: FakeRoutes, autojump_clock: MockClock
) -> None:
    """What it tells would otherwise look like news for half a minute, though the broker failed since it was asked."""
    routes.delay_s = 2.5
    for pause_s in (29, 2):
        await trio.sleep(pause_s)
        await infos.get("T")
    await trio.sleep(1)
    infos.forget("T")
    routes.name = "b"
    await trio.sleep(10)
    assert await used(infos) == "b"


async def test_a_topic_that_never_was_is_made_by_who_can(autojump_clock: MockClock) -> None:
    """The only broker that was there at the first look has gone, before it made the topic."""
    network, name_server, other = MemoryNetwork(), FakeBroker(port=9876), FakeBroker("broker-b", port=10912)
    name_server.addrs = {0: "10.0.0.1:10911"}
    async with producing(network, name_server.address) as (producer, nursery):
        for one in (other, name_server):
            nursery.start_soon(one.run, network)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(RemotingError):
            await producer.send(Message("T", b"x"))
        name_server.name, name_server.addrs = other.name, {0: other.address}
        assert (await producer.send(Message("T", b"x"), retries=1)).queue.broker_name == "broker-b"


@pytest.mark.parametrize("answers", [True, False])
async def test_a_name_server_that_is_away_stops_no_producer(autojump_clock: MockClock, *, answers: bool) -> None:
    """The broker is restarted meanwhile, too: its address is all that is needed."""
    network, broker, name_server = MemoryNetwork(), FakeBroker(), FakeBroker(port=9876)
    broker.topics["T"] = name_server.topics["T"] = 1
    name_server.addrs = {0: broker.address}
    async with producing(network, name_server.address) as (producer, nursery):
        for one in (broker, name_server):
            nursery.start_soon(one.run, network)
        await trio.testing.wait_all_tasks_blocked()
        assert (await producer.send(Message("T", b"x"))).is_ok
        if not answers:
            await name_server.die()
        await broker.die()
        broker = FakeBroker()
        broker.topics["T"] = 1
        nursery.start_soon(broker.run, network)
        for _ in range(10):
            await trio.sleep(20)
            assert (await producer.send(Message("T", b"x"), retries=4)).is_ok


@pytest.mark.parametrize("timeout_s", [2, 3])
async def test_a_name_server_that_hangs_stops_no_producer_of_little_time(
    timeout_s: float, autojump_clock: MockClock
) -> None:
    network, broker, name_server = MemoryNetwork(), FakeBroker(), FakeBroker(port=9876)
    broker.topics["T"] = name_server.topics["T"] = 1
    name_server.addrs = {0: broker.address}
    async with producing(network, name_server.address) as (producer, nursery):
        for one in (broker, name_server):
            nursery.start_soon(one.run, network)
        await trio.testing.wait_all_tasks_blocked()
        assert (await producer.send(Message("T", b"x"))).is_ok
        name_server.register(RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda *_: None)
        await broker.die()
        for _ in range(2):
            with pytest.raises(RemotingError):
                await producer.send(Message("T", b"x"), timeout_s=timeout_s)
        broker = FakeBroker()
        broker.topics["T"] = 1
        nursery.start_soon(broker.run, network)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(10):
            assert (await producer.send(Message("T", b"x"), timeout_s=timeout_s)).is_ok
            await trio.sleep(20)


@pytest.mark.parametrize("dead", ["a", "b"])
async def test_a_broker_that_is_dead_and_still_listed_leaves_the_others_their_share(
    dead: str, autojump_clock: MockClock
) -> None:
    """Each send that failed had the next one begin at the first broker's first queue again."""
    network, name_server, alive = MemoryNetwork(), FakeBroker(port=9876), FakeBroker(port=10912)
    addresses = {name: "10.0.0.1:10911" if name == dead else alive.address for name in ("a", "b")}
    route = TopicRouteData(
        tuple(BrokerData("c", name, {0: address}) for name, address in addresses.items()),
        tuple(QueueData(name, 4, 4, 6) for name in addresses),
    )
    name_server.register(
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        lambda _, request: RemotingCommand(0, body=encode_route(route, version=request.version)),
    )
    async with producing(network, name_server.address) as (producer, nursery):
        for one in (alive, name_server):
            nursery.start_soon(one.run, network)
        await trio.testing.wait_all_tasks_blocked()
        outcomes = [outcome async for outcome in producer.send_many([Message("T", b"x")] * 40)]
    assert 16 <= sum(isinstance(outcome, SendResult) for outcome in outcomes) <= 24
