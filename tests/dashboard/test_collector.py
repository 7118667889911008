"""Brokers are asked again and again; one that is silent, slow or gone delays nobody, and what is kept is bounded."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise

import trio
from trio.testing import MockClock

from rmqha.cli.named_brokers import NamedBroker
from rmqha.dashboard.collector import (
    BROKERS_MAX,
    FORGOTTEN_AFTER_S,
    GROUPS_AFTER_S,
    LOOKS_AROUND_AFTER_S,
    Collector,
)
from rmqha.dashboard.history import COLUMNS, History
from tests.cli.facts import master, slave
from tests.dashboard.fakes import NAMES, A, B, C, FakeAsker, pair, table

INTERVAL_S = 5.0


@asynccontextmanager
async def collecting(asker: FakeAsker, *addresses: str, with_groups: bool = True) -> AsyncIterator[Collector]:
    """Until it has asked once."""
    collector = Collector(
        addresses,
        asker,
        interval_s=INTERVAL_S,
        with_groups=with_groups,
        now_ms=lambda: 1_000_000 + int(trio.current_time() * 1000),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(collector.run)
        await trio.sleep(1)
        yield collector
        nursery.cancel_scope.cancel()


async def test_each_broker_is_asked_at_the_interval(autojump_clock: MockClock) -> None:
    asker = FakeAsker(pair())
    async with collecting(asker, A, B) as collector:
        await trio.sleep(10 * INTERVAL_S)
        for address in (A, B):
            times = [at for what, asked, at in asker.asked if (what, asked) == ("broker", address)]
            assert len(times) == 11
            assert {round(after - before, 6) for before, after in pairwise(times)} == {INTERVAL_S}
        points = collector.watched[A].history.since(0)
        assert len(points) == 11
        assert dict(zip(COLUMNS, points[-1], strict=True)) == {
            "timeMs": points[-2][0] + 5000 if points[-2][0] else None,
            "putTps": 12.5,
            "getTps": 4.0,
            "bytesPerSecond": 0.0,
            "putP99Ms": 2.5,
            "replicaLagSeconds": 0.5,
            "consumerLag": 0,
        }


async def test_a_slow_broker_delays_nobody_and_is_not_asked_all_the_time(autojump_clock: MockClock) -> None:
    asker = FakeAsker(pair())
    asker.delays[B] = 20.0
    async with collecting(asker, A, B) as collector:
        await trio.sleep(100)
        assert len(collector.watched[A].history.since(0)) == 21
        times = [at for what, asked, at in asker.asked if (what, asked) == ("broker", B)]
        assert len(times) == 3


async def test_one_that_answers_no_more_is_known_with_its_last_answer(autojump_clock: MockClock) -> None:
    asker = FakeAsker(pair())
    async with collecting(asker, A) as collector:
        watched = collector.watched[A]
        view = watched.view
        answered_ms = watched.answered_ms
        assert view is not None
        del asker.tables[A]
        await trio.sleep(30)
        assert (watched.trouble, watched.view, watched.answered_ms) == ("refused", view, answered_ms)
        assert watched.history.since(0)[-1][1:] == (None,) * (len(COLUMNS) - 1)
        asker.tables |= pair()
        await trio.sleep(INTERVAL_S)
        assert watched.trouble == ""


async def test_a_name_server_stands_for_all_that_it_knows_and_those_that_come(autojump_clock: MockClock) -> None:
    asker = FakeAsker(pair())
    a, b = NamedBroker(A, "a"), NamedBroker(B, "a", is_slave=True)
    asker.registered[NAMES] = (a,)
    async with collecting(asker, NAMES) as collector:
        assert list(collector.watched) == [A]
        asker.registered[NAMES] = (a, b)
        await trio.sleep(LOOKS_AROUND_AFTER_S)
        assert list(collector.watched) == [A, B]
        asker.registered[NAMES] = OSError("refused")
        await trio.sleep(LOOKS_AROUND_AFTER_S)
        assert (list(collector.watched), collector.troubles) == ([A, B], {NAMES: "refused"})
        asker.registered[NAMES] = (a,)
        await trio.sleep(LOOKS_AROUND_AFTER_S)
        assert (list(collector.watched), collector.troubles) == ([A, B], {})


async def test_one_that_nobody_knows_and_that_does_not_answer_is_forgotten(autojump_clock: MockClock) -> None:
    asker = FakeAsker(pair())
    a, b = NamedBroker(A, "a"), NamedBroker(B, "a", is_slave=True)
    asker.registered[NAMES] = (a, b)
    async with collecting(asker, NAMES) as collector:
        asker.registered[NAMES] = (a,)
        del asker.tables[B]
        await trio.sleep(FORGOTTEN_AFTER_S / 2)
        assert list(collector.watched) == [A, B]
        await trio.sleep(FORGOTTEN_AFTER_S)
        assert list(collector.watched) == [A]
        asker.asked.clear()
        await trio.sleep(60)
        assert B not in {address for _, address, _ in asker.asked}


async def test_one_that_is_silent_is_known_as_long_as_a_name_server_names_it(autojump_clock: MockClock) -> None:
    asker = FakeAsker(pair())
    asker.registered[NAMES] = (NamedBroker(A, "a"), NamedBroker(B, "a", is_slave=True))
    async with collecting(asker, NAMES) as collector:
        silent = collector.watched[B]
        del asker.tables[B]
        await trio.sleep(2 * FORGOTTEN_AFTER_S)
        assert collector.watched[B] is silent, "with its last answer"
        asker.registered[NAMES] = (NamedBroker(A, "a"),)
        await trio.sleep(FORGOTTEN_AFTER_S + LOOKS_AROUND_AFTER_S)
        assert list(collector.watched) == [A]


async def test_a_name_server_that_was_silent_at_first_is_no_broker_once_it_answers(autojump_clock: MockClock) -> None:
    asker = FakeAsker(pair())
    asker.registered[NAMES] = OSError("refused")
    async with collecting(asker, NAMES) as collector:
        assert list(collector.watched) == [NAMES]
        asker.registered[NAMES] = (NamedBroker(A, "a"),)
        await trio.sleep(LOOKS_AROUND_AFTER_S + INTERVAL_S)
        assert list(collector.watched) == [A]


async def test_a_name_server_that_makes_up_brokers_has_so_many_watched(autojump_clock: MockClock) -> None:
    asker = FakeAsker(pair())
    asker.registered[NAMES] = tuple(NamedBroker(f"10.1.0.1:{port}", "x") for port in range(1, 1000))
    async with collecting(asker, NAMES) as collector:
        assert len(collector.watched) == BROKERS_MAX
    async with collecting(asker, NAMES, A) as collector:
        assert A in collector.watched
        assert len(collector.watched) <= BROKERS_MAX + 1


async def test_groups_are_asked_for_at_one_of_a_name_and_seldom(autojump_clock: MockClock) -> None:
    asker = FakeAsker(pair())
    asker.groups[A] = [{"group": "billing", "topics": 1, "lag": 7}]
    async with collecting(asker, B, A) as collector:
        await trio.sleep(3 * GROUPS_AFTER_S)
        asked = [(address, at) for what, address, at in asker.asked if what == "groups" and at > INTERVAL_S]
        assert {address for address, _ in asked} == {A}
        assert len(asked) == 3
        assert collector.watched[A].history.since(0)[-1][-1] == 7
        del asker.tables[A]
        asker.groups[B] = [{"group": "billing", "topics": 1, "lag": 9}]
        await trio.sleep(GROUPS_AFTER_S + INTERVAL_S)
        assert collector.readers() == [collector.watched[B]]
        assert collector.watched[B].groups == asker.groups[B]


async def test_why_groups_are_not_known_is_told_until_they_are(autojump_clock: MockClock) -> None:
    """Of one that answers again, or that is not asked any more, nothing of it is left."""
    asker = FakeAsker(pair())
    asker.groups[A] = known = [{"group": "billing", "topics": 1, "lag": 7}]
    async with collecting(asker, A, B) as collector:
        watched = collector.watched[A]
        for answer, told in ((known, ""), (OSError("no answer"), "no answer"), (known, ""), (OSError("no"), "no")):
            asker.groups[A] = answer  # type: ignore[assignment]
            await trio.sleep(GROUPS_AFTER_S)
            assert (watched.groups_trouble, watched.groups) == (told, None if told else known)
        del asker.tables[A]
        await trio.sleep(GROUPS_AFTER_S + INTERVAL_S)
        assert watched not in collector.readers()
        assert (watched.groups_trouble, watched.groups) == ("", None)


async def test_groups_can_be_left_out(autojump_clock: MockClock) -> None:
    asker = FakeAsker(pair())
    async with collecting(asker, A, with_groups=False):
        await trio.sleep(60)
        assert "groups" not in {what for what, _, _ in asker.asked}


async def test_of_each_name_one_is_read_a_master_that_answers_first(autojump_clock: MockClock) -> None:
    asker = FakeAsker({A: table(slave("transfer")), B: table(master()), C: table(master(broker_name="c"))})
    async with collecting(asker, A, B, C) as collector:
        assert {one.broker.address for one in collector.readers()} == {B, C}
        asker.tables[C] = table(master())
        await trio.sleep(INTERVAL_S)
        assert {one.broker.address for one in collector.readers()} == {B, C}  # two masters of a name: both are told of
        asker.tables.pop(B)
        asker.tables.pop(C)
        await trio.sleep(INTERVAL_S)
        assert {one.broker.address for one in collector.readers()} == {A}
        asker.tables.clear()
        await trio.sleep(INTERVAL_S)
        assert len(collector.readers()) == 1


async def test_the_last_hour_is_kept_and_no_more(autojump_clock: MockClock) -> None:
    asker = FakeAsker(pair())
    async with collecting(asker, A) as collector:
        await trio.sleep(3 * 3600)
        assert len(collector.watched[A].history.since(0)) == 3600 / INTERVAL_S + 1
        sample = collector.watched[A].sample
        assert sample is not None
    history = History(interval_s=1800)
    for number in range(10):
        history.add(replace(sample, put_tps=float("nan"), put_p99_ms="x"), time_ms=number)  # type: ignore[arg-type]
    assert [point[:2] for point in history.since(0)] == [(7, None), (8, None), (9, None)]
    assert len(history.since(8)) == 1


async def test_a_lag_that_is_not_known_is_not_drawn_as_none(autojump_clock: MockClock) -> None:
    """It fell to 0 in the chart at a broker that did not answer for its groups, just when it was in trouble."""
    asker = FakeAsker({A: table(master())})
    asker.groups[A] = [{"group": "billing", "topics": 1, "lag": 7}]
    async with collecting(asker, A) as collector:
        lags = list[int | None]()
        for groups in (asker.groups[A], OSError("no answer")):
            asker.groups[A] = groups  # type: ignore[assignment]
            await trio.sleep(90)
            sample = collector.watched[A].sample
            assert sample is not None
            lags.append(sample.consumer_lag)
        assert lags == [7, None]
    async with collecting(FakeAsker({A: table(master())}), A, with_groups=False) as collector:
        await trio.sleep(60)
        sample = collector.watched[A].sample
        assert sample is not None
        assert sample.consumer_lag is None
