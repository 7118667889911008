"""Requests whose answers take a while are tasks: few of one client, bounded of all, and none is forgotten."""

from collections import Counter
from itertools import count

import pytest
import trio

from rmqha.broker.processors import reply_message_processor
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupConfig
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.frame_decoder import FrameDecoder
from rmqha.codec.remoting import RemotingCommand
from rmqha.memory import new_buffer
from rmqha.remoting import answers_in_turns
from rmqha.remoting.answers_in_turns import AnswersInTurns
from rmqha.remoting.client import RemotingClient
from rmqha.replication.role import RoleKind
from tests.broker.machines import Machine, ask, pull_request, send_request
from tests.broker.processors.test_reply_message_processor import reply
from tests.broker.producers import producer_of
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_net import SimNet

ASKED = 400
TASKS_MAX = 100
FIELDS = {
    **send_request(b"").ext_fields,
    **pull_request(0).ext_fields,
    "key": "k",
    "maxNum": "1",
    "beginTimestamp": "0",
    "endTimestamp": "1",
    "offset": "0",
    "start": "",
    "before": "0",
    "groupName": "g",
    "removeOffset": "true",
    "group": "g",
    "clientId": "c",
    "clientAddr": "",
    "timestamp": "0",
}


class Tasks(trio.abc.Instrument):
    """How many there are."""

    def __init__(self) -> None:
        self.living = self.most = 0

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self.living += 1
        self.most = max(self.most, self.living)

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        self.living -= 1


async def codes_of_answers(machine: Machine, *requests: RemotingCommand) -> Counter[int]:
    """To what one client asks without waiting for an answer."""
    network, decoder, buffer = machine.net.host("10.9.7.1").mount(), FrameDecoder(), new_buffer(65536)
    stream = await network.connect(machine.address, 10911, timeout_s=5)
    for opaque, request in enumerate(requests):
        request.opaque = opaque
    codes = Counter[int]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.send_all, b"".join(request.encode() for request in requests))
        with trio.fail_after(60):
            while codes.total() < len(requests) and (taken := await stream.receive_into(decoder.space(buffer))):
                codes.update(answer.code for answer in decoder.on_received(buffer, taken))
    stream.close()
    return codes


@pytest.mark.parametrize("code", [code for code in RequestCode if code is not RequestCode.PULL_MESSAGE])
async def test_whatever_a_client_asks_again_and_again_is_few_tasks(
    code: RequestCode, virtual_clock: VirtualClock
) -> None:
    """Thirty thousand queries by key were as many tasks: when their client left, nobody was served for four seconds."""
    machine, tasks = Machine(SimNet(), "10.0.0.1"), Tasks()
    async with machine.broker() as broker, machine.client() as honest:
        await ask(honest, send_request(b"x"))
        body = b'{"groupName":"g"}' if code == RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP else b"{}"
        trio.lowlevel.add_instrument(tasks)
        codes = await codes_of_answers(
            machine, *(RemotingCommand(code, ext_fields=dict(FIELDS), body=body) for _ in range(ASKED))
        )
        trio.lowlevel.remove_instrument(tasks)
        assert (codes.total(), tasks.most <= TASKS_MAX) == (ASKED, True), (codes, tasks.most)
        await trio.sleep(1)
        assert broker.server is not None
        assert broker.server.capacity.used_bytes == 0


class Client:
    """A connection that lets tasks begin when the test says so."""

    def __init__(self, host: str) -> None:
        self.peer, self.takes_answers = f"{host}:1", True
        self.codes: list[int] = []
        self.waiting: list[tuple[object, ...]] = []

    def start_soon(self, *task: object) -> None:
        self.waiting.append(task)

    def let_go(self, request: RemotingCommand) -> RemotingCommand:
        return request

    def respond(self, _request: RemotingCommand, code: int, *, remark: str) -> None:
        assert remark
        self.codes.append(code)


async def test_no_host_takes_the_places_of_all_that_wait_for_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers_in_turns, "WAITING_MAX", 40)
    answers = AnswersInTurns()
    clients = [Client(host) for host in [*["10.0.0.1"] * 5, *["10.0.0.2"] * 5]]
    for client in clients:
        for _ in range(20):
            answers.answer(client, RemotingCommand(1), make_nothing)  # type: ignore[arg-type]
    waiting = [len(client.waiting) for client in clients]
    assert waiting == [16, 4, 0, 0, 0, 10, 0, 0, 0, 0]
    assert [len(client.codes) for client in clients] == [20 - number for number in waiting]
    assert {code for client in clients for code in client.codes} == {ResponseCode.SYSTEM_BUSY}


async def test_an_answer_gives_back_its_place(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    monkeypatch.setattr(answers_in_turns, "WAITING_MAX", 4)
    request = RemotingCommand(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, ext_fields={"topic": "t"})
    async with machine.broker(), machine.client() as client:
        for _ in range(10):
            assert (await ask(client, request)).code == ResponseCode.SUCCESS


async def test_who_waits_until_messages_can_be_seen_keeps_nobody_from_a_turn(virtual_clock: VirtualClock) -> None:
    """While a disk hung each of them waited for half a second, one behind the other."""
    machine, begun_at = Machine(SimNet(), "10.0.0.1"), 0.0
    async with machine.broker() as broker, machine.client() as client:
        await ask(client, send_request(b"x"))
        begun_at = trio.current_time()
        machine.disk.faults.hung_until = begun_at + 60
        async with trio.open_nursery() as nursery:
            nursery.start_soon(codes_of_answers, machine, send_request(b"y"))
            await trio.sleep(0.1)
            assert broker.store.reput_from_offset < broker.store.max_offset
            asked = RequestCode.GET_TOPIC_STATS_INFO
            codes = await codes_of_answers(machine, *(RemotingCommand(asked, ext_fields=FIELDS) for _ in range(16)))
            assert (codes, trio.current_time() - begun_at < 0.8) == ({ResponseCode.SUCCESS: 16}, True)
            machine.disk.faults.hung_until = 0
            nursery.cancel_scope.cancel()


async def make_nothing() -> RemotingCommand:
    return RemotingCommand(0)


async def test_replies_that_clients_do_not_take_are_bounded_and_their_places_are_given_back(
    monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    monkeypatch.setattr(reply_message_processor, "REPLIES_MAX", 20)
    machine, opaques = Machine(SimNet(), "10.0.0.1"), count()
    async with machine.broker(), producer_of(machine) as silent:
        await silent.join()
        for _ in range(2):
            codes = await codes_of_answers(machine, *(reply(b"%d" % next(opaques)) for _ in range(50)))
            assert codes == {ResponseCode.SYSTEM_BUSY: 40, ResponseCode.SYSTEM_ERROR: 10}


NEW_TOPIC = {
    "topic": "new", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
}  # fmt: skip
CHANGES = [
    RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields=NEW_TOPIC),
    RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields={"topic": "t"}),
    RemotingCommand(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName":"new"}'),
    RemotingCommand(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext_fields={"groupName": "g", "removeOffset": "true"}),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: str(change.code))
async def test_what_cannot_be_saved_for_a_while_is_said_in_time_and_keeps_nobody_waiting(
    change: RemotingCommand, virtual_clock: VirtualClock
) -> None:
    """Behind a disk that hung, all that mqadmin and the exporter asked for had no answers."""
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker() as broker, machine.client() as operator, machine.client() as exporter:
        await ask(exporter, send_request(b"x"))
        broker.groups.update(SubscriptionGroupConfig("g"))
        begun_at, answers = trio.current_time(), list[tuple[int, float]]()
        machine.disk.faults.hung_until = begun_at + 60

        async def order() -> None:
            request = RemotingCommand(change.code, ext_fields=dict(change.ext_fields), body=change.body)
            answer = await ask(operator, request)
            assert "not be saved yet" in (answer.remark or "") or "not saved yet" in (answer.remark or "")
            answers.append((answer.code, trio.current_time() - begun_at))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(order)
            await trio.sleep(0.1)
            for code in (RequestCode.GET_CONSUME_STATS, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO):
                request = RemotingCommand(code, ext_fields={"consumerGroup": "g", "topic": "t"})
                assert (await ask(exporter, request)).code == ResponseCode.SUCCESS
            assert trio.current_time() - begun_at < 1, "half a second for what is not flushed yet"
        assert {code for code, _ in answers} == {ResponseCode.SYSTEM_ERROR}
        assert max(when for _, when in answers) < 5, "mqadmin waits no longer"


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: str(change.code))
async def test_who_is_no_master_any_more_when_its_turn_comes_changes_nothing(
    change: RemotingCommand, monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    machine, go_on = Machine(SimNet(), "10.0.0.1"), trio.Event()

    async def forget(_group: str) -> None:
        await go_on.wait()

    async with machine.broker() as broker, machine.client() as first, machine.client() as client:
        await ask(client, send_request(b"x"))
        broker.groups.update(SubscriptionGroupConfig("g"))
        monkeypatch.setattr(broker.offsets, "remove_offset_in_turns", forget)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, first, RemotingCommand(CHANGES[3].code, ext_fields=dict(CHANGES[3].ext_fields)))
            await trio.sleep(0.1)
            broker.groups.update(SubscriptionGroupConfig("g"))
            versions = broker.topics.data_version, broker.groups.data_version
            request = RemotingCommand(change.code, ext_fields=dict(change.ext_fields), body=change.body)
            nursery.start_soon(refused, client, request)
            await trio.sleep(0.1)
            broker.role.become(RoleKind.SLAVE, master="10.0.0.2:10911", term=1)
            go_on.set()
        assert (broker.topics.data_version, broker.groups.data_version) == versions
        broker.role.become(RoleKind.MASTER, term=2)


@pytest.mark.parametrize("topic", ["t", ""])
async def test_who_is_no_master_any_more_sets_no_group_s_places_by_another_s(
    topic: str, monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    """They were answered SUCCESS, and the next master never had them."""
    machine, go_on = Machine(SimNet(), "10.0.0.1"), trio.Event()

    async def topics_of(_group: str) -> list[str]:
        await go_on.wait()
        return ["t"]

    async with machine.broker() as broker, machine.client() as client:
        await ask(client, send_request(b"x"))
        broker.offsets.commit_offset("h", "t", 0, offset=1)
        monkeypatch.setattr(broker.offsets, "topics_of_in_turns", topics_of)
        async with trio.open_nursery() as nursery:
            for one in ("", topic):
                fields = {"srcGroup": "h", "destGroup": "k", "topic": one}
                nursery.start_soon(refused, client, RemotingCommand(RequestCode.CLONE_GROUP_OFFSET, ext_fields=fields))
                await trio.sleep(0.1)
            broker.role.become(RoleKind.SLAVE, master="10.0.0.2:10911", term=1)
            go_on.set()
        assert broker.offsets.query_offset("k", "t", 0) is None
        broker.role.become(RoleKind.MASTER, term=2)


async def refused(client: RemotingClient, request: RemotingCommand) -> None:
    answer = await ask(client, request)
    assert (answer.code, "slave broker" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
