"""What a new leader has from those before it: a majority that has it is no proof that it stays."""

import pytest

from rmqha.dledger.dledger_entry_pusher import DLedgerEntryPusher
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from tests.dledger.defaults import pusher_options
from tests.dledger.members import lead, leader, put
from tests.sim.sim_disk import SimDisk


@pytest.mark.parametrize("flushed", [0, 1, 2], ids=["none", "one", "all"])
async def test_what_a_leader_inherits_is_committed_by_an_entry_of_its_own_term(flushed: int) -> None:
    """However much of it was durable here when it was elected: another leader may yet cut it elsewhere."""
    store = leader(SimDisk(latency_s=(0, 0)).mount())
    for number, body in enumerate((b"one", b"two")):
        put(store, body)
        if number < flushed:
            assert await store.flush_in_thread()
    assert store.flushed_index == flushed - 1
    lead(store, 2)
    pusher = DLedgerEntryPusher[int](store, frozenset({"n0", "n1", "n2"}), options=pusher_options(acks_flushed=True))
    assert pusher.begin_leading()
    assert pusher.checker is not None
    assert await store.flush_in_thread()
    pusher.checker.update_peer_water_mark("n1", 1)
    assert not pusher.advance(now=0)
    assert store.committed_index == -1
    told: list[DLedgerResponseCode] = []
    pusher.append(b"its own", lambda _entry, code: told.append(code), now=0)
    pusher.checker.update_peer_water_mark("n1", 2)
    assert not pusher.advance(now=0), "not durable here"
    assert await store.flush_in_thread()
    assert pusher.advance(now=0)
    assert (store.committed_index, told) == (2, [DLedgerResponseCode.SUCCESS])
