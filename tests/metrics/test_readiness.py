"""Whether a master is ready whose slaves lag, and a slave that follows nobody who takes messages."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmqha.broker.broker_controller import BrokerController
from rmqha.cli.verdict import judge
from rmqha.ha.runtime_info import ClientState
from rmqha.metrics.readiness import why_not_ready
from rmqha.replication.role import RoleKind
from tests.cli import facts


def master(*lags_s: float, slaves_needed: int) -> BrokerController:
    """All of whose slaves are within haSlaveFallbehindMax; and one that has not acknowledged anything yet."""
    connections = [{"lag_s": lag_s, "slave_ack_offset": 5} for lag_s in lags_s]
    facts = {"ha": {"live_slaves": len(lags_s), "connections": [*connections, {"lag_s": 0.0, "slave_ack_offset": -1}]}}
    acknowledgements = SimpleNamespace(is_slave_ok=lambda _offset: True)
    broker: Any = SimpleNamespace(
        stopping=SimpleNamespace(is_set=lambda: False),
        server=object(),
        config=SimpleNamespace(slave_timeout_s=3.0, in_sync_replicas=slaves_needed + 1),
        store=SimpleNamespace(
            role=SimpleNamespace(kind=RoleKind.MASTER),
            running_flags=SimpleNamespace(refusal=str),
            refusal=str,
            max_offset=10,
        ),
        replication=SimpleNamespace(
            refusal=str,
            doubt=str,
            facts=lambda: facts,
            promise=SimpleNamespace(acknowledgements=acknowledgements),
        ),
    )
    return cast(BrokerController, broker)


@pytest.mark.parametrize(
    ("lags_s", "needed", "reasons"),
    [
        ((1.0, 60.0), 1, []),
        ((60.0, 1.0), 2, ["slaves do not acknowledge within slaveTimeout: the 2 best lag 60 s"]),
        ((3.0, 3.0), 2, []),
        ((60.0,), 2, []),
        ((), 1, []),
    ],
)
def test_as_many_slaves_as_a_send_needs_have_to_acknowledge_in_time(
    lags_s: tuple[float, ...], needed: int, reasons: list[str]
) -> None:
    """A slower one more costs no send."""
    assert why_not_ready(master(*lags_s, slaves_needed=needed)) == reasons


def slave(**facts: Any) -> BrokerController:
    """One that follows, and can write."""
    broker: Any = SimpleNamespace(
        stopping=SimpleNamespace(is_set=lambda: False),
        server=object(),
        store=SimpleNamespace(
            role=SimpleNamespace(kind=RoleKind.SLAVE),
            running_flags=SimpleNamespace(final_error=None, refusal=str),
        ),
        replication=SimpleNamespace(
            final_error=None, facts=lambda: {"ha_client": {"state": "transfer", "last_error": ""}} | facts
        ),
    )
    return cast(BrokerController, broker)


def test_slaves_that_follow_each_other_are_not_ready() -> None:
    """Each is connected to the next, and none of them has a master."""
    assert why_not_ready(slave(circle=None)) == []
    assert why_not_ready(slave(circle="10.0.0.2, which this one follows, follows this one")) == [
        "10.0.0.2, which this one follows, follows this one"
    ]


@pytest.mark.parametrize("state", list(ClientState))
@pytest.mark.parametrize("error", ["", "the master says why"])
def test_a_slave_that_status_calls_failed_is_not_ready(state: ClientState, error: str) -> None:
    """In these states nothing that passes by itself is awaited; who asks either way is told the same."""
    reasons = why_not_ready(slave(ha_client={"state": state.value, "last_error": error}))
    assert bool(reasons) is (judge(facts.slave(state.value)).level == "failed")
    assert all(error in reason for reason in reasons)
