"""What changes while a pull is held: it goes by what is allowed, and subscribed to, when its message comes."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupConfig
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import PullMessageRequestHeader, PullSysFlag, encode_header
from rmqha.codec.heartbeat import build_subscription_data
from rmqha.codec.limits import GROUP_SIZE_MAX
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.route import PERM_WRITE
from tests.broker.group_members import Member, consuming, member_of
from tests.broker.machines import Machine, ask, pull_request, send_request
from tests.sim.sim_net import SimNet

Change = Callable[[BrokerController], None]


def _forbid_group(broker: BrokerController) -> None:
    broker.groups.update(SubscriptionGroupConfig("consumers", consume_enable=False))


def _forbid_topic(broker: BrokerController) -> None:
    config = broker.topics.select("t")
    assert config is not None
    broker.topics.update_topic_config(replace(config, perm=PERM_WRITE))


def _leave(broker: BrokerController) -> None:
    broker.groups.update(SubscriptionGroupConfig("others", consume_enable=False))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (_forbid_group, ResponseCode.NO_PERMISSION),
        (_forbid_topic, ResponseCode.NO_PERMISSION),
        (_leave, ResponseCode.SUCCESS),
    ],
)
async def test_a_held_pull_goes_by_what_is_allowed_when_it_goes_on(
    change: Change, code: ResponseCode, autojump_clock: MockClock
) -> None:
    """A consumer that was forbidden to read was given one more answer, up to a minute later."""
    machine, answers = Machine(SimNet(), "10.0.0.1", {}), list[RemotingCommand]()
    async with machine.broker() as broker, machine.client() as client:
        await ask(client, send_request(b"first"))

        async def pull() -> None:
            answers.append(await ask(client, pull_request(1, suspend_ms=20_000)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pull)
            await trio.sleep(1)
            change(broker)
            await ask(client, send_request(b"second"))
    assert answers[0].code == code
    assert (b"second" in bytes(answers[0].body)) is (code == ResponseCode.SUCCESS)


def _pull_of_member(offset: int) -> RemotingCommand:
    """As a push consumer sends it: what it is for, its heartbeats have said."""
    header = PullMessageRequestHeader("consumers", "t", 0, offset, 32, PullSysFlag.SUSPEND, 0, 20_000, sub_version=1)
    return RemotingCommand(RequestCode.PULL_MESSAGE, ext_fields=encode_header(header))


async def _subscribe(member: Member, expression: str, version: int, *, topic: str = "t") -> None:
    await member.heartbeat(consuming("consumers", build_subscription_data(topic, expression, sub_version=version)))


async def test_a_held_pull_goes_by_what_its_group_subscribes_to_when_a_message_comes(
    machine: Machine, autojump_clock: MockClock
) -> None:
    """It went by the tags of the time when it came: a message was delivered that nobody subscribed to any more."""
    answers = list[RemotingCommand]()
    async with machine.broker(), machine.client() as client, member_of(machine, "one") as member:
        await ask(client, send_request(b"first"))
        await _subscribe(member, "A", 1)

        async def pull() -> None:
            answers.append(await member.ask(_pull_of_member(1)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pull)
            await trio.sleep(1)
            await _subscribe(member, "B", 2)
            await ask(client, send_request(b"of the former tag", properties="TAGS\x01A"))
            await trio.sleep(1)
            assert answers == []
            await ask(client, send_request(b"of the new tag", properties="TAGS\x01B"))
    assert answers[0].code == ResponseCode.SUCCESS
    assert b"of the new tag" in bytes(answers[0].body)
    assert b"of the former tag" not in bytes(answers[0].body)


async def test_a_held_pull_of_a_topic_that_its_group_has_left_is_told_so(
    machine: Machine, autojump_clock: MockClock
) -> None:
    answers = list[RemotingCommand]()
    async with machine.broker(), machine.client() as client, member_of(machine, "one") as member:
        await ask(client, send_request(b"first"))
        await _subscribe(member, "A", 1)

        async def pull() -> None:
            answers.append(await member.ask(_pull_of_member(1)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pull)
            await trio.sleep(1)
            await _subscribe(member, "*", 2, topic="another")
            await ask(client, send_request(b"second", properties="TAGS\x01A"))
    assert answers[0].code == ResponseCode.SUBSCRIPTION_NOT_EXIST


async def test_a_held_pull_that_named_its_tags_itself_keeps_them(machine: Machine, autojump_clock: MockClock) -> None:
    """Whatever members of its group subscribe to meanwhile."""
    answers = list[RemotingCommand]()
    async with machine.broker(), machine.client() as client, member_of(machine, "one") as member:
        await ask(client, send_request(b"first"))

        async def pull() -> None:
            answers.append(await ask(client, pull_request(1, suspend_ms=20_000, subscription="A")))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pull)
            await trio.sleep(1)
            await _subscribe(member, "B", 2)
            await ask(client, send_request(b"second", properties="TAGS\x01A"))
    assert b"second" in bytes(answers[0].body)


async def test_a_held_pull_of_a_group_whose_name_is_not_kept_keeps_its_tags(
    machine: Machine, autojump_clock: MockClock
) -> None:
    """Such a name is longer than that of any group that is made; its members are served all the same."""
    name, answers = "g" * (GROUP_SIZE_MAX + 1), list[RemotingCommand]()
    async with machine.broker(), machine.client() as client, member_of(machine, "one") as member:
        await ask(client, send_request(b"first"))
        await member.heartbeat(consuming(name, build_subscription_data("t", "A", sub_version=1)))

        async def pull() -> None:
            request = _pull_of_member(1)
            request.ext_fields["consumerGroup"] = name
            answers.append(await member.ask(request))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pull)
            await trio.sleep(1)
            await ask(client, send_request(b"of another tag", properties="TAGS\x01B"))
            await ask(client, send_request(b"second", properties="TAGS\x01A"))
    assert answers[0].code == ResponseCode.SUCCESS
    assert b"second" in bytes(answers[0].body)
    assert b"of another tag" not in bytes(answers[0].body)
