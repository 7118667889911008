"""With ``longPollingEnable=false`` a pull that finds nothing is held for a moment, whatever its client asks for."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.codes import ResponseCode
from tests.broker.machines import Machine, ask, pull_request, send_request
from tests.sim.sim_net import SimNet


@pytest.mark.parametrize(
    ("keys", "suspend_ms", "held_s"),
    [
        ({"longPollingEnable": "false"}, 15_000, 1),
        ({"longPollingEnable": "false", "shortPollingTimeMills": "3000"}, 15_000, 3),
        ({"longPollingEnable": "true", "shortPollingTimeMills": "3000"}, 15_000, 15),
        ({"longPollingEnable": "true"}, 3_600_000, 60),
    ],
)
async def test_a_pull_is_held_as_long_as_the_operator_lets_it(
    keys: dict[str, str], suspend_ms: int, held_s: float, autojump_clock: MockClock
) -> None:
    machine = Machine(SimNet(), "10.0.0.1", keys)
    async with machine.broker(), machine.client() as client:
        await ask(client, send_request(b"x", queue_id=1))
        begun_at = trio.current_time()
        answer = await client.invoke(pull_request(0, suspend_ms=suspend_ms), timeout_s=100)
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert trio.current_time() - begun_at == pytest.approx(held_s, abs=0.1)
