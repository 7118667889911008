"""What changes while a pull is held: it goes by what is allowed when its message comes."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupConfig
from rmqha.codec.codes import ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.route import PERM_WRITE
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
