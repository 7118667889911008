"""The hole "forged report" (#1155, #3015): eight bytes on the HA port made every later SYNC_MASTER send a SEND_OK.

Executed on RocketMQ 4.9.7: a report of 2^63-1, then a second connection with a negative one that stays open, and 40 of
40 sends without any replica were answered SEND_OK.
"""

import sys
from pathlib import Path

import pytest
import trio

from tests.e2e.load import SEND_OK, Answer, Sends, body_of_size
from tests.e2e.processes import RmqhaBroker, reaping

HUGE = (2**63 - 1).to_bytes(8)
NEGATIVE = (-(2**63)).to_bytes(8, signed=True)
SENDS = 40

UNCHECKED = """
import sys
from rmqha.replication.in_sync import InSyncReplicas
from rmqha.replication.master_session import MasterSession

def on_report(self, offset, *, log):  # as RocketMQ 4.9 does it
    if not self.is_transferring:
        self.first_report = self.next_transfer_from_where = log.max_offset
    self.slave_ack_offset = max(self.slave_ack_offset, offset)

def acknowledge(self, replica, offset, *, begins_at):  # from the first report on, and for whatever was before
    replica.begins_at, replica.reported = -1, offset

MasterSession.on_report = on_report
InSyncReplicas.acknowledge = acknowledge
from rmqha.cli.main import main
sys.argv[0] = "rmqha"
main()
"""


class UncheckedBroker(RmqhaBroker):
    """The same broker with the check taken out: the control."""

    def argv(self) -> list[str]:
        return [sys.executable, "-c", UNCHECKED, "master", "-c", str(self.conf_file)]


async def send_ok_count(port: int) -> int:
    """How many of ``SENDS`` sends, one after the other, are answered SEND_OK."""
    sends = Sends("orders", body=body_of_size(100))
    count = 0
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        for _ in range(SENDS):
            await stream.send_all(sends.request())
            answers: list[Answer] = []
            while not answers:
                answers = sends.receive(await stream.receive_some(65_536))
            count += answers[0].code == SEND_OK
    return count


async def send_ok_after(master: RmqhaBroker, *reports: bytes) -> int:
    """Forge these reports, each on a connection of its own that stays open; then send."""
    with reaping(master):
        await master.start()
        streams = [await trio.open_tcp_stream("127.0.0.1", master.ports.ha) for _ in reports]
        for stream, report in zip(streams, reports, strict=True):
            await stream.send_all(report)
        await trio.sleep(0.3)
        count = await send_ok_count(master.ports.listen)
        assert master.running.returncode is None
        for stream in streams:
            await stream.aclose()
        return count


CONF = {
    "brokerRole": "SYNC_MASTER",
    "mappedFileSizeCommitLog": 1 << 20,
    "slaveTimeout": 50,
}


@pytest.mark.parametrize(
    "reports",
    [(HUGE, NEGATIVE), (HUGE,), (bytes(8) + HUGE,), (bytes(8) + (1 << 40).to_bytes(8),), (HUGE * 3,), (NEGATIVE,)],
    ids=["rocketmq", "huge", "huge-second", "beyond-sent", "again", "negative"],
)
async def test_a_forged_report_acknowledges_nothing(tmp_path: Path, reports: tuple[bytes, ...]) -> None:
    master = RmqhaBroker(tmp_path / "master", CONF)
    assert await send_ok_after(master, *reports) == 0


async def test_control_without_the_check_the_report_counts(tmp_path: Path) -> None:
    """If this fails, the test above shows nothing."""
    master = UncheckedBroker(tmp_path / "master", CONF)
    assert await send_ok_after(master, HUGE) > 0


async def test_a_falling_report_takes_nothing_back(tmp_path: Path) -> None:
    """A slave that acknowledges, falls back and is cut off: its acknowledgement went with it."""
    master = RmqhaBroker(tmp_path / "master", CONF)
    with reaping(master):
        await master.start()
        stream = await trio.open_tcp_stream("127.0.0.1", master.ports.ha)
        async with stream:
            await stream.send_all(bytes(8))
            assert await send_ok_count(master.ports.listen) == 0
            received = 0
            while received < SENDS * 100:
                received += len(await stream.receive_some(65_536))
            await stream.send_all((100).to_bytes(8) + (50).to_bytes(8))
            with trio.fail_after(60):
                while await stream.receive_some(65_536):
                    pass
        await master.running.wait_output("report fell from 100 to 50")
