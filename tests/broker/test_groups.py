"""Groups of clients at one broker: who is in them, who is told of it, and what members are given.

Named after the invariants (I5, I6, I11) and traps of the protocol that they try.
"""

import json
from contextlib import AsyncExitStack
from errno import ENOSPC
from typing import Any

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from rmqha.broker import options
from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.classic.classic_replication import ClassicReplication
from rmqha.codec import java_json
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import PullMessageRequestHeader, encode_header
from rmqha.codec.heartbeat import ConsumerData, SubscriptionData
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import StoreWriteError
from tests.broker.group_members import Member, consuming, member_of
from tests.broker.machines import Machine, send_request
from tests.broker.test_pair import Pair


def group_request(code: RequestCode, group: str) -> RemotingCommand:
    field = "producerGroup" if code == RequestCode.GET_PRODUCER_CONNECTION_LIST else "consumerGroup"
    return RemotingCommand(code, ext_fields={field: group})


async def ids(member: Member, group: str) -> list[str]:
    answer = await member.ask(group_request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, group))
    if answer.code != ResponseCode.SUCCESS:
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "no consumer for this group" in (answer.remark or "")
        return []
    listed: list[str] = json.loads(answer.body)["consumerIdList"]
    return listed


async def bodies(member: Member, request: RemotingCommand) -> Any:
    answer = await member.ask(request)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return json.loads(answer.body)


async def test_i5_a_member_is_listed_with_its_heartbeat_and_the_others_are_told(
    machine: Machine, broker: BrokerController, autojump_clock: MockClock
) -> None:
    """I5, traps 11 and 12."""
    async with member_of(machine, "a") as a, member_of(machine, "b") as b, member_of(machine, "nobody") as other:
        assert await ids(other, "g") == []
        await a.heartbeat("g")
        assert await ids(a, "g") == ["a"] == await ids(other, "g")
        await trio.sleep(1)
        before = len(a.told)
        await b.heartbeat("g", "h")
        assert await ids(b, "g") == ["a", "b"]
        await trio.sleep(1)
        assert (a.told[before:], sorted(b.told), other.told) == (["g"], ["g", "h"], [])


async def test_i6_a_connection_that_ends_takes_its_member_along_and_the_others_are_told(
    machine: Machine, broker: BrokerController, autojump_clock: MockClock
) -> None:
    """I6, trap 12."""
    async with member_of(machine, "a") as a:
        async with member_of(machine, "b") as b:
            await a.heartbeat("g")
            await b.heartbeat("g")
            await trio.sleep(1)
            before = len(a.told)
        await trio.sleep(1)
        assert a.told[before:] == ["g"]
        assert await ids(a, "g") == ["a"]


async def test_a_member_that_says_goodbye_is_gone_at_once(
    machine: Machine, broker: BrokerController, autojump_clock: MockClock
) -> None:
    async with member_of(machine, "a") as a, member_of(machine, "b") as b:
        await a.heartbeat("g", producers=("p",))
        await b.heartbeat("g")
        await trio.sleep(1)
        before = len(b.told)
        fields = {"clientID": "a", "consumerGroup": "g", "producerGroup": "p"}
        await a.ask(RemotingCommand(RequestCode.UNREGISTER_CLIENT, ext_fields=fields))
        assert await ids(b, "g") == ["b"]
        assert broker.producers.any_connection("p") is None
        await trio.sleep(1)
        assert b.told[before:] == ["g"]


async def test_heartbeats_that_say_nothing_new_are_not_told_of(
    machine: Machine, broker: BrokerController, autojump_clock: MockClock
) -> None:
    async with member_of(machine, "a") as a, member_of(machine, "b") as b:
        for member in (a, b, a, b, a):
            await member.heartbeat("g")
        await trio.sleep(1)
        before = len(a.told)
        for _ in range(5):
            await a.heartbeat("g")
            await trio.sleep(1)
        assert len(a.told) == before
        await b.heartbeat(consuming("g", SubscriptionData("t"), SubscriptionData("another")))
        await trio.sleep(1)
        assert len(a.told) == before + 1, "they subscribe to another topic"


async def test_trap_13_members_are_connections_and_their_ids_are_listed_once(
    machine: Machine, broker: BrokerController, autojump_clock: MockClock
) -> None:
    """A client that came back by another connection would be given queues twice, by an id that nobody answers to."""
    async with member_of(machine, "a") as first:
        await first.heartbeat("g")
        async with member_of(machine, "a") as second:
            await second.heartbeat("g")
            assert await ids(second, "g") == ["a"]
        await trio.sleep(1)
        assert await ids(first, "g") == ["a"]


async def test_the_groups_operator_may_have_nobody_told(machine: Machine, autojump_clock: MockClock) -> None:
    async with machine.broker(notifyConsumerIdsChangedEnable="false"), member_of(machine, "a") as a:
        await a.heartbeat("g")
        await trio.sleep(5)
        assert a.told == []


async def test_a_group_may_have_its_members_not_told(
    machine: Machine, broker: BrokerController, autojump_clock: MockClock
) -> None:
    async with member_of(machine, "a") as a:
        await update_group(a, {"groupName": "quiet", "notifyConsumerIdsChangedEnable": False})
        await a.heartbeat("quiet", "loud")
        await trio.sleep(5)
        assert a.told == ["loud"]


async def test_who_sends_no_heartbeats_is_no_member_and_its_connection_ends(
    machine: Machine, broker: BrokerController, autojump_clock: MockClock
) -> None:
    """Also if its pulls go on; who was never in a group, or has left it, may be silent."""
    async with member_of(machine, "a") as a, member_of(machine, "b") as b, member_of(machine, "c") as other:
        await b.heartbeat("g")
        await a.heartbeat("g", producers=("p",))
        await other.heartbeat("h")
        fields = {"clientID": "c", "consumerGroup": "h"}
        await other.ask(RemotingCommand(RequestCode.UNREGISTER_CLIENT, ext_fields=fields))
        for _ in range(10):
            await trio.sleep(15)
            await b.heartbeat("g")
            await other.ask(RemotingCommand(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ext_fields={"consumerGroup": "g"}))
            if not a.ended:
                await trio.lowlevel.checkpoint()
                a.stream.send_nowait(group_request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, "g").encode())
        assert (a.ended, b.ended, other.ended) == (True, False, False)
        assert await ids(b, "g") == ["b"]


async def test_trap_32_a_slave_serves_groups_as_well(autojump_clock: MockClock) -> None:
    """Consumers turn to it when the master is gone. What groups there are it has from its master."""
    pair = Pair()
    async with pair.running() as (master, slave):
        async with member_of(pair.master, "a") as a:
            await a.heartbeat("g")
            await update_group(a, {"groupName": "strict", "retryMaxTimes": 3})
        await trio.sleep(25)
        strict = slave.groups.select("strict")
        assert strict is not None
        assert strict.retry_max_times == 3
        assert slave.topics.select("%RETRY%g") == master.topics.select("%RETRY%g")
        async with member_of(pair.slave, "a") as a, member_of(pair.slave, "b") as b:
            await a.heartbeat("g", "new")
            await b.heartbeat("g")
            assert await ids(a, "g") == ["a", "b"]
            await trio.sleep(1)
            assert "g" in a.told
            fields = {"consumerGroup": "g", "topic": "t", "queueId": "0", "commitOffset": "5"}
            commit = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=fields)
            assert (await a.ask(commit)).code == ResponseCode.SUCCESS
            question = RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=fields)
            assert (await b.ask(question)).ext_fields["offset"] == "5"
            goodbye = RemotingCommand(RequestCode.UNREGISTER_CLIENT, ext_fields={"clientID": "a", "consumerGroup": "g"})
            await a.ask(goodbye)
            assert await ids(b, "g") == ["b"]
            refused = await a.ask(RemotingCommand(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b"{}"))
            assert refused.code == ResponseCode.SYSTEM_ERROR
        assert slave.topics.select("%RETRY%new") is None, "a slave makes no topics"


async def test_trap_38_a_groups_retry_topic_is_there_after_its_first_heartbeat(
    machine: Machine, broker: BrokerController, autojump_clock: MockClock
) -> None:
    async with member_of(machine, "a") as a:
        await update_group(a, {"groupName": "wide", "retryQueueNums": 3})
        await update_group(a, {"groupName": "none", "retryQueueNums": 0})
        unit = ConsumerData("unit", unit_mode=True)
        await a.heartbeat("g", "wide", "none", unit, "g" * 120)
        await trio.sleep(1)
        made = {topic.topic_name: topic for topic in broker.topics if topic.topic_name.startswith("%RETRY%")}
        assert {name: topic.write_queue_nums for name, topic in made.items()} == {
            "%RETRY%g": 1, "%RETRY%wide": 3, "%RETRY%unit": 1, "%RETRY%" + "g" * 120: 1,
        }  # fmt: skip
        assert [topic.topic_sys_flag for topic in made.values()] == [0, 0, 2, 0]
        route = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "%RETRY%g"})
        assert (await a.ask(route)).code == ResponseCode.SUCCESS


async def update_group(member: Member, config: dict[str, Any]) -> None:
    body = json.dumps(config).encode()
    answer = await member.ask(RemotingCommand(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def groups_of(member: Member) -> dict[str, Any]:
    answer = await bodies(member, RemotingCommand(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
    table: dict[str, Any] = answer["subscriptionGroupTable"]
    return table


async def test_groups_survive_the_broker(machine: Machine, autojump_clock: MockClock) -> None:
    """Those that an operator made are saved when he is told so; a power failure costs none."""
    async with machine.broker(), member_of(machine, "a") as a:
        await update_group(a, {"groupName": "strict", "retryMaxTimes": 3})
        saved = json.loads(machine.disk.files["/store/config/subscriptionGroup.json"].durable)
        assert saved["subscriptionGroupTable"]["strict"]["retryMaxTimes"] == 3
        await a.heartbeat("g")
    async with machine.broker(), member_of(machine, "a") as a:
        table = await groups_of(a)
        assert (table["strict"]["retryMaxTimes"], table["g"]["retryMaxTimes"]) == (3, 16)
        assert "TOOLS_CONSUMER" in table
        fields = {"groupName": "strict", "removeOffset": "true"}
        commit = {"consumerGroup": "strict", "topic": "t", "queueId": "0", "commitOffset": "1"}
        await a.ask(RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=commit))
        gone = await a.ask(RemotingCommand(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext_fields=fields))
        assert gone.code == ResponseCode.SUCCESS
    async with machine.broker() as broker, member_of(machine, "a") as a:
        assert "strict" not in await groups_of(a)
        assert broker.offsets.query_offset("strict", "t", 0) is None


async def test_a_group_is_gone_when_its_offsets_are_durably_gone(machine: Machine, autojump_clock: MockClock) -> None:
    fields = {"groupName": "g", "removeOffset": "true"}
    commit = {"consumerGroup": "g", "topic": "t", "queueId": "0", "commitOffset": "1"}
    path = "/store/config/consumerOffset.json"
    async with machine.broker() as broker, member_of(machine, "a") as a:
        await a.ask(RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=commit))
        await broker.metadata.save()
        assert b"t@g" in machine.disk.files[path].durable
        gone = await a.ask(RemotingCommand(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext_fields=fields))
        assert (gone.code, b"t@g" in machine.disk.files[path].durable) == (ResponseCode.SUCCESS, False)


def save_request() -> RemotingCommand:
    fields = {"consumerGroup": "g", "topic": "t"}
    return RemotingCommand(RequestCode.SAVE_CONSUMER_OFFSETS, ext_fields=fields)


async def test_those_who_ask_for_a_save_at_one_time_share_the_next(
    machine: Machine, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save for each would keep the disk busy for minutes; and who names no group is told so."""
    saves, under_way = [0], trio.CapacityLimiter(1)

    async def takes_half_a_second(*_: object) -> None:
        under_way.acquire_nowait()
        saves[0] += 1
        await trio.sleep(0.5)
        under_way.release()

    async def ask_ten_times(member: Member, broker: BrokerController) -> None:
        for offset in range(10):
            broker.offsets.commit_offset("g", "t", 0, offset=offset)
            assert (await member.ask(save_request())).code == ResponseCode.SUCCESS

    async with machine.broker() as broker, AsyncExitStack() as stack:
        members = [await stack.enter_async_context(member_of(machine, f"m{number}")) for number in range(40)]
        nameless = await members[0].ask(RemotingCommand(RequestCode.SAVE_CONSUMER_OFFSETS))
        assert (nameless.code, "consumerGroup" in str(nameless.remark)) == (ResponseCode.SYSTEM_ERROR, True)
        await broker.metadata.save()
        monkeypatch.setattr(broker.metadata.files, "save", takes_half_a_second)
        async with trio.open_nursery() as nursery:
            for member in members:
                nursery.start_soon(ask_ten_times, member, broker)
        assert saves[0] <= 25
        monkeypatch.undo()


async def no_room(*_: object) -> None:
    raise StoreWriteError(OSError(ENOSPC, "no room"), operation="write", path="config")


async def test_where_a_group_was_set_is_durable_when_an_operator_is_told_so(
    machine: Machine, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash within five seconds took it, and so did any while the table could not be saved."""
    commit = {"consumerGroup": "g", "topic": "t", "queueId": "0"}
    path = "/store/config/consumerOffset.json"
    async with machine.broker() as broker, member_of(machine, "a") as a:
        for offset in ("7", "3"):
            await a.ask(
                RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=commit | {"commitOffset": offset})
            )
            told = await a.ask(save_request())
            assert told.code == ResponseCode.SUCCESS
            saved = java_json.loads(bytes(machine.disk.files[path].durable))
            assert saved["offsetTable"]["t@g"] == {0: int(offset)}
        assert (await a.ask(save_request())).code == ResponseCode.SUCCESS
        monkeypatch.setattr(broker.metadata.files, "save", no_room)
        broker.offsets.commit_offset("g", "t", 0, offset=1)
        told = await a.ask(save_request())
        assert told.code == ResponseCode.SYSTEM_ERROR
        assert "not saved yet" in str(told.remark)


async def test_how_far_the_broker_itself_is_with_transactions_is_not_removed(
    machine: Machine, autojump_clock: MockClock
) -> None:
    """All half messages that the log holds would be looked at again, and their producers be asked."""
    fields = {"groupName": "CID_RMQ_SYS_TRANS", "removeOffset": "true"}
    async with machine.broker() as broker, member_of(machine, "a") as a:
        broker.offsets.commit_offset("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0, offset=7)
        refused = await a.ask(RemotingCommand(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext_fields=fields))
        assert (refused.code, "broker itself" in (refused.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        assert broker.offsets.query_offset("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0) == 7


async def test_a_group_that_is_not_saved_is_not_said_to_be(machine: Machine, autojump_clock: MockClock) -> None:
    async with machine.broker(), member_of(machine, "a") as a:
        machine.disk.faults.read_only = True
        request = RemotingCommand(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName":"g"}')
        answer = await a.ask(request)
        assert (answer.code, "not saved" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        machine.disk.faults.heal()


NO_GROUPS = [b"", b"[]", b"{", b'{"groupName":7}', b'{"groupName":"a b"}', b"{}", b'{"groupName":""}', b" " * 70_000]


@pytest.mark.parametrize("body", NO_GROUPS)
async def test_what_is_no_group_is_refused(
    machine: Machine, broker: BrokerController, body: bytes, autojump_clock: MockClock
) -> None:
    async with member_of(machine, "a") as a:
        answer = await a.ask(RemotingCommand(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body))
        assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_an_operator_sees_who_is_connected(
    machine: Machine, broker: BrokerController, autojump_clock: MockClock
) -> None:
    async with member_of(machine, "a") as a, member_of(machine, "b") as b:
        await a.heartbeat("g", producers=("p",), version=317)
        await b.heartbeat(producers=("p", "q"))
        shown = await bodies(b, group_request(RequestCode.GET_CONSUMER_CONNECTION_LIST, "g"))
        (connection,) = shown["connectionSet"]
        address = connection.pop("clientAddr")
        assert connection == {"clientId": "a", "language": "JAVA", "version": 317}
        assert (shown["consumeType"], shown["messageModel"]) == ("CONSUME_PASSIVELY", "CLUSTERING")
        assert shown["subscriptionTable"]["t"]["subString"] == "*"
        offline = await b.ask(group_request(RequestCode.GET_CONSUMER_CONNECTION_LIST, "other"))
        assert offline.code == ResponseCode.CONSUMER_NOT_ONLINE
        shown = await bodies(b, group_request(RequestCode.GET_PRODUCER_CONNECTION_LIST, "p"))
        assert [one["clientId"] for one in shown["connectionSet"]] == ["a", "b"]
        assert shown["connectionSet"][0]["clientAddr"] == address
        unknown = await b.ask(group_request(RequestCode.GET_PRODUCER_CONNECTION_LIST, "g"))
        assert unknown.code == ResponseCode.SYSTEM_ERROR
        everybody = (await bodies(b, RemotingCommand(RequestCode.GET_ALL_PRODUCER_INFO)))["data"]
        assert {name: [one["clientId"] for one in some] for name, some in everybody.items()} == {
            "p": ["a", "b"], "q": ["b"],
        }  # fmt: skip
        assert everybody["p"][0]["remoteIP"] == f"/{address}"


@pytest.mark.parametrize(("kind", "code"), [("TAG", 0), ("SQL92", 1), (None, 0)])
async def test_a_broker_filters_by_tags_alone(
    machine: Machine, broker: BrokerController, kind: str | None, code: int, autojump_clock: MockClock
) -> None:
    subscription = {"topic": "t", "subString": "a > 5", "expressionType": kind}
    body = json.dumps({"clientId": "a", "group": "g", "subscriptionData": subscription}).encode()
    async with member_of(machine, "a") as a:
        assert (await a.ask(RemotingCommand(RequestCode.CHECK_CLIENT_CONFIG, body=body))).code == code
        assert (await a.ask(RemotingCommand(RequestCode.CHECK_CLIENT_CONFIG))).code == ResponseCode.SUCCESS


def lock_request(code: RequestCode, client_id: str, *queue_ids: int) -> RemotingCommand:
    queues = [{"brokerName": "broker-a", "queueId": queue_id, "topic": "t"} for queue_id in queue_ids]
    body = json.dumps({"clientId": client_id, "consumerGroup": "g", "mqSet": queues, "onlyThisBroker": True})
    return RemotingCommand(code, body=body.encode())


async def test_i11_a_queue_is_locked_for_one_client_at_a_time(
    machine: Machine, broker: BrokerController, autojump_clock: MockClock
) -> None:
    """I11: till it gives it up, or has not asked for 60 s."""

    async def lock(client_id: str, *queue_ids: int) -> list[int]:
        locked = await bodies(a, lock_request(RequestCode.LOCK_BATCH_MQ, client_id, *queue_ids))
        return [queue["queueId"] for queue in locked["lockOKMQSet"]]

    async with member_of(machine, "whichever") as a:
        assert await lock("a", 0, 1) == [0, 1]
        assert await lock("b", 0, 1, 2) == [2]
        await a.ask(lock_request(RequestCode.UNLOCK_BATCH_MQ, "b", 0))
        assert await lock("b", 0) == [], "it was not b's to give up"
        await a.ask(lock_request(RequestCode.UNLOCK_BATCH_MQ, "a", 0))
        assert await lock("b", 0) == [0]
        await trio.sleep(40)
        assert await lock("a", 1) == [1]
        await trio.sleep(40)
        assert (await lock("b", 1), await lock("a", 0)) == ([], [0])
        await trio.sleep(21)
        assert await lock("b", 1) == [1]


def pull(group: str, *, subscribed: bool = True, topic: str = "t", sub_version: int = 0) -> RemotingCommand:
    """As a push consumer's, whose subscription the broker knows, or (0x4) one that brings its own."""
    sys_flag = 0 if subscribed else 4
    header = PullMessageRequestHeader(group, topic, 0, 0, 32, sys_flag, 0, 0, "*", sub_version)
    return RemotingCommand(RequestCode.PULL_MESSAGE, ext_fields=encode_header(header))


async def test_pulls_are_checked_against_their_group(
    machine: Machine, broker: BrokerController, autojump_clock: MockClock
) -> None:
    """In RocketMQ's order, with its codes; trap 49: who brings its own subscription needs no heartbeat."""
    async with member_of(machine, "a") as a:
        await a.ask(send_request(b"x"))
        await trio.sleep(20)
        assert (await a.ask(pull("g"))).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        assert (await a.ask(pull("g", subscribed=False))).code == ResponseCode.SUCCESS
        await a.heartbeat(consuming("g", SubscriptionData("t", sub_version=5)))
        assert (await a.ask(pull("g", sub_version=5))).code == ResponseCode.SUCCESS
        assert (await a.ask(pull("g", sub_version=6))).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        await a.heartbeat(consuming("g", SubscriptionData("other", sub_version=9)))
        assert (await a.ask(pull("g"))).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        await a.heartbeat(consuming("sql", SubscriptionData("t", "a > 5", expression_type="SQL92")))
        assert (await a.ask(pull("sql"))).code == ResponseCode.SYSTEM_ERROR, "it would get everything"
        await update_group(a, {"groupName": "g", "consumeEnable": False})
        assert (await a.ask(pull("g", subscribed=False))).code == ResponseCode.NO_PERMISSION
        await a.heartbeat(consuming("loud", model="BROADCASTING"))
        assert (await a.ask(pull("loud"))).code == ResponseCode.SUCCESS
        await update_group(a, {"groupName": "loud", "consumeBroadcastEnable": False})
        assert (await a.ask(pull("loud"))).code == ResponseCode.NO_PERMISSION


async def test_groups_that_nobody_made_may_be_refused(machine: Machine, autojump_clock: MockClock) -> None:
    async with machine.broker(autoCreateSubscriptionGroup="false") as broker, member_of(machine, "a") as a:
        await a.ask(send_request(b"x"))
        await trio.sleep(20)
        assert (await a.ask(pull("g", subscribed=False))).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        await a.heartbeat("g")
        assert broker.topics.select("%RETRY%g") is None
        await update_group(a, {"groupName": "g"})
        assert (await a.ask(pull("g"))).code == ResponseCode.SUCCESS
        assert (await a.ask(pull("CID_RMQ_SYS_x", subscribed=False))).code == ResponseCode.SUCCESS


async def test_a_group_may_be_sent_to_other_brokers(machine: Machine, autojump_clock: MockClock) -> None:
    async with machine.broker(slaveReadEnable="true"), member_of(machine, "a") as a:
        await a.ask(send_request(b"x"))
        await trio.sleep(20)
        await update_group(a, {"groupName": "g", "brokerId": 3, "whichBrokerWhenConsumeSlowly": 4})
        for group, broker_id in (("g", "3"), ("other", "0")):
            answer = await a.ask(pull(group, subscribed=False))
            assert answer.ext_fields["suggestWhichBrokerId"] == broker_id


@pytest.mark.parametrize(("held_by_4", "broker_id"), [(0, "3"), (1 << 20, "4")])
async def test_a_group_that_is_far_behind_is_sent_to_a_slave_that_has_what_it_reads(
    held_by_4: int, broker_id: str, machine: Machine, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is new, or stands still, would send it back, or hold it up."""
    held = {4: held_by_4}
    monkeypatch.setattr(ClassicReplication, "is_held_by", lambda _self, number, at: at < held.get(number, 1 << 30))
    async with machine.broker(slaveReadEnable="true", accessMessageInMemoryMaxRatio="0"), member_of(machine, "a") as a:
        await update_group(a, {"groupName": "g", "brokerId": 3, "whichBrokerWhenConsumeSlowly": 4})
        for _ in range(2):
            await a.ask(send_request(bytes(9000)))
        await trio.sleep(20)
        answer = await a.ask(pull("g", subscribed=False))
        assert answer.ext_fields["suggestWhichBrokerId"] == broker_id


async def test_a_group_that_a_pull_brings_near_the_end_is_not_sent_away(
    machine: Machine, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What counts is what lies behind the last message that it gets, and not behind the first."""
    monkeypatch.setattr(options, "memory_share_bytes", lambda _percent: 2000)
    async with machine.broker(slaveReadEnable="true"), member_of(machine, "a") as a:
        for _ in range(4):
            await a.ask(send_request(bytes(1000)))
        await trio.sleep(20)
        await update_group(a, {"groupName": "g", "brokerId": 3, "whichBrokerWhenConsumeSlowly": 4})
        answer = await a.ask(pull("g", subscribed=False))
        assert (answer.ext_fields["nextBeginOffset"], answer.ext_fields["suggestWhichBrokerId"]) == ("4", "3")


async def test_where_slaves_are_not_read_from_no_group_is_sent_to_one(
    machine: Machine, autojump_clock: MockClock
) -> None:
    async with machine.broker(accessMessageInMemoryMaxRatio="0"), member_of(machine, "a") as a:
        await update_group(a, {"groupName": "g", "brokerId": 3, "whichBrokerWhenConsumeSlowly": 4})
        await a.ask(send_request(b"x", queue_id=1))
        for code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.SUCCESS):
            answer = await a.ask(pull("g", subscribed=False))
            assert (answer.code, answer.ext_fields["suggestWhichBrokerId"]) == (code, "0")
            for _ in range(2):
                await a.ask(send_request(bytes(9000)))
            await trio.sleep(20)
