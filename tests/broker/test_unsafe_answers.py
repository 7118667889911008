"""That sends are not answered SEND_OK: a line in the log at once, and then one a minute with how many there were."""

import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.broker.puts.unsafe_answers import LINE_EVERY_S, UnsafeAnswers
from rmqha.cli.pages import Page
from rmqha.cli.status_text import render_status
from rmqha.cli.verdict import judge
from rmqha.codec.codes import ResponseCode
from rmqha.store.status import PutMessageStatus
from tests.broker.machines import Machine, ask, send_request
from tests.broker.test_pair import Pair, status
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


async def test_since_when_and_how_sends_are_answered_is_in_the_status(autojump_clock: MockClock) -> None:
    """A slave that is late, or a disk, left it ok; of a slave that is away nobody read since when."""
    machine = Machine(SimNet(), "10.0.0.1", {"brokerRole": "SYNC_MASTER"})
    async with machine.broker(), machine.client() as client:
        await trio.sleep(60)
        for _ in range(3):
            await ask(client, send_request(b"x"))
            await trio.sleep(9)
        facts = await status(client)
        below, unsafe = judge(facts).reasons
        assert below.startswith("0 of the 1 slaves that a send needs are in sync: for 87 s fewer have been connected")
        assert unsafe.startswith(
            "some sends are not answered SEND_OK for 18 s, the last 9 s ago: SLAVE_NOT_AVAILABLE 3; see docs/"
        )
        await trio.sleep(30)
        facts = await status(client)
        assert len(judge(facts).reasons) == 1
        shown = render_status(facts, judge(facts))
        assert (
            "  unsafe   some sends were not answered SEND_OK for 18 s, the last 39 s ago: SLAVE_NOT_AVAILABLE 3"
            in shown
        )


async def test_that_too_few_replicas_refuse_sends_is_in_the_status(autojump_clock: MockClock) -> None:
    """It was degraded, as if sends were stored; only /readyz and the answers said that they were refused."""
    pair = Pair()
    pair.master.settings |= {"minInSyncReplicas": "2"}
    async with pair.master.broker(), pair.master.client() as client:
        assert (await ask(client, send_request(b"x"))).code == ResponseCode.SERVICE_NOT_AVAILABLE
        verdict = judge(await status(client))
        refused = "sends are refused: 1 of the 2 replicas that minInSyncReplicas asks for are there"
        assert (verdict.level, verdict.reasons[0]) == ("failed", f"{refused}; see {Page.NOT_SEND_OK}")
        async with pair.slave.broker():
            await trio.sleep(30)
            assert judge(await status(client)).level == "ok"
