"""Reads that a leader cannot prove, at present or in time, and what it says of entries that are not committed."""

from types import SimpleNamespace
from typing import Any

import pytest

from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.proven_reads import ProvenReads
from tests.dledger.members import leader, put
from tests.sim.sim_disk import SimDisk

Code = DLedgerResponseCode


class Reader:
    """Asks a leader of three entries, of which the first two are committed unless said otherwise."""

    def __init__(self, *, committed: int = 1, inherited: int = -1, confirmed: int = 1) -> None:
        self.store = leader(SimDisk(latency_s=(0, 0)).mount())
        put(self.store, b"one", b"two", b"three")
        self.store.update_committed_index(1, committed)
        elector: Any = SimpleNamespace(prove=lambda: 1, confirmed_beat=confirmed)
        self.elector = elector
        pusher: Any = SimpleNamespace(checker=SimpleNamespace(inherited_index=inherited))
        self.barriers: list[None] = []
        self.reads = ProvenReads(self.store, elector, pusher, append_barrier=lambda: self.barriers.append(None))
        self.told: list[tuple[Code, bytes | None]] = []

    def ask(self, index: int, *, now: float) -> None:
        self.reads.ask(index, self.tell, now=now)

    def tell(self, code: Code, entry: DLedgerEntry | None) -> None:
        self.told.append((code, None if entry is None else entry.body))


def test_what_is_in_the_log_and_not_committed_is_told_to_nobody() -> None:
    """The next leader may cut it: who has read it saw what never was."""
    reader = Reader()
    for index in (1, 2, 3):
        reader.ask(index, now=0.0)
    reader.reads.step(now=0.0)
    assert reader.told == [(Code.SUCCESS, b"two"), (Code.INDEX_OUT_OF_RANGE, None), (Code.INDEX_OUT_OF_RANGE, None)]
    reader.store.update_committed_index(1, 2)
    reader.ask(2, now=0.0)
    reader.reads.step(now=0.0)
    assert reader.told[3:] == [(Code.SUCCESS, b"three")]


@pytest.mark.parametrize("confirmed", [0, 1], ids=["it may lead no more", "what it inherited is not committed"])
def test_a_read_that_cannot_be_proven_ends_in_time_and_holds_nobody_up(confirmed: int) -> None:
    """Its client has left by then; those behind it would wait for ever."""
    reader = Reader(inherited=2, confirmed=confirmed)
    reader.ask(2, now=0.0)
    reader.ask(0, now=1.0)
    reader.reads.step(now=2.4)
    assert (reader.told, reader.reads.due_at) == ([], 2.5)
    assert len(reader.barriers) == confirmed, "an entry of its term commits it"
    reader.reads.step(now=2.5)
    answered = [(Code.NOT_LEADER, None), (Code.SUCCESS, b"one")]
    assert reader.told == answered[: 1 + confirmed]
    reader.elector.confirmed_beat = 1
    reader.reads.step(now=2.6)
    assert reader.told == answered
