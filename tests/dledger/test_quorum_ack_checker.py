"""What a majority has, and how each way of waiting ends."""

import pytest

from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.quorum_ack_checker import AppendFuture, QuorumAckChecker

Code = DLedgerResponseCode


def checker(size: int = 3, *, inherited: int = -1, most: int = 10000) -> QuorumAckChecker:
    peers = frozenset(f"n{n}" for n in range(size))
    return QuorumAckChecker(peers, inherited_index=inherited, max_pending_requests_num=most)


@pytest.mark.parametrize(
    ("marks", "committed"),
    [([7], 7), ([7, 3], 3), ([7, 3, -1], 3), ([7, -1, -1], -1), ([9, 7, 5, 3], 5), ([9, 7, 5, 3, 1], 5)],
)
def test_a_majority_s_entry(marks: list[int], committed: int) -> None:
    """Seed checklist: updatePeerWaterMark, peerWaterMarksByTerm (spec: dledger §2.6, §3.7)."""
    of = checker(len(marks))
    for number, mark in enumerate(marks):
        of.update_peer_water_mark(f"n{number}", mark)
        of.update_peer_water_mark(f"n{number}", mark - 1)
    assert of.committed == committed


def test_an_older_term_s_entry_is_not_committed_by_counting() -> None:
    """§7.3 row 1, Raft's figure 8: DLedger counts."""
    of = checker(inherited=7)
    for peer in ("n0", "n1"):
        of.update_peer_water_mark(peer, 7)
    assert of.committed == -1
    of.update_peer_water_mark("n2", 5)
    assert of.committed == 5, "all members have it, and so has the next leader"
    for peer in ("n0", "n1"):
        of.update_peer_water_mark(peer, 8)
    assert of.committed == 8


def test_every_end_of_waiting() -> None:
    """Seed checklist: waitAck, AppendFuture, maxWaitAckTimeMs (spec: dledger §2.7); §7.3 rows 14 and 15."""
    of, told = checker(), list[tuple[int, Code]]()
    for index in range(6):
        of.wait_ack(AppendFuture(index, 2.5 if index < 4 else 9, lambda code, index=index: told.append((index, code))))  # type: ignore[misc]
    of.complete(1)
    assert told == [(0, Code.SUCCESS), (1, Code.SUCCESS)]
    of.time_out(now=2.5)
    assert told[2:] == [(2, Code.WAIT_QUORUM_ACK_TIMEOUT), (3, Code.WAIT_QUORUM_ACK_TIMEOUT)]
    assert of.times_out_at == 9
    of.complete(4)
    of.end()
    assert told[4:] == [(4, Code.SUCCESS), (5, Code.TERM_CHANGED)]


def test_one_more_than_the_option_says_is_let_in() -> None:
    """Seed checklist: isPendingFull, maxPendingRequestsNum (spec: dledger §2.3)."""
    of = checker(most=3)
    for index in range(4):
        assert not of.is_pending_full
        of.wait_ack(AppendFuture(index, 9, lambda code: None))
    assert of.is_pending_full
    of.time_out(now=9)
    assert not of.is_pending_full
