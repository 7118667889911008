"""`rmqha status`: the exit code is that of the worst broker; 2 is critical, where there is a critical limit."""

import json
from itertools import product
from typing import Any, Final

import pytest

from rmqha.cli.main import run
from rmqha.codec.codes import RequestCode
from tests.cli.facts import connection
from tests.cli.fake_brokers import FakeBrokers, runtime

Output = pytest.CaptureFixture[str]
RUNTIME: Final = RequestCode.GET_BROKER_RUNTIME_INFO
ADDRESSES: Final = {
    "ok": "10.0.0.1:10911",
    "degraded": "10.0.0.2:10911",
    "failed": "10.0.0.3:10911",
    "unreachable": "10.0.0.4:10911",
}
LIMITS: Final = {
    (): 1,
    ("--warn-lag", "10s"): 1,
    ("--crit-lag", "1m"): 2,
    ("--warn-lag", "10s", "--crit-lag", "1m"): 2,
}
"""And what a broker that failed ends with."""


def put_all(brokers: FakeBrokers) -> None:
    """Whatever the limits are."""
    ha = {"connections": [connection()], "refused": []}
    odd: dict[str, dict[str, Any]] = {
        "ok": {},
        "degraded": {"crowded": "too many"},
        "failed": {"write_refusal": "full"},
    }
    brokers.answers = {ADDRESSES[level]: {RUNTIME: runtime(ha=ha, **facts)} for level, facts in odd.items()}


@pytest.mark.parametrize(("limits", "failed"), LIMITS.items(), ids=[" ".join(limits) or "none" for limits in LIMITS])
@pytest.mark.parametrize("output", ["text", "json"])
def test_each_level_has_its_code_whichever_limits_are_given(
    limits: tuple[str, ...], failed: int, output: str, fake_brokers: FakeBrokers, capsys: Output
) -> None:
    put_all(fake_brokers)
    codes = {"ok": 0, "degraded": 1, "failed": failed, "unreachable": 3}
    for level, address in ADDRESSES.items():
        assert run(["status", "-b", address, "--format", output, *limits]) == codes[level], level
        out = capsys.readouterr().out
        assert output == "text" or json.loads(out)["verdict"] == level
    for one, other in product(codes, repeat=2):
        addresses = ["-b", ADDRESSES[one], "-b", ADDRESSES[other]]
        assert run(["status", *addresses, "--format", output, *limits]) == max(codes[one], codes[other]), (one, other)
        capsys.readouterr()


@pytest.mark.parametrize("limits", [limits for limits in LIMITS if limits])
def test_a_replica_beyond_a_limit_alone_has_that_limits_code(
    limits: tuple[str, ...], fake_brokers: FakeBrokers, capsys: Output
) -> None:
    for lag_s in (1, 11, 61):
        facts = runtime(ha={"connections": [connection(lag_s=lag_s)], "refused": []})
        fake_brokers.answers = {ADDRESSES["ok"]: {RUNTIME: facts}}
        expected = 2 if "--crit-lag" in limits and lag_s > 60 else 1 if "--warn-lag" in limits and lag_s > 10 else 0
        assert run(["status", "-b", ADDRESSES["ok"], *limits]) == expected, lag_s
        capsys.readouterr()
