"""Whether a broker can do now what it is for, and if not, why: what /readyz says.

A slave is ready while it serves what it holds, whether or not its master is there, or room for more; not when a person
has to decide about its log. A master is ready while a send is answered SEND_OK, as far as it can tell beforehand, and
takes the place of no message that it has lost.
"""

from typing import Any, Final

from rmqha.broker.broker_controller import BrokerController
from rmqha.replication.role import RoleKind

_NEEDS_A_PERSON: Final = {
    "ahead": "it holds more than its master, and follows it no more",
    "below-min": "its master has deleted what comes next here, and it must be rebuilt",
    "diverged": "its log has diverged from its master's",
    "failed": "its store has failed",
    "misconfigured": "it and its master do not belong together",
}


def why_not_ready(broker: BrokerController) -> list[str]:
    """A sentence for each reason; empty if it is ready."""
    store = broker.store
    if broker.stopping.is_set():
        return ["stopping"]
    if broker.server is None:
        return [f"recovering: {store.recovery.describe()}"]
    if store.role.kind is RoleKind.SLAVE:
        return _why_slave(broker)
    refusal = store.running_flags.refusal() or broker.replication.refusal() or store.refusal()
    if refusal:
        return [f"sends are refused: {refusal}"]
    doubt = broker.replication.doubt()
    return [*([doubt] if doubt else []), *_why_unsafe(broker)]


def what_passes(broker: BrokerController) -> list[str]:
    """What a broker that is ready lacks all the same, for those who look: a slave that takes nothing at present."""
    store = broker.store
    if store.role.kind is not RoleKind.SLAVE:
        return []
    member: dict[str, Any] = broker.replication.facts().get("dledger") or {}
    refusal = store.running_flags.refusal() or member.get("lack_of_room")
    if not refusal:
        return []
    return [f"it serves what it holds, and goes on by itself when this has passed: {refusal}"]


def _why_unsafe(broker: BrokerController) -> list[str]:
    """Why a send would be stored, and not be answered SEND_OK."""
    promise, needed = broker.replication.promise, slaves_needed(broker)
    if promise is None:
        return []
    if not promise.acknowledgements.is_slave_ok(broker.store.max_offset):
        return [_below_threshold(broker)]
    connections = broker.replication.facts().get("ha", {}).get("connections", [])
    lags = sorted(one["lag_s"] for one in connections if one["slave_ack_offset"] >= 0)
    if 0 < needed <= len(lags) and lags[needed - 1] > broker.config.slave_timeout_s:
        return [f"slaves do not acknowledge within slaveTimeout: the {needed} best lag {lags[needed - 1]:.0f} s"]
    return []


def _why_slave(broker: BrokerController) -> list[str]:
    reasons = []
    if broker.store.running_flags.final_error is not None:
        reasons.append(f"it cannot write: {broker.store.running_flags.refusal()}")
    if (error := broker.replication.final_error) is not None:
        reasons.append(f"it follows nobody any more: {error}")
        return reasons
    facts = broker.replication.facts()
    reasons += filter(None, [facts.get("circle")])
    follower: dict[str, Any] = facts.get("ha_client") or {}
    if state := _NEEDS_A_PERSON.get(follower.get("state", "")):
        reasons.append(f"{state}: {follower['last_error']}" if follower["last_error"] else state)
    return reasons


def _below_threshold(broker: BrokerController) -> str:
    needed, live = slaves_needed(broker), broker.replication.facts()["ha"]["live_slaves"]
    if live < needed:
        return f"below the in-sync threshold: {live} of the {needed} slaves that a send needs are connected"
    return f"below the in-sync threshold: too few of the {live} slaves are within haSlaveFallbehindMax"


def slaves_needed(broker: BrokerController) -> int:
    """So many slaves have to hold a message before it is answered SEND_OK."""
    return broker.config.in_sync_replicas - 1 if broker.replication.promise is not None else 0
