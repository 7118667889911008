"""A broker with aclEnable: who may do what, whatever way a request takes."""

from pathlib import Path
from typing import cast

import pytest
import trio
import trio.lowlevel
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.broker.acl.plain_access_validator import PlainAccessValidator
from rmqha.broker.acl.plain_permission_manager import PlainPermissionManager
from rmqha.client import ConsumerOptions, Message, MQBrokerError, SendStatus, open_consumer, open_producer
from rmqha.codec.acl import SIGNATURE, SessionCredentials
from rmqha.codec.batch import BatchEntry, encode_batch
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.heartbeat import ConsumerData, HeartbeatData, SubscriptionData, encode_heartbeat
from rmqha.codec.record.message import StoredMessage, decode_message
from rmqha.codec.remoting import RemotingCommand, SerializeType, decode_ext_fields, encode_ext_fields
from rmqha.errors import ConfigError, RemotingSendRequestError
from rmqha.remoting.client import RemotingClient
from rmqha.remoting.connection import Connection
from tests.broker.acl.files import account, home_with
from tests.broker.machines import Machine, ask, pull_request, send_request
from tests.sim.sim_net import SimNet

ACCOUNTS = "accounts:\n" + "".join(
    [
        account("producer", "topicPerms: [t=PUB]"),
        account("consumer", "topicPerms: [t=SUB]", "groupPerms: [consumers=SUB]"),
        account("administrator", "admin: true"),
        account("neighbour", "whiteRemoteAddress: 10.9.9.1"),
    ]
)
WHITE = "globalWhiteRemoteAddresses: [10.9.9.1]\n"
PRODUCER, CONSUMER, ADMIN, NEIGHBOUR, STRANGER = (
    SessionCredentials(name, "12345678") for name in ("producer", "consumer", "administrator", "neighbour", "stranger")
)
FORGER = SessionCredentials("producer", "87654321")
EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "


@pytest.fixture
def home(tmp_path: Path) -> str:
    return home_with(tmp_path, ACCOUNTS)


def machine(home: str, *, address: str = "10.0.0.1", net: SimNet | None = None, **settings: str) -> Machine:
    return Machine(net or SimNet(), address, {"aclEnable": "true", "rocketmqHome": home} | settings)


async def code_of(client: RemotingClient, request: RemotingCommand, credentials: SessionCredentials | None) -> int:
    """The code of the answer; a refusal is one as RocketMQ's clients know it."""
    if credentials is not None:
        credentials.sign(request)
    answer = await ask(client, request)
    if answer.code == ResponseCode.SYSTEM_ERROR:
        assert (answer.remark or "").startswith(EXCEPTION), answer.remark
    return answer.code


BATCH = encode_batch([BatchEntry(0, b"x", b"")])


@pytest.mark.parametrize("batch", [False, True])
async def test_a_send_needs_the_right_key_and_the_permission(home: str, *, batch: bool) -> None:
    one = machine(home)
    async with one.broker(), one.client() as client:
        for topic in ("t", "u"):
            for credentials in (None, STRANGER, FORGER, CONSUMER, PRODUCER):
                code = await code_of(client, send_request(BATCH, batch=batch, topic=topic), credentials)
                granted = credentials is PRODUCER and topic == "t"
                assert code == (ResponseCode.SUCCESS if granted else ResponseCode.SYSTEM_ERROR)


async def test_refused_sends_reach_no_log(home: str) -> None:
    one = machine(home)
    async with one.broker() as broker, one.client() as client:
        for credentials in (None, STRANGER, FORGER, CONSUMER):
            await code_of(client, send_request(b"x"), credentials)
        assert broker.store.max_offset == 0
        assert broker.fence.bugs == 0


async def test_a_request_seen_on_the_wire_cannot_be_made_another(home: str) -> None:
    one = machine(home)
    async with one.broker(), one.client() as client:
        request = send_request(b"x")
        PRODUCER.sign(request)
        stolen = request.ext_fields[SIGNATURE]
        for changed in (send_request(b"y"), send_request(b"x", topic="u"), send_request(b"x", queue_id=1)):
            changed.ext_fields.update({"AccessKey": "producer", SIGNATURE: stolen})
            assert await code_of(client, changed, None) == ResponseCode.SYSTEM_ERROR


async def test_a_field_that_stands_twice_slips_no_other_topic_through(home: str) -> None:
    """Headers of sends are read in several ways; what is checked, the last of equal names, is what is stored."""
    one = machine(home)
    async with one.broker() as broker, one.client() as client:
        for _ in range(3):  # it learns how headers of this kind are written
            assert await code_of(client, send_request(b"x"), PRODUCER) == ResponseCode.SUCCESS
        for first, last in (("u", "t"), ("t", "u"), ("u", "t")):
            signed = send_request(b"x", topic=last)
            PRODUCER.sign(signed)
            raw = encode_ext_fields({"b": first}) + encode_ext_fields(signed.ext_fields)
            doubled = RemotingCommand(signed.code, body=b"x", serialize=SerializeType.ROCKETMQ, ext_raw=raw)
            expected = ResponseCode.SUCCESS if last == "t" else ResponseCode.SYSTEM_ERROR
            assert await code_of(client, doubled, None) == expected
        assert broker.topics.select("u") is None


def test_what_goes_on_has_no_other_header_than_was_looked_at(home: str) -> None:
    class FromAfar:
        peer = "10.9.9.8:1"

    signed, connection = send_request(b"x"), cast(Connection, FromAfar())
    PRODUCER.sign(signed)
    raw = encode_ext_fields(signed.ext_fields)
    came = RemotingCommand(signed.code, body=b"x", serialize=SerializeType.ROCKETMQ, ext_raw=raw)
    validator = PlainAccessValidator(PlainPermissionManager(home), cluster="DefaultCluster")
    admitted = validator.validate(connection, came).command
    assert (admitted.ext_raw, admitted.ext_fields) == (None, decode_ext_fields(raw))


async def test_a_pull_needs_topic_and_group(home: str) -> None:
    one = machine(home)
    async with one.broker(), one.client() as client:
        assert await code_of(client, send_request(b"x"), PRODUCER) == ResponseCode.SUCCESS
        outcomes = [
            await code_of(client, pull_request(0, suspend_ms=5000), who) for who in (None, PRODUCER, FORGER, CONSUMER)
        ]
        assert outcomes == [*[ResponseCode.SYSTEM_ERROR] * 3, ResponseCode.SUCCESS]
        assert await code_of(client, pull_request(0, topic="u"), CONSUMER) == ResponseCode.SYSTEM_ERROR


async def test_nothing_is_sent_back_that_the_sender_may_not_consume(home: str) -> None:
    """It would come to read by its offset in the log what is in other topics."""
    one = machine(home)
    async with one.broker(), one.client() as client:
        assert await code_of(client, send_request(b"secret", topic="u"), ADMIN) == ResponseCode.SUCCESS
        assert await code_of(client, send_request(b"x"), PRODUCER) == ResponseCode.SUCCESS
        secret, mine = [(await signed_pull(client, topic, ADMIN))[0].physical_offset for topic in ("u", "t")]
        subscription = ConsumerData("consumers", subscription_data_set=(SubscriptionData("u"),))
        body = encode_heartbeat(HeartbeatData("c", (), (subscription,)))
        assert await code_of(client, RemotingCommand(RequestCode.HEART_BEAT, body=body), ADMIN) == 0, "another member"
        refusals = list[str | None]()
        for offset in (secret, secret + 1):
            for said in ("t", ""):
                request = send_back(offset, said)
                CONSUMER.sign(request)
                answer = await ask(client, request)
                assert answer.code == ResponseCode.SYSTEM_ERROR
                refusals.append((answer.remark or "").replace(str(offset), "OFFSET"))
        assert set(refusals) == {"look message by offset failed, OFFSET: it is deleted, or none begins there"}
        codes = [await code_of(client, send_back(mine, said), CONSUMER) for said in ("u", "t", "")]
        assert codes == [ResponseCode.SYSTEM_ERROR, 0, 0], "C++ clients do not say from which topic"
        with trio.fail_after(60):
            while not (again := await signed_pull(client, "%RETRY%consumers", CONSUMER)):  # noqa: ASYNC110 - a broker
                await trio.sleep(1)
        assert [(message.body, message.reconsume_times) for message in again] == [(b"x", 1)]
        once_more = send_back(again[0].physical_offset, "t")
        assert await code_of(client, once_more, CONSUMER) == ResponseCode.SUCCESS


def send_back(offset: int, origin_topic: str) -> RemotingCommand:
    fields = {"offset": str(offset), "group": "consumers", "delayLevel": "1", "originTopic": origin_topic}
    return RemotingCommand(RequestCode.CONSUMER_SEND_MSG_BACK, ext_fields=fields)


async def signed_pull(client: RemotingClient, topic: str, credentials: SessionCredentials) -> list[StoredMessage]:
    """The first message of a topic's first queue, if there is one."""
    request = pull_request(0, topic=topic, suspend_ms=5000, max_num=1)
    credentials.sign(request)
    answer = await ask(client, request)
    return [decode_message(answer.body)] if answer.code == ResponseCode.SUCCESS else []


async def test_topics_are_made_by_administrators(home: str) -> None:
    one = machine(home)
    fields = {"topic": "new", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    fields |= {"topicFilterType": "SINGLE_TAG", "order": "false"}
    async with one.broker(), one.client() as client:
        for who, code in ((PRODUCER, ResponseCode.SYSTEM_ERROR), (ADMIN, ResponseCode.SUCCESS)):
            request = RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields=dict(fields))
            assert await code_of(client, request, who) == code


async def test_nothing_is_answered_unsigned_not_even_what_nobody_knows(home: str) -> None:
    one = machine(home)
    async with one.broker(), one.client() as client:
        codes = {4711, *RequestCode} - {RequestCode.QUERY_CONSUMER_OFFSET}
        assert {await code_of(client, RemotingCommand(code), None) for code in codes} == {ResponseCode.SYSTEM_ERROR}
        with pytest.raises(RemotingSendRequestError):  # see rmqha/remoting/fence.py
            await ask(client, RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET))


async def test_from_a_white_address_no_signature_is_needed(tmp_path: Path) -> None:
    one = machine(home_with(tmp_path, WHITE + ACCOUNTS))
    async with one.broker(), one.client() as first, one.client() as second:
        assert await code_of(first, send_request(b"x", topic="any"), None) == ResponseCode.SUCCESS
        assert await code_of(second, send_request(b"x", topic="any"), None) == ResponseCode.SYSTEM_ERROR


async def test_an_account_may_have_white_addresses_of_its_own(home: str) -> None:
    one = machine(home)
    wrong = SessionCredentials("neighbour", "wrong secret")
    async with one.broker(), one.client() as first, one.client() as second:
        assert await code_of(first, send_request(b"x", topic="any"), wrong) == ResponseCode.SUCCESS
        assert await code_of(second, send_request(b"x", topic="any"), wrong) == ResponseCode.SYSTEM_ERROR
        assert await code_of(second, send_request(b"x", topic="any"), NEIGHBOUR) == ResponseCode.SYSTEM_ERROR


async def test_the_client_library_signs_all_that_it_asks(home: str) -> None:
    one = machine(home)
    async with one.broker():
        network = one.net.host("10.9.9.9").mount()
        async with open_producer("10.0.0.1:10911", network=network, credentials=ADMIN) as producer:
            await producer.send(Message("t", b"first"))
        async with open_producer("10.0.0.1:10911", network=network, credentials=PRODUCER) as producer:
            assert (await producer.send(Message("t", b"second"))).status is SendStatus.SEND_OK
            outcomes = [one async for one in producer.send_many([Message("t", b"third")] * 5)]
            assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)]
            assert (await producer.send_batch([Message("t", b"fourth")] * 2)).status is SendStatus.SEND_OK
            with pytest.raises(MQBrokerError, match="no PUB permission for topic:u"):
                await producer.send(Message("u", b"x"))
        options = ConsumerOptions(suspend_timeout_s=1)
        bodies = set()
        async with open_consumer(
            "10.0.0.1:10911", "t", group="consumers", network=network, options=options, credentials=CONSUMER
        ) as consumer:
            while messages := await consumer.poll(timeout_s=5):
                bodies |= {message.body for message in messages}
            await consumer.commit()
        assert bodies == {b"first", b"second", b"third", b"fourth"}
        with pytest.raises(MQBrokerError, match="Check signature failed for accessKey=producer"):
            async with open_consumer("10.0.0.1:10911", "t", network=network, options=options, credentials=FORGER):
                pass


def test_a_broker_does_not_begin_without_accounts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"plain_acl\.yml"):
        machine(str(tmp_path)).controller()


def test_files_that_change_are_read_again_once_they_are_still_and_damage_changes_nothing(tmp_path: Path) -> None:
    manager = PlainPermissionManager(home_with(tmp_path, ACCOUNTS))
    assert not manager.is_white("10.9.9.1")
    with capture_logs() as lines:
        manager.look_again()
        home_with(tmp_path, WHITE + ACCOUNTS + "# being written\n")
        manager.look_again()
        assert not manager.is_white("10.9.9.1")
        manager.look_again()
        assert manager.is_white("10.9.9.1")
        for damage in ("accounts: [", ""):
            home_with(tmp_path, damage)
            for _ in range(4):
                manager.look_again()
            assert manager.is_white("10.9.9.1")
    assert [line["event"] for line in lines] == ["acl.read", "acl.not_read_again", "acl.not_read_again"]
    assert [line["log_level"] for line in lines][1:] == ["warning", "warning"]


def test_damage_that_was_repaired_and_comes_again_is_told_again(tmp_path: Path) -> None:
    manager = PlainPermissionManager(home_with(tmp_path, ACCOUNTS))
    with capture_logs() as lines:
        for text in ("accounts: [", ACCOUNTS, "accounts: ["):
            home_with(tmp_path, text)
            for _ in range(3):
                manager.look_again()
    told = [line["event"] for line in lines if line["event"] != "acl.noted"]
    assert told == ["acl.not_read_again", "acl.read", "acl.not_read_again"]


def test_files_that_cannot_be_looked_for_change_nothing_and_are_read_when_they_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their directory's mode was changed, or a mounted one is being replaced."""
    manager = PlainPermissionManager(home_with(tmp_path, ACCOUNTS))
    manager.look_again()

    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    with capture_logs() as lines, monkeypatch.context() as patch:
        patch.setattr(Path, "is_file", refuse)
        for _ in range(3):
            manager.look_again()
    assert [line["event"] for line in lines] == ["acl.not_read_again"]
    assert "Permission denied" in lines[0]["reason"]
    assert "Permission denied" in manager.not_read
    manager.look_again()
    assert manager.not_read == "", "what counts is there again"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "is_file", refuse)
        with pytest.raises(ConfigError, match="cannot be looked for"):
            PlainPermissionManager(str(tmp_path))
    home_with(tmp_path, WHITE + ACCOUNTS)
    for _ in range(2):
        manager.look_again()
    assert manager.is_white("10.9.9.1")


def test_a_file_that_may_be_read_at_last_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was made by root, and given to the broker's user afterwards: nothing else changes."""
    manager = PlainPermissionManager(home_with(tmp_path, ACCOUNTS))
    home_with(tmp_path, WHITE + ACCOUNTS)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", lambda _path: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
        for _ in range(3):
            manager.look_again()
    (tmp_path / "conf" / "plain_acl.yml").chmod(0o600)
    for _ in range(2):
        manager.look_again()
    assert manager.is_white("10.9.9.1")


async def test_a_running_broker_takes_changes_over(tmp_path: Path) -> None:
    one = machine(home_with(tmp_path, ACCOUNTS))
    async with one.broker(), one.client() as client:
        assert await code_of(client, send_request(b"x"), None) == ResponseCode.SYSTEM_ERROR
        home_with(tmp_path, WHITE + ACCOUNTS)
        with trio.fail_after(60):  # of requests, a fast machine answers many before its files are looked at
            while await code_of(client, send_request(b"x"), None) != ResponseCode.SUCCESS:
                await trio.lowlevel.checkpoint()


async def test_a_broker_without_a_thread_for_its_files_goes_on_and_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """pids.max or ulimit -u is reached: what needs a thread waits, and nothing ends for it."""
    one = machine(home_with(tmp_path, ACCOUNTS))
    refused, has_read = trio.Event(), trio.Event()

    def refuse(_call: object) -> None:
        refused.set()
        raise RuntimeError("can't start new thread")

    with capture_logs() as lines:
        async with one.broker() as broker, one.client() as client:
            with monkeypatch.context() as patch:
                patch.setattr(trio.to_thread, "run_sync", refuse)
                await refused.wait()
                await trio.sleep(3)
            assert await code_of(client, send_request(b"x"), PRODUCER) == ResponseCode.SUCCESS
            assert broker.access.permissions is not None
            broker.access.permissions.on_read = has_read.set
            home_with(tmp_path, WHITE + ACCOUNTS)
            await has_read.wait()
    told = [line["reason"] for line in lines if line["event"] == "acl.not_read_again"]
    assert told == ["account files cannot be looked at: [Errno 11] no thread to do it in: can't start new thread"]
