"""MasterLink: what a slave takes over of its master's tables."""

import threading
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker import master_link
from rmqha.broker.consumer_offset_manager import OffsetTable, decode_offsets
from rmqha.codec.remoting import RemotingCommand
from tests.broker.machines import Machine
from tests.sim.sim_net import SimNet


@pytest.mark.parametrize("is_large", [False, True])
async def test_a_large_table_is_read_in_a_thread(
    is_large: bool, monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock
) -> None:
    """To read it takes seconds, during which a slave would acknowledge nothing."""
    read_by: set[bool] = set()
    json_of = master_link.json_of

    def note_thread() -> None:
        read_by.add(threading.current_thread() is threading.main_thread())

    def noticed_json_of(answer: RemotingCommand) -> dict[str, Any]:
        if b"offsetTable" in answer.body:
            note_thread()
        return json_of(answer)

    def noticed_decode_offsets(value: dict[str, Any]) -> OffsetTable:
        note_thread()
        return decode_offsets(value)

    monkeypatch.setattr(master_link, "json_of", noticed_json_of)
    monkeypatch.setattr("rmqha.broker.master_link.decode_offsets", noticed_decode_offsets)
    mock_clock.rate = 50  # a thread works in real time
    net = SimNet()
    group = {"masterAddress": "10.0.0.1:10911", "haMasterAddress": "10.0.0.1:10912"}
    machine = Machine(net, "10.0.0.1")
    other = Machine(net, "10.0.0.2", group | {"brokerRole": "SLAVE", "brokerId": "1"})
    async with machine.broker() as master, other.broker() as slave:
        for number in range(5000 if is_large else 5):
            master.offsets.commit_offset(f"group{number}", "t", 0, offset=number)
        merged, merge = trio.Event(), slave.offsets.merge_from_master

        async def merge_from_master(table: OffsetTable) -> None:
            await merge(table)
            merged.set()

        monkeypatch.setattr(slave.offsets, "merge_from_master", merge_from_master)
        await merged.wait()
        assert slave.offsets.query_offset("group4", "t", 0) == 4
    assert read_by == {not is_large}
