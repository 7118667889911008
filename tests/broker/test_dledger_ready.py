"""When a leader's broker is ready to be master, and what it does for that meanwhile."""

from types import SimpleNamespace
from typing import Any

from rmqha.broker.dledger.dledger_replication import DLedgerReplication
from tests.dledger.members import lead, leader, put
from tests.sim.sim_disk import SimDisk


def test_for_what_it_inherited_one_entry_is_appended_however_long_it_waits() -> None:
    """It looks a hundred times a second: where a majority is missing its log, and then its disk, would fill up."""
    ledger = leader(SimDisk(latency_s=(0, 0)).mount())
    put(ledger, b"one", b"two")
    lead(ledger, 2)
    pusher = SimpleNamespace(checker=SimpleNamespace(inherited_index=1))
    server: Any = SimpleNamespace(pusher=pusher, barrier=SimpleNamespace(append=lambda: put(ledger, b"barrier")))
    log = SimpleNamespace(lacks_first_entry=False, confirmed=0, max_offset=100)
    store = SimpleNamespace(reput_from_offset=0)
    broker: Any = SimpleNamespace(_ledger=ledger, _log=log, _store=store)

    def is_ready() -> bool:
        return DLedgerReplication._is_ready(broker, server)

    assert not any(is_ready() for _ in range(500))
    assert (ledger.ledger_end_index, ledger.ledger_end_term) == (2, 2)
    ledger.update_committed_index(2, 2)
    assert not is_ready(), "it is not durable here"
    log.confirmed = 100
    assert not is_ready(), "it is in no queue yet"
    store.reput_from_offset = 100
    assert is_ready()
    assert ledger.ledger_end_index == 2
    pusher.checker = None
    assert not is_ready(), "it leads no more"
