"""The cluster as it is drawn: who follows whom, how far behind, and the worst of all verdicts."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.dashboard.broker_view import broker_view
from rmqha.dashboard.cluster_view import cluster_view, edge_level, worst
from tests.cli.facts import connection, master, member, slave, view
from tests.dashboard.fakes import A, B, C, D, FakeAsker, pair, table
from tests.dashboard.test_broker_view import GONE
from tests.dashboard.test_collector import collecting


async def viewed(asker: FakeAsker, *addresses: str) -> dict[str, Any]:
    async with collecting(asker, *addresses) as collector:
        told: dict[str, Any] = json.loads(json.dumps(cluster_view(collector), allow_nan=False))
        return told


def edges(told: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    return [(one["from"], one["to"], one["state"], one["level"]) for group in told["groups"] for one in group["edges"]]


async def test_a_pair_in_sync(autojump_clock: MockClock) -> None:
    asker = FakeAsker(pair(ha={"connections": [connection(name="a/1"), connection(name="a/9")], "refused": []}))
    told = await viewed(asker, A, B)
    assert (told["level"], told["summary"]) == ("ok", "2 brokers: 2 ok")
    assert edges(told) == [(A, B, "in-sync", "ok"), (A, f"seen {A} a/9", "in-sync", "ok")]
    (group,) = told["groups"]
    assert [(node["role"], node["first"], node["watched"]) for node in group["nodes"]] == [
        ("SYNC_MASTER", True, True), ("SLAVE", False, True), ("SLAVE", False, False),
    ]  # fmt: skip
    assert [(row["role"], row["answeredSecondsAgo"]) for row in told["brokers"]] == [("SYNC_MASTER", 1), ("SLAVE", 1)]


async def test_clusters_that_share_a_name_are_not_joined(autojump_clock: MockClock) -> None:
    """The one's master was drawn as that of the other's slaves, none of which followed it."""
    away = "10.0.0.8:10911"
    here, there = (connection(name="a/1") for _ in range(2))
    tables: dict[str, Any] = {
        A: table(master(here, broker_cluster_name="c")), B: table(slave("transfer", broker_cluster_name="c")),
        C: table(master(there, broker_cluster_name="d")), D: table(slave("transfer", broker_cluster_name="d")),
        away: ConnectionRefusedError(),
    }  # fmt: skip
    told = await viewed(FakeAsker(tables), *tables)
    drawn = {group["name"]: [node["address"] for node in group["nodes"]] for group in told["groups"]}
    assert drawn == {"a (c)": [A, B], "a (d)": [C, D], away: [away]}
    assert {row["group"] for row in told["brokers"]} == set(drawn)
    assert {(one[0], one[1]) for one in edges(told)} == {(A, B), (C, D)}


async def test_a_slave_that_is_lost_is_drawn_with_why(autojump_clock: MockClock) -> None:
    gone = GONE | {"name": "a/1"}
    tables = {A: table(master(ha={"connections": [], "refused": [], "departed": [gone]}))}
    told = await viewed(FakeAsker(tables), A)
    assert (told["level"], told["brokers"][0]["level"]) == ("degraded", "degraded")
    assert edges(told) == [(A, f"seen {A} a/1", "gone", "failed")]
    assert told["groups"][0]["edges"][0]["why"] == "x"
    assert told["groups"][0]["edges"][0]["lagBytes"] == 60
    back = {"connections": [connection(name="a/1")], "refused": [], "departed": [gone]}
    told = await viewed(FakeAsker({A: table(master(ha=back))}), A)
    assert edges(told) == [(A, f"seen {A} a/1", "in-sync", "ok")]


async def test_a_slave_that_has_not_told_its_name_is_the_only_one_on_its_host(autojump_clock: MockClock) -> None:
    here = connection(name="", peer="10.0.0.2:5000")
    for others, to in (((), [B]), ((connection(name="", peer="10.0.0.2:5001"),), None)):
        tables = {A: table(master(here, *others)), B: table(slave("transfer"))}
        drawn = edges(await viewed(FakeAsker(tables), A, B))
        assert [edge[1] for edge in drawn] == to or (to is None and len(drawn) == 3)
    elsewhere = {A: table(master(connection(name="", peer="10.0.0.7:5000"))), B: table(slave("transfer"))}
    assert len(edges(await viewed(FakeAsker(elsewhere), A, B))) == 2


async def test_one_that_left_without_a_name_is_the_slave_that_is_watched_on_its_host(
    autojump_clock: MockClock,
) -> None:
    """It was drawn a second time, as somebody whom nobody watches."""
    gone = GONE | {"name": "", "peer": "10.0.0.2:5000"}
    departed = {"connections": [], "refused": [], "departed": [gone, gone | {"peer": "10.0.0.2:5002"}]}
    tables = {A: table(master(ha=departed)), B: table(slave("diverged"))}
    assert edges(await viewed(FakeAsker(tables), A, B)) == [(A, B, "diverged", "failed")]
    elsewhere = {A: table(master(ha=departed | {"departed": [gone | {"peer": "10.0.0.7:1"}]})), B: tables[B]}
    assert len(edges(await viewed(FakeAsker(elsewhere), A, B))) == 2


async def test_a_slave_that_diverged_is_not_followed_by_its_masters_word(autojump_clock: MockClock) -> None:
    told = await viewed(FakeAsker({A: table(master()), B: table(slave("diverged"))}), A, B)
    assert edges(told) == [(A, B, "diverged", "failed")]
    assert told["level"] == "failed"
    alone = await viewed(FakeAsker({B: table(slave("connecting"))}), B)
    assert edges(alone) == [("seen master of a", B, "connecting", "degraded")]
    assert alone["groups"][0]["nodes"][1]["label"] == "10.0.0.1:10912"


async def test_a_group(autojump_clock: MockClock) -> None:
    others = [view("n1", lacks=5000), view("n2", connected=False, reason="refused", since_s=9)]
    leader, follower = member(members=others), member("FOLLOWER", is_master=False)
    follower["dledger"]["id"] = "n1"
    told = await viewed(FakeAsker({A: table(leader), B: table(follower)}), A, B)
    assert edges(told) == [(A, B, "lacks 5,000 entries", "degraded"), (A, "seen n2", "away", "failed")]


async def test_those_that_do_not_answer_are_rows_with_why(autojump_clock: MockClock) -> None:
    asker = FakeAsker(pair())
    asker.delays[C] = 100
    async with collecting(asker, A, B, C) as collector:
        del asker.tables[A]
        levels = {row["address"]: row["level"] for row in cluster_view(collector)["brokers"]}
        assert levels == {A: "ok", B: "ok", C: "unknown"}
        await trio.sleep(10)
        told = cluster_view(collector)
        row = next(row for row in told["brokers"] if row["address"] == A)
        assert (row["level"], row["summary"], row["reasons"]) == (
            "failed", "SYNC_MASTER a (id 0): does not answer", ["refused"],
        )  # fmt: skip
        assert row["answeredSecondsAgo"] == 11
        assert edges(told) == [(A, B, "no answer", "failed")]
        group = next(group for group in told["groups"] if group["edges"])
        assert [node["role"] for node in group["nodes"]] == ["was SYNC_MASTER", "SLAVE"]
        assert group["edges"][0]["lagBytes"] is None
    told = await viewed(FakeAsker({}), A)
    assert (told["brokers"][0]["summary"], told["level"]) == (f"{A}: does not answer", "failed")


async def test_who_stands_still_is_not_in_sync_by_anybodys_word(autojump_clock: MockClock) -> None:
    """An idle master has nothing that a stopped slave lacks; a leader hears only of connections that end."""
    leader, follower = member(members=[view("n1"), view("n2")]), member("FOLLOWER", is_master=False)
    follower["dledger"]["id"] = "n1"
    others = {A: table(leader), B: table(follower)}
    for tables in (pair(ha={"connections": [connection(name="a/1")], "refused": []}), others):
        asker = FakeAsker(tables)
        async with collecting(asker, A, B) as collector:
            assert edges(cluster_view(collector))[0] == (A, B, "in-sync", "ok")
            del asker.tables[B]
            await trio.sleep(10)
            told = cluster_view(collector)
            assert edges(told)[0] == (A, B, "no answer", "failed")
            assert told["groups"][0]["edges"][0]["why"] == "refused"


async def test_a_leader_that_is_gone_leads_no_more(autojump_clock: MockClock) -> None:
    old, new = member(members=[view("n1"), view("n2")]), member("FOLLOWER", is_master=False)
    new["dledger"]["id"] = "n1"
    asker = FakeAsker({A: table(old), B: table(new)})
    async with collecting(asker, A, B) as collector:
        del asker.tables[A]
        await trio.sleep(10)
        (group,) = cluster_view(collector)["groups"]
        assert [(node["role"], node["first"]) for node in group["nodes"]] == [
            ("was LEADER", False),
            ("FOLLOWER", False),
        ]
        assert group["edges"] == []


async def test_a_name_server_that_does_not_answer_is_told(autojump_clock: MockClock) -> None:
    asker = FakeAsker({})
    async with collecting(asker) as collector:
        assert (cluster_view(collector)["level"], cluster_view(collector)["summary"]) == (
            "unknown", "no broker is known",
        )  # fmt: skip
        collector.troubles[B] = "refused"
        told = cluster_view(collector)
        assert (told["level"], told["troubles"]) == ("degraded", [{"address": B, "why": "refused"}])


@pytest.mark.parametrize(("state", "level"), [("transfer", "ok"), ("catch-up", "degraded"), ("ahead", "failed")])
def test_states_of_replicas(state: str, level: str) -> None:
    assert edge_level(state) == level


def test_the_worst_counts() -> None:
    assert worst(["ok", "degraded", "failed", "unknown"]) == "failed"
    assert worst(["ok", "unknown"]) == "unknown"
    assert worst([]) == "unknown"


NONSENSE: tuple[Any, ...] = ("x", "", None, -1, 1.5, True, [], {}, ["x"], {"x": 1}, 1 << 70, "[::1", ":", "a:b:c")


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of each value in a document, inner ones too."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from leaves(one, (*path, key))


def changed(document: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    copy = json.loads(json.dumps(document))
    place = copy
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return copy  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["master", "slave", "member"])
async def test_no_broker_can_break_the_drawing_of_the_others(kind: str, autojump_clock: MockClock) -> None:
    gone = {"connections": [connection(name="a/1")], "refused": [], "departed": [GONE], "live_slaves": 1}
    facts = {"master": master(ha=gone), "slave": slave("transfer"), "member": member()}[kind]
    async with collecting(FakeAsker(pair()), A, B) as collector:
        drawn = 0
        for path in leaves(json.loads(json.dumps(facts))):
            for nonsense in NONSENSE:
                try:
                    view = broker_view(changed(facts, path, nonsense))
                except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                    continue
                collector.watched[A].view = view
                json.dumps(cluster_view(collector), allow_nan=False)
                drawn += 1
        assert drawn > 100


async def test_what_a_silent_master_said_last_of_others_colours_nothing(autojump_clock: MockClock) -> None:
    asker = FakeAsker({A: table(master(connection(name="a/9")))})
    async with collecting(asker, A) as collector:
        (before,) = cluster_view(collector)["groups"]
        asker.tables.clear()
        await trio.sleep(60)
        (after,) = cluster_view(collector)["groups"]
    levels = [{node["key"]: (node["level"], node["state"]) for node in group["nodes"]} for group in (before, after)]
    assert [level[f"seen {A} a/9"] for level in levels] == [("ok", "in-sync"), ("unknown", "")]
