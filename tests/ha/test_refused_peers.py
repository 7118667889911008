"""Who was turned away is remembered, within bounds."""

from rmqha.ha.refused_peers import RefusedPeers
from rmqha.log_limit import LogLimit
from rmqha.replication.master_session import Refusal, RefusedSlaveError


def test_only_what_is_new_belongs_in_the_log() -> None:
    refused = RefusedPeers()
    assert refused.note("a", RefusedSlaveError(Refusal.AHEAD, "x"), now=0.0)
    assert not refused.note("a", RefusedSlaveError(Refusal.AHEAD, "x"), now=1.0)
    assert refused.note("a", RefusedSlaveError(Refusal.SILENT, "y"), now=2.0)
    (info,) = refused.info(now=5.0)
    assert (info.reason, info.count, info.last_s_ago) == ("silent", 3, 3.0)
    refused.forget("a")
    assert refused.info(now=5.0) == ()


def test_what_is_long_ago_is_not_counted_with_what_comes_now() -> None:
    """So a port that somebody mistook today, and another one last week, is no stranger that comes again and again."""
    refused = RefusedPeers()
    for now, count in ((0.0, 1), (600.0, 2), (1200.5, 1), (1201.0, 2)):
        refused.note("a", RefusedSlaveError(Refusal.STRANGER, "x"), now=now)
        assert [info.count for info in refused.info(now=now)] == [count]


def test_a_log_that_did_not_fit_is_looked_at_again_a_second_later() -> None:
    refused = RefusedPeers()
    for refusal in (Refusal.AHEAD, Refusal.BELOW_MIN, Refusal.STRANGER):
        refused.note(refusal.value, RefusedSlaveError(refusal, "x"), now=7.0)
    assert [refused.serve_at(r.value) for r in (Refusal.AHEAD, Refusal.BELOW_MIN, Refusal.STRANGER)] == [8.0, 8.0, 0.0]
    assert refused.serve_at("new") == 0.0


def test_the_oldest_address_is_forgotten_first() -> None:
    refused = RefusedPeers()
    for number in range(300):
        refused.note(str(number), RefusedSlaveError(Refusal.AHEAD, "x"), now=0.0)
        refused.note("0", RefusedSlaveError(Refusal.AHEAD, "x"), now=0.0)
    counts = {info.address: info.count for info in refused.info(now=0.0)}
    assert len(counts) == 256
    assert {"0", "299", "44", "45"} & set(counts) == {"0", "299", "45"}
    assert counts["0"] == 301, "who is refused again and again was never forgotten in between"


def test_many_addresses_do_not_fill_the_log() -> None:
    refused = RefusedPeers(LogLimit(burst=3))
    error = RefusedSlaveError(Refusal.STRANGER, "x")
    assert [refused.note(f"10.0.0.{n}", error, now=100.0) for n in range(6)] == [True] * 3 + [False] * 3
    assert [refused.note(f"10.0.1.{n}", error, now=102.0) for n in range(3)] == [True, True, False]
    assert len(refused.info(now=102.0)) == 9
