"""A broker's facts as lines: what is told is shown, and nothing of what is not."""

from typing import Any

import pytest

from rmqha.cli.status_text import human_bytes, render_status
from rmqha.cli.verdict import Verdict
from tests.cli.facts import connection, master


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 30, "3.0 GiB"), (5 << 40, "5.0 TiB")]
)
def test_sizes_are_readable(size: int, text: str) -> None:
    assert human_bytes(size) == text


HIDDEN = {"messages": 7, "queues": {"t-0": 4, "t-1": 3}}
UNSAFE = {"for_s": 90, "last_s_ago": 2.0, "answers": {"SLAVE_NOT_AVAILABLE": 1234}}
LOG = "  log      min 0  max 100  flushed 100  confirm 90  dispatched 90"


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        ({"disk_used_percent": 0}, "  disk     0 % used"),
        ({"disk_used_percent": 71, "disk_looked_s_ago": 3.2}, "  disk     71 % used, 3 s ago"),
        ({"disk_used_percent": None, "disk_unknown": True}, "  disk     not known how full"),
        ({"unnamed_slaves": ["s"]}, "  hint     s; see docs/operations.md, 'A slave that haPeers leaves out'"),
        ({"hidden_messages": HIDDEN}, "  hidden   7 messages in the log, of queues that have begun anew since"),
        ({"not_send_ok": UNSAFE}, "  unsafe   some sends were not answered SEND_OK for 90 s, the last 2 s ago: "),
        ({"deleted_early": {"segments": 3, "last_s_ago": 4}}, "  deleted  3 unexpired segments, the last 4 s ago"),
        ({"discarded_halves": {"count": 3, "last_s_ago": 4}}, "  halves   3 were discarded undecided, the last 4 s"),
        ({"clock_jumped_s": 5000}, "  clock    it jumped 5,000 s ahead since the start; see docs/operations.md"),
        ({"ha": {"connections": [connection(lag_bytes=0, heard_s_ago=1.5)]}},
         "  replica  10.0.0.2:5000  in-sync  ack 90  lag 0 B, 0.5 s  20 B/s  heard 1.5 s ago"),
    ],
)  # fmt: skip
def test_each_fact_has_a_line_and_no_other_one_comes_with_it(facts: dict[str, Any], line: str) -> None:
    lines = render_status(master() | facts, Verdict("ok", "fine", (), in_sync=True)).splitlines()
    assert lines[:2] == ["ok: fine", LOG]
    (shown,) = lines[2:]
    assert shown.startswith(line)


def test_without_any_of_them_there_is_the_log_alone() -> None:
    assert render_status(master(), Verdict("degraded", "so so", ("a", "b"), in_sync=False)).splitlines() == [
        "degraded: so so",
        "  because  a",
        "  because  b",
        LOG,
    ]
