"""Whom a member believes about the others' lists and processes, and for how long."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rmqha.codec.dledger_wire import MemberStatus, MetadataResponse
from rmqha.dledger.member_lists import MemberLists
from rmqha.dledger.rival_members import RivalMembers

ADDRESSES = {"n0": "10.0.0.1:20911", "n1": "10.0.0.2:20911", "n2": "10.0.0.3:20911"}


def test_what_was_asked_by_a_former_connection_says_nothing_of_who_is_there_now() -> None:
    """Another process may listen there by now, with another list: its vote does not count before it has told."""
    connection: Any = SimpleNamespace(is_connected=True, since=1.0)
    answers = list[Callable[[MetadataResponse | None], None]]()
    lists = MemberLists(
        "n0", ADDRESSES, {"n1": connection}, lambda _peer, on_answer: answers.append(on_answer), process="1"
    )
    lists.ask("n1")
    connection.since = 2.0
    answers.pop()(MetadataResponse(peers=ADDRESSES))
    assert (lists.of("n1"), lists.may_vote_for_this("n1")) == (None, False)
    answers.pop()(MetadataResponse(peers=ADDRESSES))
    assert (lists.of("n1"), lists.may_vote_for_this("n1")) == (("n0", "n1", "n2"), True)


def test_who_has_found_the_right_process_meanwhile_tells_of_another_one_anew() -> None:
    """Stale answers that came before and after are not one that lasts: nobody would be elected."""
    rivals = RivalMembers("n0", "mine", ADDRESSES)

    def tell(process: str, times: int) -> None:
        for _ in range(times):
            rivals.note("n1", ADDRESSES, MemberStatus(process="its", counted={"n0": process}))

    tell("another", 19)
    tell("mine", 1)
    tell("another", 19)
    assert rivals.of("n0") is None
    tell("another", 1)
    assert rivals.of("n0") == ("n1", ADDRESSES["n0"])


def test_a_member_that_is_another_process_each_time_it_is_asked_fills_no_memory() -> None:
    """What listens at its address says what it likes, each second, for as long as this member runs."""
    tracemalloc = pytest.importorskip("tracemalloc", reason="PyPy does not count allocations")
    rivals = RivalMembers("n0", "mine", ADDRESSES)
    tracemalloc.start()
    try:
        for number in range(5000):
            process, other = f"{number:064}", f"{-number - 1:064}"
            rivals.note("n1", ADDRESSES, MemberStatus(process=process, counted={"n0": "mine", "n2": other}))
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (rivals.process_of("n1"), rivals.counts_unknown("n1")) == (process, True)
    assert kept_bytes < 50_000
