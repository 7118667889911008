"""What a broker says of itself, as the page gets it: the words of `rmqha status`, and plain bounded values."""

import json
from typing import Any

import pytest

from rmqha.cli.verdict import judge
from rmqha.dashboard.bounded import number, text, texts
from rmqha.dashboard.broker_view import REPLICAS_MAX, broker_view
from tests.cli.facts import connection, master, member, slave, view

GONE = {"peer": "10.0.0.3:5", "name": "a/2", "slave_ack_offset": 40, "reason": "x", "last_s_ago": 90.0, "lag_s": 95.0}


def test_the_verdict_is_that_of_status_in_its_words() -> None:
    facts = master(write_refusal="the disk is full", ha={"connections": [connection()], "refused": []})
    told, verdict = broker_view(facts), judge(facts)
    assert (told["level"], told["summary"], told["reasons"]) == ("failed", verdict.summary, list(verdict.reasons))
    assert told["text"].startswith(f"failed: {verdict.summary}\n  because  sends are refused: the disk is full")
    assert told["log"] == {"min": 0, "max": 100, "flushed": 100, "confirm": 90, "dispatched": 90}


def test_replicas_that_are_there_and_that_are_gone() -> None:
    stranger = connection("first-report-awaited", slave_ack_offset=-1)
    ha = {"connections": [stranger, connection(name="a/1")], "refused": [], "departed": [GONE], "live_slaves": 1}
    here, gone = broker_view(master(ha=ha))["replicas"]
    assert (here["name"], here["state"], here["lagBytes"], here["lagSeconds"], here["gone"]) == (
        "a/1", "in-sync", 10, 0.5, False,
    )  # fmt: skip
    assert (gone["name"], gone["state"], gone["lagBytes"], gone["lagSeconds"], gone["reason"]) == (
        "a/2", "gone", 60, 95.0, "x",
    )  # fmt: skip


def test_a_slave_a_member_one_that_recovers_and_rocketmqs() -> None:
    told = broker_view(slave("diverged"))
    assert (told["level"], told["follows"]["state"], told["follows"]["master"]) == (
        "failed", "diverged", "10.0.0.1:10912",
    )  # fmt: skip
    told = broker_view(member(members=[view("n1", lacks=5000), view("n2", connected=False, reason="refused")]))
    assert [(one["id"], one["connected"], one["lacks"]) for one in told["member"]["others"]] == [
        ("n1", True, 5000), ("n2", False, 0),
    ]  # fmt: skip
    starting = {"what": "walking the log", "done_bytes": 5, "total_bytes": 10, "for_s": 3.0}
    told = broker_view({"role": "SLAVE", "broker_name": "a", "broker_id": 1, "starting": starting})
    assert (told["level"], told["recovering"]["done"], told["recovering"]["total"]) == ("degraded", 5, 10)
    told = broker_view({"version": "RocketMQ V4_9_7", "max_offset": 7})
    assert (told["level"], told["role"], told["log"]["max"], told["replicas"]) == ("ok", "", 7, [])


BOOK = "<script>" * 5_000
NONSENSE: tuple[object, ...] = (BOOK, None, [], {}, -1, 1 << 200, 1e308, True, [BOOK] * 40, {"x": BOOK})


@pytest.mark.parametrize("nonsense", NONSENSE, ids=lambda value: f"{type(value).__name__} {str(value)[:9]}")
@pytest.mark.parametrize(
    "facts", [master(connection(), ha_client=None), slave("transfer"), member()], ids=["master", "slave", "member"]
)
def test_what_is_nonsense_is_refused_or_small(facts: dict[str, Any], nonsense: object) -> None:
    """A broker may say anything."""
    for key in facts:
        try:
            told = broker_view(facts | {key: nonsense})
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            continue
        assert len(json.dumps(told, allow_nan=False)) < 100_000


def test_values_are_made_plain() -> None:
    values: tuple[object, ...] = (True, "1", None, [], float("nan"), float("inf"), 1 << 63, 10**5000)
    assert [number(value) for value in values] == [None] * len(values)
    assert [number(value) for value in (0, -5, 1.5, (1 << 63) - 1)] == [0, -5, 1.5, (1 << 63) - 1]
    assert (text("x" * 500), text("x" * 5, 5), text("x" * 6, 5)) == ("x" * 500, "x" * 5, "xxxx…")
    assert (text("x" * 501), text(7), text("a\udc80")) == ("x" * 499 + "…", "", "a\\udc80")
    assert texts("no list", 3) == []
    assert texts(["a", 1, "b", "c"], 3) == ["a", "", "b"]


def test_of_many_slaves_that_are_gone_those_that_left_last_are_shown() -> None:
    """A master tells the latest last, and the page showed the first ones."""
    gone = [GONE | {"name": f"a/{number}", "peer": f"10.0.1.{number}:5000"} for number in range(REPLICAS_MAX + 8)]
    ha = {"connections": [], "refused": [], "departed": gone, "live_slaves": 0}
    names = [one["name"] for one in broker_view(master(ha=ha))["replicas"]]
    assert names == [f"a/{number}" for number in range(8, REPLICAS_MAX + 8)]
