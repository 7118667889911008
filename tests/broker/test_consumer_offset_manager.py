"""Consumer offsets: a commit sets them, forwards or back; only a slave keeps the larger one, of its master's."""

import pytest
from trio.testing import MockClock

from rmqha.broker.consumer_offset_manager import ConsumerOffsetManager
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import UpdateConsumerOffsetRequestHeader, encode_header
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import RemoteProtocolError
from tests.broker.machines import Machine, ask, send_request
from tests.sim.sim_net import SimNet


def test_a_commit_may_go_back() -> None:
    offsets = ConsumerOffsetManager()
    for offset in (10, 3, 7, 0):
        offsets.dirty = False
        offsets.commit_offset("g", "t", 0, offset=offset)
        assert offsets.query_offset("g", "t", 0) == offset
        assert offsets.dirty
    again = ConsumerOffsetManager()
    again.replace_from_json(offsets.to_json())
    assert again.query_offset("g", "t", 0) == 0


def test_a_slave_keeps_the_larger_of_its_own_and_its_masters() -> None:
    offsets, master = ConsumerOffsetManager(), ConsumerOffsetManager()
    offsets.commit_offset("g", "t", 0, offset=5)
    for offset, kept in ((3, 5), (8, 8), (7, 8)):
        master.commit_offset("g", "t", 0, offset=offset)
        offsets.merge_from_master(master.to_json())
        assert offsets.query_offset("g", "t", 0) == kept
    offsets.commit_offset("g", "t", 0, offset=1)
    assert offsets.query_offset("g", "t", 0) == 1, "what a consumer commits here counts, too"


def test_what_came_from_the_master_counts_for_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqha.broker.consumer_offset_manager.ENTRIES_MAX", 3)
    offsets, master = ConsumerOffsetManager(), ConsumerOffsetManager()
    for queue_id in range(2):
        master.commit_offset("g", "t", queue_id, offset=5)
        offsets.merge_from_master(master.to_json())
    offsets.commit_offset("g", "t", 2, offset=1)
    with pytest.raises(RemoteProtocolError, match="the offsets of 3 queues are kept, the limit"):
        offsets.commit_offset("g", "t", 3, offset=1)
    offsets.commit_offset("g", "t", 1, offset=1)


async def test_a_commit_back_is_there_after_a_restart(autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1", {"brokerRole": "ASYNC_MASTER"})
    async with machine.broker() as broker, machine.client() as client:
        for number in range(5):
            await ask(client, send_request(b"%d" % number))
        for offset in (5, 3):
            header = UpdateConsumerOffsetRequestHeader("g", "t", 0, offset)
            request = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=encode_header(header))
            assert (await ask(client, request)).code == ResponseCode.SUCCESS
            assert broker.offsets.query_offset("g", "t", 0) == offset
    async with machine.broker() as broker:
        assert broker.offsets.query_offset("g", "t", 0) == 3
