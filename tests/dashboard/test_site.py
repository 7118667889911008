"""What the page gets: files with a strict policy, JSON, and nothing for those who come by a foreign name."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

pytest.importorskip("h11", reason="h11 is in the extra [web]")

from rmqha.dashboard.collector import Collector
from rmqha.dashboard.questions import Wanted
from rmqha.dashboard.site import KEPT_FOR_S, MESSAGES_MAX, QUESTIONS_MAX, ROWS_MAX, Site
from rmqha.metrics.http_server import Answer, Asked
from tests.dashboard.fakes import HOSTILE, A, B, FakeAsker, pair
from tests.dashboard.test_collector import collecting

HOST = {"host": "127.0.0.1:8090"}


class Visitor:
    """Asks a site."""

    def __init__(self, site: Site, asker: FakeAsker, collector: Collector) -> None:
        self.site = site
        self.asker = asker
        self.collector = collector

    async def get(self, target: str, **headers: str) -> Answer:
        path, _, query = target.partition("?")
        return await self.site.answer(Asked(path, query, HOST | {k.replace("_", "-"): v for k, v in headers.items()}))

    async def json(self, target: str, status: int = 200) -> Any:
        answer = await self.get(target)
        assert (answer.status, answer.content_type) == (status, "application/json"), answer.body
        return json.loads(answer.body)


@asynccontextmanager
async def visiting(*names: str) -> AsyncIterator[Visitor]:
    asker = FakeAsker(pair())
    async with collecting(asker, A, B) as collector:
        yield Visitor(Site(collector, asker, names=names), asker, collector)


async def test_a_broker_that_is_forgotten_while_it_is_asked_is_told_of_all_the_same(autojump_clock: MockClock) -> None:
    async with visiting() as visitor:
        visitor.asker.topics[A] = [{"topic": "t", "system": False}]
        visitor.asker.details["topic"] = {"queues": []}
        visitor.asker.delays[A] = 1.0
        watched = visitor.collector.watched
        for target, told in (("/api/topics", "topics"), ("/api/topic?topic=t", "brokers")):
            kept = watched[A]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(forget_soon, watched, A)
                rows = (await visitor.json(target))[told]
            assert [row["broker"] for row in rows] == ["a"]
            watched[A] = kept


async def forget_soon(watched: dict[str, Any], address: str) -> None:
    await trio.sleep(0.5)
    del watched[address]


async def test_each_file_goes_with_the_policy(autojump_clock: MockClock) -> None:
    async with visiting() as visitor:
        for path in ("/", "/app.js", "/style.css", "/icon.svg"):
            answer = await visitor.get(path)
            headers = dict(answer.headers)
            assert answer.status == 200
            assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; ")
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert b"http://" not in answer.body.replace(b"http://www.w3.org/", b"")
            assert b"https://" not in answer.body
        for path in ("/index.html", "/../site.py", "/static/app.js", "/api", "/api/", "//"):
            assert (await visitor.get(path)).status == 404


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8090", 200),
        ("127.0.0.1", 200),
        ("[::1]:8090", 200),
        ("localhost:1", 200),
        ("LOCALHOST", 200),
        ("10.0.0.7:8090", 200),
        ("board.example:8090", 200),
        ("evil.example:8090", 403),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example:8090", 403),
        ("", 403),
    ],
)
async def test_a_name_that_may_lead_anywhere_is_refused(host: str, status: int, autojump_clock: MockClock) -> None:
    """DNS rebinding: another site's name that leads here."""
    async with visiting("Board.example") as visitor:
        for path in ("/", "/api/cluster"):
            assert (await visitor.get(path, host=host)).status == status


async def test_another_sites_page_is_refused(autojump_clock: MockClock) -> None:
    async with visiting() as visitor:
        for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
            assert (await visitor.get("/api/topics", sec_fetch_site=site)).status == status
        assert (await visitor.get("/", sec_fetch_site="cross-site")).status == 200  # a link


async def test_the_cluster_and_its_last_hour(autojump_clock: MockClock) -> None:
    async with visiting() as visitor:
        assert (await visitor.json("/api/cluster"))["summary"] == "2 brokers: 2 ok"
        await trio.sleep(60)
        told = await visitor.json("/api/history")
        assert set(told["series"]) == {A, B}
        points = told["series"][A]["points"]
        assert (len(points), told["columns"][:2], points[0][1]) == (13, ["timeMs", "putTps"], 12.5)
        since = points[-3][0]
        assert (await visitor.json(f"/api/history?since={since}"))["series"][A]["points"] == points[-2:]
        assert "no number" in (await visitor.json("/api/history?since=x", 400))["error"]


async def test_groups_are_those_that_were_asked_for_last(autojump_clock: MockClock) -> None:
    async with visiting() as visitor:
        visitor.asker.groups[A] = [{"group": "billing", "topics": 1, "lag": 7}]
        await trio.sleep(30)
        told = await visitor.json("/api/groups")
        assert told["groups"] == [{"group": "billing", "topics": 1, "lag": 7, "broker": "a"}]
        assert told["notAskedYet"] == []
        visitor.asker.groups[A] = TimeoutError("slow")  # type: ignore[assignment]
        await trio.sleep(30)
        told = await visitor.json("/api/groups")
        assert (told["groups"], told["troubles"]) == ([], [{"broker": "a", "address": A, "why": "slow"}])


async def test_topics_are_kept_for_a_moment(autojump_clock: MockClock) -> None:
    async with visiting() as visitor:
        visitor.asker.topics[A] = [{"topic": f"t{n}{HOSTILE}", "system": False} for n in range(1000)]
        for _ in range(5):
            assert len((await visitor.json("/api/topics"))["topics"]) == 1000
        assert [what for what, *_ in visitor.asker.asked].count("topics") == 1
        await trio.sleep(KEPT_FOR_S + 0.1)
        await visitor.json("/api/topics")
        assert [what for what, *_ in visitor.asker.asked].count("topics") == 2


async def test_no_answer_is_a_book(autojump_clock: MockClock) -> None:
    async with visiting() as visitor:
        visitor.asker.topics[A] = [{"topic": f"t{n}", "system": False} for n in range(ROWS_MAX + 1)]
        visitor.asker.details["messages"] = {"messages": [{"offsetMsgId": str(n)} for n in range(99)], "reason": ""}
        assert len((await visitor.json("/api/topics"))["topics"]) == ROWS_MAX
        assert len((await visitor.json("/api/message?offset=1"))["messages"]) == MESSAGES_MAX


async def test_details_of_each_broker_and_a_row_for_one_that_does_not_answer(autojump_clock: MockClock) -> None:
    async with visiting() as visitor:
        for what, target in (("topic", "/api/topic?topic=t"), ("group", "/api/group?group=g")):
            assert (await visitor.json(target))["troubles"] == [{"broker": "a", "address": A, "why": "refused"}]
            visitor.asker.details[what] = {"queues": []}
            assert await visitor.json(target) == {"brokers": [{"broker": "a", "queues": []}], "troubles": []}
        visitor.asker.details["config"] = {"keys": [{"key": "k", "value": "v", "origin": "default"}]}
        assert (await visitor.json(f"/api/config?broker={B}"))["keys"][0]["key"] == "k"
        assert "watched" in (await visitor.json("/api/config?broker=10.0.0.8:1", 400))["error"]
        for target in ("/api/topic", "/api/group?group=", "/api/config"):
            assert "missing" in (await visitor.json(target, 400))["error"]


async def test_a_message_is_asked_for_in_one_way(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[Wanted] = []
    reason = "no such"
    async with visiting() as visitor:

        async def read_messages(_broker: object, one: Wanted) -> dict[str, Any]:
            wanted.append(one)
            return {"messages": [], "reason": reason}

        monkeypatch.setattr(visitor.asker, "read_messages", read_messages)
        told = await visitor.json("/api/message?topic=t&key=%3Cb%3E")
        assert told == {"messages": [], "reasons": [{"broker": "a", "why": "no such"}], "troubles": []}
        reason = ""
        told = await visitor.json("/api/message?topic=t&key=%3Cb%3E")
        assert told == {"messages": [], "reasons": [], "troubles": []}
        wanted.pop()
        await visitor.json("/api/message?topic=t&id=AB&since=")
        await visitor.json("/api/message?offset=300")
        await visitor.json("/api/message?topic=t&key=k&since=1000000000000")
        await visitor.json("/api/message?topic=t&since=1000000000000")
        assert wanted == [
            Wanted(topic="t", key="<b>"),
            Wanted(topic="t", msg_id="AB"),
            Wanted(offset=300),
            Wanted(topic="t", key="k", since_ms=1_000_000_000_000),
            Wanted(topic="t", since_ms=1_000_000_000_000),
        ]
        for query in (
            "", "key=k", "offset=-1", "offset=x", "offset=%C2%B2", "id=a&offset=1", "topic=t&key=k&since=soon", "%FF=1",
            "since=-1h", "topic=t",
        ):  # fmt: skip
            assert (await visitor.json(f"/api/message?{query}", 400))["error"]


async def test_so_many_pages_have_brokers_asked_at_once_and_the_rest_is_not_kept_waiting(
    autojump_clock: MockClock,
) -> None:
    async with visiting() as visitor:
        visitor.asker.delays[A] = 50
        visitor.asker.details["topic"] = {"queues": []}
        statuses: list[int] = []

        async def ask() -> None:
            statuses.append((await visitor.get("/api/topic?topic=t")).status)

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for _ in range(QUESTIONS_MAX + 2):
                    nursery.start_soon(ask)
                await trio.sleep(1)
                assert statuses == [503, 503]
                assert (await visitor.get("/api/cluster")).status == 200
        assert statuses == [503, 503, *[200] * QUESTIONS_MAX]
