"""Whom `rmqha promote` asks before it lets a slave become a master: all that anything here has ever named."""

from pathlib import Path
from typing import Any

import pytest

from rmqha.cli.main import run
from rmqha.cli.promotion import Replica, obstacles
from rmqha.codec.codes import RequestCode
from tests.cli.facts import master, slave
from tests.cli.fake_brokers import FakeBrokers, answer, runtime
from tests.cli.test_promote import MASTER, NS, OTHER, OWN, RUNTIME, Output

HA_PORT = "10.0.0.1:10912"
CONF = f"""\
brokerName=a
brokerId=1
brokerRole=SLAVE
namesrvAddr={NS}
brokerIP1=10.0.0.2
allowInsecure=true
"""


def following(state: str, ha_port: str | None) -> dict[str, Any]:
    facts = slave(state)
    facts["ha_client"]["master"] = ha_port
    return facts


@pytest.mark.parametrize(
    ("lines", "followed", "registered", "option"),
    [
        (f"haMasterAddress={HA_PORT}\n", None, {}, ()),
        (f"masterAddress={MASTER}\n", None, {}, ()),
        (f"haPeers={HA_PORT}\n", None, {}, ()),
        ("", HA_PORT, {}, ()),
        ("", None, {"0": MASTER}, ()),
        ("", None, {"2": MASTER}, ()),
        ("", None, {}, ("--peer", MASTER)),
    ],
    ids=["haMasterAddress", "masterAddress", "haPeers", "followed", "registered", "registered as a slave", "--peer"],
)
def test_one_that_is_named_anywhere_is_asked_before_there_are_two_masters(
    lines: str,
    followed: str | None,
    registered: dict[str, str],
    option: tuple[str, ...],
    tmp_path: Path,
    fake_brokers: FakeBrokers,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Output,
) -> None:
    """A name server forgets in two minutes a master that cannot reach it, and the slave still knows whom it followed.

    That one may take sends all the same.
    """
    monkeypatch.setattr("rmqha.cli.promotion_asked._listens", lambda *_: False)
    conf = tmp_path / "broker.conf"
    conf.write_text(CONF + lines)
    table = {"a": {"brokerName": "a", "cluster": "c", "brokerAddrs": {"1": OWN} | registered}}
    fake_brokers.answers = {
        OWN: {RUNTIME: runtime(**following("waiting", followed))},
        MASTER: {RUNTIME: runtime(**master())},
        NS: {RequestCode.GET_BROKER_CLUSTER_INFO: answer({"brokerAddrTable": table})},
    }
    assert run(["promote", "-c", str(conf), "--role", "ASYNC_MASTER", "--execute", *option]) == 1
    assert f"the old master may be alive: {MASTER} says that it is SYNC_MASTER" in capsys.readouterr().err
    assert conf.read_text() == CONF + lines


@pytest.mark.parametrize("beside", [OTHER, "10.0.0.1:10921", "10.0.0.1:10912"])
def test_a_slave_that_answers_elsewhere_says_nothing_of_an_open_connection(beside: str) -> None:
    """From here nobody reaches the master; it is alive, as the slave has its records, and takes sends."""
    others = [Replica(MASTER, None), Replica(beside, slave("waiting"))]
    for known in (others, others[::-1]):
        (found,) = obstacles(slave("transfer"), known)
        assert (found.what, found.accepted_by) == (f"it follows {HA_PORT}: the connection is open", "")
