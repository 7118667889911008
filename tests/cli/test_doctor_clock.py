"""`rmqha doctor` and `status`: clocks that differ, and one that jumped."""

import time

import pytest

from rmqha.cli.doctor_clock import check_other_clock
from rmqha.cli.doctor_peers import check_peers
from rmqha.cli.status_text import render_status
from rmqha.cli.verdict import judge
from rmqha.codec.codes import RequestCode
from rmqha.config import load_config
from tests.cli.facts import master
from tests.cli.fake_brokers import FakeBrokers, runtime


@pytest.mark.parametrize(
    ("ahead_s", "said"),
    [
        (0, None),
        (59, None),
        (-59, None),
        (60, "60 s ahead of this machine's"),
        (-60, "60 s behind this machine's"),
        (-86_400, "86,400 s behind this machine's"),
    ],
)
def test_another_broker_s_clock_is_compared(ahead_s: int, said: str | None) -> None:
    found = [*check_other_clock("haPeers", "h:1", {"clock_ms": (1_000_000 + ahead_s) * 1000}, now_s=1_000_000.0)]
    assert [finding.what for finding in found] == ([] if said is None else [f"h:1: its clock is {said}"])
    assert all(finding.level == "warn" and "'A clock that jumps'" in finding.next for finding in found)


@pytest.mark.parametrize("said_ms", [None, "soon", 10**400, -5])
def test_of_one_that_tells_no_time_nothing_is_said(said_ms: object) -> None:
    assert not [*check_other_clock("haPeers", "h:1", {"clock_ms": said_ms})]
    assert not [*check_other_clock("haPeers", "h:1", {})]


def test_doctor_compares_the_clocks_of_those_whom_a_file_names(fake_brokers: FakeBrokers) -> None:
    config = load_config(None, {"brokerName": "a", "haPeers": "10.0.0.2:10912"})
    for ahead_s, levels in ((0, ["ok"]), (-7200, ["warn", "ok"])):
        its = runtime(broker_id=1, role="SLAVE", clock_ms=round((time.time() + ahead_s) * 1000))
        fake_brokers.answers = {"10.0.0.2:10911": {RequestCode.GET_BROKER_RUNTIME_INFO: its}}
        found = [*check_peers(config, is_empty=False, timeout_s=1)]
        assert [finding.level for finding in found] == levels


def test_status_has_a_line_while_a_jump_counts() -> None:
    for facts, lines in ((master(), 0), (master(clock_jumped_s=None), 0), (master(clock_jumped_s=518_400), 1)):
        told = [line for line in render_status(facts, judge(facts)).splitlines() if line.startswith("  clock")]
        assert len(told) == lines
        assert all("jumped 518,400 s ahead" in line and "'A clock that jumps'" in line for line in told)
