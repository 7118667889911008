"""What accounts may of what is decided later than a request comes: transactions, clientIds, and pulls that are held."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.acl.asker import Asker
from rmqha.broker.acl.client_ids import ClientIds
from rmqha.broker.acl.needed_permissions import to_send
from rmqha.codec.acl import SessionCredentials
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.heartbeat import ConsumerData, HeartbeatData, SubscriptionData, encode_heartbeat
from rmqha.codec.remoting import RemotingCommand
from tests.broker.acl.files import account, home_with
from tests.broker.acl.test_acl_broker import EXCEPTION, code_of
from tests.broker.machines import Machine, ask, pull_request, send_request
from tests.broker.processors.test_reply_message_processor import REPLIES, reply, take
from tests.broker.producers import COMMIT, ROLLBACK, producer_of, seen
from tests.reachable import count_entries
from tests.sim.sim_net import SimNet

SENDS = account("senders", "topicPerms: [t=PUB]")
ACCOUNTS = "accounts:\n" + "".join(
    [
        SENDS,
        account("senders2", "topicPerms: [t=PUB]"),
        account("outsider", "defaultTopicPerm: PUB|SUB", "defaultGroupPerm: SUB", "topicPerms: [t=SUB]"),
        account("consumer", "topicPerms: [t=SUB]", "groupPerms: [consumers=SUB]"),
        account("consumer2", "topicPerms: [t=SUB]", "groupPerms: [consumers=SUB]"),
        account("trusted", "whiteRemoteAddress: 10.9.9.*"),
        account("silenced", f"topicPerms: [{REPLIES}=DENY]"),
    ]
)
SENDER, SENDER2, OUTSIDER, CONSUMER, CONSUMER2, TRUSTED, SILENCED = (
    SessionCredentials(name, "12345678")
    for name in ("senders", "senders2", "outsider", "consumer", "consumer2", "trusted", "silenced")
)
HOSTS = "10.9.9.1", "10.9.8.1"
"""From which of them the account ``trusted`` may all."""
TIMES = {"transactionCheckInterval": "4000", "transactionTimeOut": "3000"}


def machine(home: str) -> Machine:
    return Machine(SimNet(), "10.0.0.1", {"aclEnable": "true", "rocketmqHome": home} | TIMES)


@pytest.fixture
def one(tmp_path: Path) -> Machine:
    return machine(home_with(tmp_path, ACCOUNTS))


@pytest.fixture
def files_read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Virtual time does not wait for threads."""

    async def run_here(function: Callable[..., Any], *args: Any, **_: Any) -> Any:
        return function(*args)

    monkeypatch.setattr(trio.to_thread, "run_sync", run_here)


def is_refused(answer: RemotingCommand | None) -> bool:
    assert answer is not None
    return answer.code == ResponseCode.SYSTEM_ERROR and (answer.remark or "").startswith(EXCEPTION)


async def test_only_who_may_send_to_its_topic_is_asked_about_a_half_message(
    one: Machine, autojump_clock: MockClock
) -> None:
    """Each account may say that it is of any group; the question shows the message."""
    async with one.broker() as broker, AsyncExitStack() as stack:
        outsiders = [await stack.enter_async_context(producer_of(one, credentials=OUTSIDER)) for _ in range(5)]
        for number, outsider in enumerate(outsiders):
            outsider.client_id = f"o@{number}"
            await outsider.join()
        async with producer_of(one, credentials=SENDER) as leaving:
            await leaving.prepare(b"money")
        await trio.sleep(20)
        sender = await stack.enter_async_context(producer_of(one, credentials=SENDER2))
        await sender.join()
        half, message = await sender.wait_asked(1)
        assert message.body == b"money"
        await sender.end(half, COMMIT)
        assert [one.asked for one in outsiders] == [[]] * 5
        assert len(await seen(broker)) == 1


@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
async def test_only_who_may_send_to_its_topic_ends_a_transaction(
    one: Machine, how: int, autojump_clock: MockClock
) -> None:
    async with one.broker() as broker, producer_of(one, credentials=SENDER) as sender:
        half = await sender.prepare(b"money")
        async with producer_of(one, credentials=OUTSIDER) as outsider:
            assert is_refused(await outsider.end(half, how))
        assert await seen(broker) == []
        answer = await sender.end(half, COMMIT)
        assert answer is not None
        assert answer.code == ResponseCode.SUCCESS
        assert len(await seen(broker)) == 1


@pytest.mark.usefixtures("files_read_here")
async def test_an_account_that_is_gone_is_not_asked(tmp_path: Path, autojump_clock: MockClock) -> None:
    one = machine(home_with(tmp_path, ACCOUNTS))
    async with one.broker(), producer_of(one, credentials=SENDER) as sender:
        await sender.join()
        await sender.prepare(b"money")
        home_with(tmp_path, ACCOUNTS.replace(SENDS, ""))
        await trio.sleep(20)
        assert sender.asked == []
        assert is_refused(await sender.beat())


async def test_transactions_of_white_addresses_are_nobody_elses(tmp_path: Path, autojump_clock: MockClock) -> None:
    """They need not sign; what they end, and are asked, goes by their address."""
    one = machine(home_with(tmp_path, "globalWhiteRemoteAddresses: ['10.9.8.1']\n" + ACCOUNTS))
    async with one.broker() as broker, producer_of(one) as white, producer_of(one, credentials=OUTSIDER) as outsider:
        outsider.client_id = "other"
        await outsider.join()
        await white.join()
        await white.prepare(b"money")
        half, _ = await white.wait_asked(1)
        assert is_refused(await outsider.end(half, COMMIT))
        await white.end(half, COMMIT)
        assert outsider.asked == []
        assert len(await seen(broker)) == 1


async def test_replies_are_for_all_but_those_whose_list_says_else(one: Machine, autojump_clock: MockClock) -> None:
    async with one.broker(), producer_of(one, credentials=SENDER) as asker, trio.open_nursery() as nursery:
        await asker.join()
        async with producer_of(one, credentials=SILENCED) as silenced, producer_of(one, credentials=SENDER2) as replier:
            assert is_refused(await silenced.ask(reply(b"42")))
            assert asker.asked == []
            nursery.start_soon(take, asker)
            assert (await replier.ask(reply(b"42"))).code == ResponseCode.SUCCESS
            sent = await replier.ask(send_request(b"x", topic=REPLIES))
            assert is_refused(sent), "a message is no reply"


async def test_nobody_gets_the_replies_to_another_accounts_client(one: Machine, autojump_clock: MockClock) -> None:
    async with one.broker(), producer_of(one, credentials=SENDER) as asker:
        await asker.join()
        async with producer_of(one, credentials=OUTSIDER) as thief, trio.open_nursery() as nursery:
            answer = await thief.beat()
            assert is_refused(answer)
            assert "clientId 10.9.9.9@1 is that of a client at 10.9.8." in (answer.remark or "")
            nursery.start_soon(take, asker)
            assert (await thief.ask(reply(b"42"))).code == ResponseCode.SUCCESS
            assert (thief.asked, len(asker.asked)) == ([], 1)
        async with producer_of(one, credentials=SENDER) as again:
            await again.join()
    async with one.broker(), producer_of(one, credentials=OUTSIDER) as other:
        await other.join()


def consuming(client_id: str) -> RemotingCommand:
    group = ConsumerData("consumers", subscription_data_set=(SubscriptionData("t"),))
    return RemotingCommand(RequestCode.HEART_BEAT, body=encode_heartbeat(HeartbeatData(client_id, (), (group,))))


def lock_request(code: RequestCode, client_id: str) -> RemotingCommand:
    queue = '{"brokerName":"broker-a","queueId":0,"topic":"t"}'
    body = f'{{"clientId":"{client_id}","consumerGroup":"consumers","mqSet":[{queue}]}}'
    return RemotingCommand(code, body=body.encode())


async def test_nobody_consumes_or_locks_in_the_name_of_another_accounts_client(
    one: Machine, autojump_clock: MockClock
) -> None:
    async with one.broker() as broker, one.client() as second:
        async with one.client() as first:
            assert await code_of(first, consuming("c@1"), CONSUMER) == ResponseCode.SUCCESS
            assert await code_of(first, lock_request(RequestCode.LOCK_BATCH_MQ, "c@1"), CONSUMER) == 0
            assert await code_of(second, consuming("c@1"), CONSUMER2) == ResponseCode.SYSTEM_ERROR
            for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
                assert await code_of(second, lock_request(code, "c@1"), CONSUMER2) == ResponseCode.SYSTEM_ERROR
            assert await code_of(second, consuming("c@2"), CONSUMER2) == ResponseCode.SUCCESS
            group = broker.consumers.find_group("consumers")
            assert group is not None
            assert [member.client_id for member in group.members.values()] == ["c@1", "c@2"]
            assert await code_of(first, lock_request(RequestCode.UNLOCK_BATCH_MQ, "c@1"), CONSUMER) == 0
        with trio.fail_after(60):
            while len(group.members) > 1:  # noqa: ASYNC110 - another task sees that a client has left
                await trio.sleep(0.1)
        assert await code_of(second, consuming("c@1"), CONSUMER2) == ResponseCode.SUCCESS


def test_a_client_id_is_free_when_its_account_or_its_connections_are_gone() -> None:
    accounts = {"a", "b"}
    ids = ClientIds(accounts.__contains__)
    a, b = Asker("a", "1"), Asker("b", "2")
    connections: list[Any] = [object() for _ in range(3)]
    other: Any = object()
    ids.hold("x", connections[0], a)
    ids.hold("x", connections[1], a)
    assert (ids.find_holder("x", other, a), ids.find_holder("x", other, b), ids.find_holder("y", other, b)) == (
        None,
        a,
        None,
    )
    ids.forget(connections[0])
    assert ids.find_holder("x", other, b) == a
    assert ids.find_holder("x", connections[1], b) is None, "what a connection is signed for may change"
    ids.hold("y", connections[1], a)
    assert ids.find_holder("x", other, b) is None, "a connection has one at a time"
    accounts.remove("a")
    assert ids.find_holder("y", other, b) is None
    ids.hold("y", connections[2], b)
    accounts.add("c")
    assert ids.find_holder("y", other, Asker("c", "3")) == b
    for connection in connections * 2:
        ids.forget(connection)
    assert count_entries(ids) == count_entries(ClientIds(accounts.__contains__))


def test_a_client_id_of_a_white_address_is_no_accounts() -> None:
    ids = ClientIds({"a"}.__contains__)
    unsigned = Asker("", "10.0.0.1")
    connection: Any = object()
    other: Any = object()
    ids.hold("x", connection, unsigned)
    assert ids.find_holder("x", other, Asker("a", "2")) == unsigned


@pytest.mark.usefixtures("files_read_here")
async def test_held_pulls_of_an_account_that_is_gone_end(tmp_path: Path, autojump_clock: MockClock) -> None:
    one = machine(home_with(tmp_path, ACCOUNTS))
    async with one.broker(), one.client() as gone, one.client() as stays, one.client() as sender:
        assert await code_of(sender, send_request(b"x"), SENDER) == ResponseCode.SUCCESS
        answers: dict[str, tuple[float, RemotingCommand]] = {}

        async def pull(name: str, client: Any, credentials: SessionCredentials) -> None:
            request = pull_request(1, suspend_ms=50_000)
            credentials.sign(request)
            answer = await ask(client, request)
            answers[name] = trio.current_time(), answer

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pull, "gone", gone, CONSUMER)
            nursery.start_soon(pull, "stays", stays, CONSUMER2)
            await trio.sleep(5)
            assert answers == {}
            begun_at = trio.current_time()
            text = ACCOUNTS.replace("accessKey: consumer\n", "accessKey: consumer-before\n")
            home_with(tmp_path, text)
        assert is_refused(answers["gone"][1])
        assert answers["stays"][1].code == ResponseCode.PULL_NOT_FOUND, "it asks again"
        assert max(at for at, _ in answers.values()) - begun_at < 5


@pytest.mark.usefixtures("files_read_here")
async def test_a_message_that_comes_in_between_is_not_for_an_account_that_is_gone(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Arrival has the held pull go on, before all are ended."""
    one = machine(home_with(tmp_path, ACCOUNTS))
    async with one.broker() as broker, one.client() as client, one.client() as sender:
        answers: list[RemotingCommand] = []

        async def pull() -> None:
            request = pull_request(0, suspend_ms=50_000)
            CONSUMER.sign(request)
            answers.append(await ask(client, request))

        assert await code_of(sender, send_request(b"x", queue_id=1), SENDER) == ResponseCode.SUCCESS
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pull)
            await trio.sleep(1)
            home_with(tmp_path, ACCOUNTS.replace("topicPerms: [t=SUB]", "topicPerms: [t=DENY]"))
            permissions = broker.access.permissions
            assert permissions is not None
            while not permissions.look_again():
                pass
            assert await code_of(sender, send_request(b"x"), SENDER) == ResponseCode.SUCCESS
        assert is_refused(answers[0])


async def test_an_account_that_may_all_from_where_it_asks_may_it_later_as_well(
    one: Machine, autojump_clock: MockClock
) -> None:
    """It has no permissions, and needs none there."""
    async with one.broker() as broker, one.client() as client, one.client() as sender:
        assert await code_of(sender, send_request(b"x", queue_id=1), TRUSTED) == ResponseCode.SUCCESS
        answers: list[RemotingCommand] = []

        async def pull() -> None:
            request = pull_request(0, suspend_ms=50_000)
            TRUSTED.sign(request)
            answers.append(await ask(client, request))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pull)
            await trio.sleep(1)
            assert await code_of(sender, send_request(b"x"), TRUSTED) == ResponseCode.SUCCESS
        assert answers[0].code == ResponseCode.SUCCESS
        assert [bool(broker.access.why_not(Asker("trusted", host), to_send("t"))) for host in HOSTS] == [False, True]
