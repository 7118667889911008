"""An operator is told that it is done when it is on the disk, whatever of the tables is being saved meanwhile."""

import json
from collections.abc import Awaitable, Callable
from errno import ENOSPC
from typing import Any, Final

import pytest
import trio

from rmqha.broker.broker_controller import BrokerController
from rmqha.codec import java_json
from rmqha.codec.admin_headers import CreateTopicRequestHeader, TopicRequestHeader
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.group_headers import DeleteSubscriptionGroupRequestHeader
from rmqha.codec.headers import SaveConsumerOffsetsRequestHeader, encode_header
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import StoreWriteError
from rmqha.remoting.client import RemotingClient
from rmqha.store.config_files import CONSUMER_OFFSET, SUBSCRIPTION_GROUP, TOPICS
from tests.broker.machines import Machine, ask, send_request
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_net import SimNet

SAVE_S: Final = 0.3
RETRY: Final = "%RETRY%g"
Change = Callable[[BrokerController, int], RemotingCommand]


def request(code: RequestCode, header: object | None = None, body: bytes = b"") -> RemotingCommand:
    return RemotingCommand(code, ext_fields=encode_header(header) if header is not None else {}, body=body)


def made(topic: str) -> RemotingCommand:
    return request(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(topic, 1, 1, 6, "SINGLE_TAG", 0))


def make_topic(_broker: BrokerController, number: int) -> RemotingCommand:
    return made(f"new{number}")


def delete_topic(_broker: BrokerController, number: int) -> RemotingCommand:
    return request(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader(f"old{number}"))


def grow_group(_broker: BrokerController, number: int) -> RemotingCommand:
    body = json.dumps({"groupName": "g", "retryQueueNums": 2 + number}).encode()
    return request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)


def delete_group(_broker: BrokerController, number: int) -> RemotingCommand:
    header = DeleteSubscriptionGroupRequestHeader(f"old{number}", remove_offset=True)
    return request(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)


def set_offset(broker: BrokerController, number: int) -> RemotingCommand:
    broker.offsets.commit_offset("g", "t", 0, offset=100 + number)
    return request(RequestCode.SAVE_CONSUMER_OFFSETS, SaveConsumerOffsetsRequestHeader("g", "t"))


def shown(machine: Machine, number: int) -> dict[str, Any]:
    """What the disk holds of it."""

    def table(name: str, key: str) -> dict[str, Any]:
        saved: dict[str, Any] = java_json.loads(bytes(machine.disk.files[f"/store/config/{name}.json"].durable))[key]
        return saved

    topics = table("topics", "topicConfigTable")
    groups = table("subscriptionGroup", "subscriptionGroupTable")
    offsets = table("consumerOffset", "offsetTable")
    return {
        "make_topic": f"new{number}" in topics,
        "delete_topic": f"old{number}" not in topics,
        "grow_group": (groups["g"]["retryQueueNums"], topics[RETRY]["writeQueueNums"]) == (2 + number, 2 + number),
        "delete_group": f"old{number}" not in groups and f"t@old{number}" not in offsets,
        "set_offset": offsets["t@g"] == {0: 100 + number},
    }


CHANGES: Final[list[Change]] = [make_topic, delete_topic, grow_group, delete_group, set_offset]
DELAYS_S: Final = [number * 0.25 for number in range(16)]


class SlowFiles:
    """Each file takes a while, before it is written and behind that; ``full`` names those for which there is no room.

    What is under way then is still written.
    """

    def __init__(self, broker: BrokerController, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full: tuple[str, ...] = ()
        self._save: Callable[[str, dict[str, Any]], Awaitable[None]] = broker.metadata.files.save
        monkeypatch.setattr(broker.metadata.files, "save", self.save)

    async def save(self, name: str, value: dict[str, Any]) -> None:
        if name in self.full:
            raise StoreWriteError(OSError(ENOSPC, "no room"), operation="write", path=name)
        await trio.sleep(SAVE_S)
        await self._save(name, value)
        await trio.sleep(SAVE_S)


async def prepare(broker: BrokerController, client: RemotingClient) -> None:
    """What is to be deleted, and a group with a retry topic."""
    for number in range(len(DELAYS_S)):
        assert (await ask(client, made(f"old{number}"))).code == ResponseCode.SUCCESS
        body = json.dumps({"groupName": f"old{number}"}).encode()
        group = request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        assert (await ask(client, group)).code == ResponseCode.SUCCESS
        broker.offsets.commit_offset(f"old{number}", "t", 0, offset=3)
    broker.topics.create_topic_in_send_message_back_method(RETRY, queue_nums=1, topic_sys_flag=0, peer="10.9.9.9:9")
    assert (await ask(client, grow_group(broker, -1))).code == ResponseCode.SUCCESS
    assert (await ask(client, set_offset(broker, 0))).code == ResponseCode.SUCCESS


async def touch(broker: BrokerController, client: RemotingClient, number: int) -> None:
    """Have all tables saved."""
    broker.offsets.commit_offset("other", "t", 0, offset=number)
    body = json.dumps({"groupName": f"other{number}"}).encode()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, client, made(f"other{number}"))
        nursery.start_soon(ask, client, request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body))


@pytest.mark.parametrize("full", [(), (TOPICS,), (SUBSCRIPTION_GROUP,), (CONSUMER_OFFSET,)], ids=str)
@pytest.mark.parametrize("change", CHANGES, ids=[one.__name__ for one in CHANGES])
async def test_what_is_said_to_be_done_is_on_the_disk(
    change: Change, full: tuple[str, ...], virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash right behind the answer takes nothing of it. It comes within five seconds, for which mqadmin waits."""
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker() as broker, machine.client() as client, machine.client() as other:
        await prepare(broker, client)
        files, done = SlowFiles(broker, monkeypatch), 0
        for number, delay_s in enumerate(DELAYS_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(touch, broker, other, number)
                await trio.sleep(delay_s)
                files.full = full
                with trio.fail_after(5):
                    answer = await ask(client, change(broker, number))
                files.full = ()
                if answer.code == ResponseCode.SUCCESS:
                    done += 1
                    assert shown(machine, number)[change.__name__], delay_s
            await trio.sleep(10)
        assert full or done > len(DELAYS_S) // 2


async def test_who_sends_to_what_could_not_be_saved_has_that_tried_again_at_once(virtual_clock: VirtualClock) -> None:
    """Until the next save by itself, some seconds later, each send to a new topic was refused though there was room."""
    machine = Machine(SimNet(), "10.0.0.1", {"brokerRole": "ASYNC_MASTER"})
    async with machine.broker(), machine.client() as client:
        assert (await ask(client, send_request(b"x"))).code == ResponseCode.SUCCESS
        machine.disk.faults.full = True
        refused = await ask(client, send_request(b"x", topic="new"))
        assert "could not be saved" in (refused.remark or "")
        await trio.sleep(0.5)
        machine.disk.faults.full = False
        begun_at = trio.current_time()
        assert (await ask(client, send_request(b"x", topic="new"))).code == ResponseCode.SUCCESS
        assert trio.current_time() - begun_at < 0.5
