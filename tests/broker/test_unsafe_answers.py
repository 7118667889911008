"""That sends are not answered SEND_OK: a line in the log at once, and then one a minute with how many there were."""

from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.broker.puts.unsafe_answers import LINE_EVERY_S, UnsafeAnswers
from rmqha.codec.codes import ResponseCode
from rmqha.store.status import PutMessageStatus
from tests.broker.machines import Machine, ask, send_request
from tests.sim.sim_net import SimNet

OK, LATE = PutMessageStatus.PUT_OK, PutMessageStatus.FLUSH_SLAVE_TIMEOUT


def test_the_first_is_told_at_once_and_the_others_together() -> None:
    now, counted = 0.0, list[PutMessageStatus]()
    unsafe = UnsafeAnswers(counted.extend, clock=lambda: now)
    with capture_logs() as logs:
        unsafe.note([OK, LATE])
        unsafe.note([LATE, LATE])
        now = LINE_EVERY_S
        unsafe.note([LATE])
    assert [line["answers"] for line in logs] == [{LATE.value: 1}, {LATE.value: 3}]
    assert counted == [OK, LATE, LATE, LATE, LATE]


async def test_a_broker_whose_sends_no_slave_holds_says_so(autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1", {"brokerRole": "SYNC_MASTER"})
    with capture_logs() as logs:
        async with machine.broker(), machine.client() as client:
            for _ in range(9):
                assert (await ask(client, send_request(b"x"))).code == ResponseCode.SLAVE_NOT_AVAILABLE
    (line,) = [line for line in logs if line["event"] == "puts.not_send_ok"]
    assert line["answers"] == {"SLAVE_NOT_AVAILABLE": 1}
