"""rmqha_trouble: what is wrong is told by the kind it is of, by that alone, and by nothing once it has passed."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final
from weakref import WeakSet

import pytest
from trio.testing import MockClock

pytest.importorskip("h11", reason="h11 is in the extra [web]")
pytest.importorskip("prometheus_client", reason="prometheus-client is in the extra [web]")

from rmqha import certificates
from rmqha.metrics import broker_families
from rmqha.replication.peer_knowledge import PeerState
from tests.metrics.test_numbers import told

FACTS: Final[dict[str, list[dict[str, Any]]]] = {
    "group_clashes": [
        {"circle": "each follows the other"},
        {"place_taken": ["another one registers"]},
        {"catch_up": [{"state": PeerState.SETTLED.value}, {"state": PeerState.UNFIT.value}]},
    ],
    "accounts": [{"credentials_kept": "no account"}],
    "doubt": [{"doubt": "it may have lost some"}],
    "peers_unheard": [{"peers_unheard": ["one of haPeers does not show what it holds"]}],
    "begins_later": [{"begins_later": {"bytes": 1, "expires_in_s": 1.0}}],
    "not_learned": [{"not_learned": ["its tables"]}],
    "member_lists": [{"dledger": {"member_lists": ["n3 is not named"]}}],
    "not_registered": [{"not_registered": ["a name server does not know it"]}],
}
"""Of its replication, by kind: each of these alone."""
PARTS: Final[dict[str, list[tuple[str, Any]]]] = {
    "lost_queues": [("store.queue_rebuild.describe", lambda: "a file is missing")],
    "damaged_records": [("store.damaged_records.describe", lambda at: "a record is damaged" if at == 1_000 else "")],
    "damaged_halves": [("store.stats.damaged_halves", [7])],
    "damaged_marks": [("store.stats.damaged_marks", [7])],
    "dropped": [("store.dropped", "the start cut a record")],
    "index": [("store.index.trouble", "no more entries")],
    "not_saved": [("metadata.trouble", "no room")],
    "lost_tables": [("metadata.lost", ["topics.json"])],
    "inodes": [("store.cleaner.inodes.trouble", "none is free")],
    "disk_unknown": [("store.cleaner.disk_unknown", "it cannot be looked at")],
    "crowded": [("server", SimpleNamespace(crowded=lambda *, now: f"all places are taken at {now}"))],
    "certificates": [("why_kept", "a file is bad")],
    "accounts": [("access.permissions", SimpleNamespace(not_read="a line is bad"))],
    "group_clashes": [("replication.group.clashes", lambda *, now: [f"two ids at {now}"])],
    "begins_later": [("replication.group.lacking_slaves", lambda *, now: [f"it lacks the first bytes at {now}"])],
    "slaves": [("replication.group.troubles", lambda *, now: [f"it takes nothing at {now}"])],
}
"""Of everything else, by kind: what is to be put where."""


def sound_broker() -> Any:
    store = SimpleNamespace(
        min_offset=1_000,
        queue_rebuild=SimpleNamespace(describe=lambda: ""),
        damaged_records=SimpleNamespace(describe=lambda _at: ""),
        stats=SimpleNamespace(damaged_halves=[], damaged_marks=[]),
        dropped="",
        index=SimpleNamespace(trouble=""),
        cleaner=SimpleNamespace(inodes=SimpleNamespace(trouble=""), disk_unknown=""),
    )
    group = SimpleNamespace(clashes=lambda **_now: [], troubles=lambda **_now: [], lacking_slaves=lambda **_now: [])
    return SimpleNamespace(
        store=store,
        metadata=SimpleNamespace(trouble="", lost=[]),
        server=SimpleNamespace(crowded=lambda **_now: ""),
        access=SimpleNamespace(permissions=SimpleNamespace(not_read="")),
        replication=SimpleNamespace(group=group, facts=lambda: {"place_taken": []}),
    )


def kinds_told(broker: Any) -> list[str]:
    found = told(broker_families.troubles(broker))
    assert {*found.values()} <= {0.0, 1.0}
    return [name.removeprefix("rmqha_trouble ") for name, number in found.items() if number]


@pytest.fixture
def no_certificates(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Others' tests may have left some that were kept; returns what has this process keep its own."""

    def keep(why: str) -> None:
        monkeypatch.setattr(broker_families, "why_kept", lambda: why)

    monkeypatch.setattr(certificates, "_in_use", WeakSet())
    keep("")
    return keep


@pytest.mark.parametrize(("kind", "fact"), [(kind, fact) for kind, facts in FACTS.items() for fact in facts])
async def test_what_replication_says_is_told_by_its_kind(
    kind: str, fact: dict[str, Any], no_certificates: Callable[[str], None], autojump_clock: MockClock
) -> None:
    broker = sound_broker()
    broker.replication.facts = lambda: {"place_taken": []} | fact
    assert kinds_told(broker) == [kind]


@pytest.mark.parametrize(("kind", "path", "value"), [(kind, *part) for kind, parts in PARTS.items() for part in parts])
async def test_what_another_part_says_is_told_by_its_kind(
    kind: str, path: str, value: Any, no_certificates: Callable[[str], None], autojump_clock: MockClock
) -> None:
    """Of damaged records only those that are still in the log."""
    broker = sound_broker()
    *way, name = path.split(".")
    part = broker
    for one in way:
        part = getattr(part, one)
    if name == "why_kept":
        no_certificates(value)
    else:
        setattr(part, name, value)
    assert kinds_told(broker) == [kind]


async def test_nothing_is_wrong_with_a_sound_broker_nor_with_one_that_has_no_port_or_accounts(
    no_certificates: Callable[[str], None], autojump_clock: MockClock
) -> None:
    broker = sound_broker()
    assert kinds_told(broker) == []
    broker.server = broker.access.permissions = None
    assert kinds_told(broker) == []
    kinds = {name.removeprefix("rmqha_trouble ") for name in told(broker_families.troubles(broker))}
    assert kinds == {*FACTS, *PARTS}, "each kind has its test here"
