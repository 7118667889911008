"""What a broker says of damage in its log for as long as the log holds it, and no longer."""

import trio
from trio.testing import MockClock

from rmqha.cli.verdict import judge
from rmqha.codec.codes import ResponseCode
from tests.broker.machines import Machine, ask, pull_request, send_request, status_of
from tests.sim.sim_net import SimNet
from tests.store.helpers import commit_log

SEGMENT = 65536
BODY_AT = 92
"""Behind the beginning of a record, in its body."""


async def test_a_status_tells_of_no_record_that_has_been_deleted(autojump_clock: MockClock) -> None:
    """A broker that nobody scrapes would be degraded until its next start, for a file that is gone."""
    machine = Machine(SimNet(), "10.0.0.1", {"brokerRole": "ASYNC_MASTER"})
    async with machine.broker() as broker, machine.client() as client:
        for _ in range(10):
            assert (await ask(client, send_request(bytes(10_000)))).code == ResponseCode.SUCCESS
        assert broker.store.max_offset > SEGMENT
        await trio.sleep(2)
        for segment in (0, SEGMENT):
            machine.disk.files[f"/store/commitlog/{segment:020}"].cache[BODY_AT] ^= 1
        for first in (0, 6):
            assert (await ask(client, pull_request(first, max_num=4))).code == ResponseCode.SUCCESS
        await trio.sleep(2)
        facts = await status_of(machine)
        assert "2 records are damaged in its log, the first at offset 0" in facts["damaged_records"]
        assert judge(facts).level == "degraded"
        await commit_log(broker.store).queue.delete_first_in_thread()
        facts = await status_of(machine)
        assert f"a record is damaged in its log, the first at offset {SEGMENT}" in facts["damaged_records"]
        for _ in range(10):
            await ask(client, send_request(bytes(10_000)))
        await commit_log(broker.store).queue.delete_first_in_thread()
        facts = await status_of(machine)
        assert (facts["min_offset"], facts["damaged_records"]) == (2 * SEGMENT, None)
        assert judge(facts).level == "ok"
