"""Replies go to the client that asked, and are stored besides."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.processors import reply_message_processor
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.properties import parse_properties
from rmqha.codec.record.layout import SysFlag
from rmqha.codec.remoting import FLAG_RESPONSE, RemotingCommand
from rmqha.codec.send_answers import decode_send_response
from tests.broker.machines import Machine, send_request
from tests.broker.producers import Producer, producer_of, seen
from tests.broker.test_pair import SLAVE
from tests.sim.sim_net import SimNet

REPLIES = "DefaultCluster_REPLY_TOPIC"
TRANSACTIONS = [SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK]


def reply(body: bytes, *, to: str = "10.9.9.9@1", topic: str = REPLIES, **fields: str) -> RemotingCommand:
    """325, as ``MessageUtil.createReplyMessage`` makes it."""
    texts = ["CORRELATION_ID\x01c-1", f"REPLY_TO_CLIENT\x01{to}", "TTL\x013000", "MSG_TYPE\x01reply"]
    sent = send_request(body, topic=topic, properties="\x02".join(texts), **fields)  # type: ignore[arg-type]
    return RemotingCommand(RequestCode.SEND_REPLY_MESSAGE_V2, ext_fields=sent.ext_fields, body=body)


async def take(asker: Producer, *, code: int = ResponseCode.SUCCESS) -> RemotingCommand:
    """What is pushed to who asked, who then says so."""
    with trio.fail_after(60):
        while not asker.asked:
            await asker.heard.wait()
    push = asker.asked[-1]
    await asker.stream.send_all(RemotingCommand(code, push.opaque, FLAG_RESPONSE).encode())
    return push


async def test_a_reply_is_pushed_and_stored(
    machine: Machine, broker: BrokerController, autojump_clock: MockClock
) -> None:
    async with producer_of(machine) as asker, producer_of(machine) as replier, trio.open_nursery() as nursery:
        await asker.join()
        pushed: list[RemotingCommand] = []

        async def wait() -> None:
            pushed.append(await take(asker))

        nursery.start_soon(wait)
        answer = await replier.ask(reply(b"42", h="7"))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert decode_send_response(answer)[1:3] == (0, 0)
        (push,) = pushed
        assert (push.code, push.body, push.flag) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"42", 0)
        fields = push.ext_fields
        assert (fields["topic"], fields["flag"], fields["storeHost"]) == (REPLIES, "7", "10.0.0.1:10911")
        assert fields["bornHost"].startswith("10.9.8.")
        told = parse_properties(fields["properties"])
        assert (told["CORRELATION_ID"], told["PUSH_REPLY_TIME"]) == ("c-1", fields["storeTimestamp"])
        (stored,) = await seen(broker, topic=REPLIES)
        assert (stored.body, stored.properties["CORRELATION_ID"]) == (b"42", "c-1")


async def test_who_does_not_take_a_reply_is_told_of(
    machine: Machine, broker: BrokerController, autojump_clock: MockClock
) -> None:
    async with producer_of(machine) as asker, producer_of(machine) as replier, trio.open_nursery() as nursery:
        await asker.join()
        silent = await replier.ask(reply(b"42"))
        assert (silent.code, "no answer in time" in (silent.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        asker.asked.clear()
        nursery.start_soon(lambda: take(asker, code=ResponseCode.SYSTEM_ERROR))
        refused = await replier.ask(reply(b"42"))
        assert (refused.code, "refused" in (refused.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        assert await seen(broker, topic=REPLIES) == []


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (reply(b"42", to="nobody"), "channel of <nobody> not found"),
        (reply(b"42", topic="unknown", c="no default topic"), "'rmqha topics create' makes it"),
        (reply(b"42", topic="no/topic"), "takes no replies"),
        (reply(b"42", topic="SCHEDULE_TOPIC_XXXX"), "takes no replies"),
        (reply(b"42", e="9"), "there is no queue 9"),
        (reply(b"42", e="-1"), "there is no queue -1"),
        (reply(b"42", e="x"), "is no number"),
    ],
)
async def test_what_is_no_reply(
    machine: Machine, broker: BrokerController, request_: RemotingCommand, words: str, autojump_clock: MockClock
) -> None:
    async with producer_of(machine) as asker:
        await asker.join()
        answer = await asker.ask(request_)
        assert answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.TOPIC_NOT_EXIST)
        assert words in (answer.remark or "")
        assert asker.asked == []


OWN = "INST_1%DefaultCluster_REPLY_TOPIC"
"""Of clients with the namespace INST_1."""


async def test_a_namespace_s_topic_of_replies_is_made_by_the_first_one(
    machine: Machine, autojump_clock: MockClock
) -> None:
    """As any topic by the first send: who had asked got no reply, each time."""
    async with machine.broker() as broker, producer_of(machine) as asker, producer_of(machine) as replier:
        await asker.join()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take, asker)
            answer = await replier.ask(reply(b"42", topic=OWN))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        (stored,) = await seen(broker, topic=OWN)
        assert stored.body == b"42"


@pytest.mark.parametrize("keys", [{"brokerRole": "ASYNC_MASTER", "autoCreateTopicEnable": "false"}, SLAVE])
async def test_where_no_topic_may_be_made_none_is_made_by_a_reply(
    keys: dict[str, str], autojump_clock: MockClock
) -> None:
    """A slave stores nothing: its master's topics are its own."""
    machine = Machine(SimNet(), "10.0.0.2", keys)
    async with machine.broker() as broker, producer_of(machine) as replier:
        answer = await replier.ask(reply(b"42", topic=OWN))
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert broker.topics.select(OWN) is None


async def test_replies_need_not_be_stored(machine: Machine, autojump_clock: MockClock) -> None:
    async with machine.broker(storeReplyMessageEnable="false") as broker, producer_of(machine) as asker:
        await asker.join()
        async with producer_of(machine) as replier, trio.open_nursery() as nursery:
            nursery.start_soon(take, asker)
            sent = reply(b"42")
            old = RemotingCommand(RequestCode.SEND_REPLY_MESSAGE, ext_fields=v1_of(sent), body=b"42")
            answer = await replier.ask(old)
            assert decode_send_response(answer)[:3] == ("0", 0, 0)
        assert await seen(broker, topic=REPLIES) == []


@pytest.mark.parametrize(
    "sys_flag", [0, *(flag | more for flag in TRANSACTIONS for more in (0, SysFlag.COMPRESSED)), 0xC0]
)
@pytest.mark.parametrize("is_v1", [False, True])
async def test_a_reply_that_is_stored_is_seen_whatever_its_flags(
    machine: Machine, broker: BrokerController, sys_flag: int, is_v1: bool, autojump_clock: MockClock
) -> None:
    """Of a transaction it is no part: flagged as one it would be in the log and in no queue."""
    async with producer_of(machine) as asker, producer_of(machine) as replier, trio.open_nursery() as nursery:
        await asker.join()
        nursery.start_soon(take, asker)
        sent = reply(b"42", f=str(int(sys_flag)))
        if is_v1:
            sent = RemotingCommand(RequestCode.SEND_REPLY_MESSAGE, ext_fields=v1_of(sent), body=sent.body)
        assert (await replier.ask(sent)).code == ResponseCode.SUCCESS
        (stored,) = await seen(broker, topic=REPLIES)
        kept = sys_flag & ~(SysFlag.TRANSACTION_TYPE | SysFlag.INNER_BATCH)
        assert (stored.body, stored.sys_flag) == (b"42", kept)
        assert asker.asked[0].ext_fields["sysFlag"] == str(int(sys_flag))


async def test_a_reply_larger_than_a_message_may_be_is_pushed_and_not_stored(
    machine: Machine, autojump_clock: MockClock
) -> None:
    async with machine.broker(maxMessageSize="10") as broker, producer_of(machine) as asker:
        await asker.join()
        async with producer_of(machine) as replier, trio.open_nursery() as nursery:
            nursery.start_soon(take, asker)
            assert decode_send_response(await replier.ask(reply(bytes(11))))[:3] == ("0", 0, 0)
        assert (asker.asked[0].body, await seen(broker, topic=REPLIES)) == (bytes(11), [])


def v1_of(sent: RemotingCommand) -> dict[str, str]:
    names = ["producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp"]
    names += ["flag", "properties", "reconsumeTimes", "unitMode"]
    return {name: sent.ext_fields[letter] for name, letter in zip(names, "abcdefghijk", strict=True)}


async def test_a_client_is_found_while_any_of_its_groups_is_there(
    machine: Machine, broker: BrokerController, autojump_clock: MockClock
) -> None:
    async with producer_of(machine) as first, producer_of(machine) as second:
        await first.join()
        first.group = "another"
        await first.join()
        await second.join()
        find = broker.producers.find_connection
        late = find("10.9.9.9@1")
        leave = {"clientID": "10.9.9.9@1", "producerGroup": "PG"}
        await second.ask(RemotingCommand(RequestCode.UNREGISTER_CLIENT, ext_fields=leave))
        early = find("10.9.9.9@1")
        assert None not in (late, early)
        assert late is not early
        await first.ask(RemotingCommand(RequestCode.UNREGISTER_CLIENT, ext_fields=leave))
        assert find("10.9.9.9@1") is early
        leave["producerGroup"] = "another"
        await first.ask(RemotingCommand(RequestCode.UNREGISTER_CLIENT, ext_fields=leave))
        assert find("10.9.9.9@1") is None


async def test_a_reply_whose_sender_leaves_holds_no_place(
    machine: Machine, broker: BrokerController, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply_message_processor, "REPLIES_MAX", 4)
    async with producer_of(machine) as asker:
        await asker.join()
        for number in range(8):
            async with producer_of(machine) as leaving:
                await leaving.tell(reply(b"42"))
                await trio.sleep(0.1)
            assert len(asker.asked) == number + 1
            await trio.sleep(0.1)
        async with producer_of(machine) as replier, trio.open_nursery() as nursery:
            asker.asked.clear()
            nursery.start_soon(take, asker)
            answer = await replier.ask(reply(b"43"))
            assert answer.code == ResponseCode.SUCCESS, answer.remark
