"""A broker alone on a simulated machine; a file that wants another one makes its own ``machine``."""

from collections.abc import AsyncIterator

import pytest

from rmqha.broker.broker_controller import BrokerController
from rmqha.remoting.client import RemotingClient
from tests.broker.machines import Machine
from tests.sim.sim_net import SimNet


@pytest.fixture
def machine() -> Machine:
    return Machine(SimNet(), "10.0.0.1")


@pytest.fixture
async def broker(machine: Machine) -> AsyncIterator[BrokerController]:
    async with machine.broker() as controller:
        yield controller


@pytest.fixture
async def client(machine: Machine, broker: BrokerController) -> AsyncIterator[RemotingClient]:
    async with machine.client() as connected:
        yield connected
