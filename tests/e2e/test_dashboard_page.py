"""`rmqha dashboard` in a real browser: five states, light and dark, a thousand topics, and names that are programs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
import trio

pytest.importorskip("h11", reason="h11 is in the extra [web]")

from tests.dashboard.fakes import HOSTILE, A
from tests.e2e.chromium import Page, browsing, chromium
from tests.e2e.dashboards import SCENES, Scene, a_connection, a_master, showing

TOLD = {
    "healthy": ("3 brokers: 3 ok", "slaves in sync: 2 of 2 connected, 1 needed for SEND_OK", "in-sync", "lag 512 B"),
    "slave lost": (
        "3 brokers: 1 failed, 1 degraded, 1 ok",
        "1 of the 2 slaves that a send needs are in sync",
        "SLAVE orders-a (id 1): does not answer",
        "gone",
    ),
    "diverged": (
        "3 brokers: 1 failed, 1 degraded, 1 ok",
        "diverged: its log differs from the master's; replication has stopped. Find out which one is right",
    ),
    "recovering": (
        "3 brokers: 3 degraded",
        "SYNC_MASTER orders-a (id 0), recovering, 412,000,000 of 734,003,200 bytes",
        "it serves nobody yet: walking the log from its last checkpoint",
    ),
    "empty": ("2 brokers: 2 ok", "Nothing is stored yet", "rmqha send orders"),
}
TOPICS = 1000


@asynccontextmanager
async def a_browser(directory: Path) -> AsyncIterator[Page]:
    if chromium() is None:
        pytest.skip("there is no chromium")
    async with browsing(directory) as page:
        yield page


def check_quiet(page: Page, url: str) -> None:
    """It complained of nothing, and asked nobody else."""
    assert page.complaints == []
    assert page.requested
    assert [one for one in page.requested if not one.startswith(url) and one != "about:blank"] == []
    page.requested.clear()


async def test_each_state_is_told_in_the_words_of_status_by_day_and_by_night(tmp_path: Path) -> None:
    async with a_browser(tmp_path) as page:
        for name, expected in TOLD.items():
            async with showing(SCENES[name]) as (url, _):
                grounds = set()
                for scheme in ("light", "dark"):
                    await page.open(url, scheme=scheme)
                    shown = await page.text()
                    drawn = await page.evaluate("[...document.querySelectorAll('svg')].map((one) => one.textContent)")
                    assert [one for one in expected if one not in shown + "".join(drawn)] == [], name
                    grounds.add(await page.evaluate("getComputedStyle(document.body).backgroundColor"))
                    assert await page.evaluate("document.querySelectorAll('.charts figure').length") == 6
                    lines = await page.evaluate("document.querySelectorAll('.chart path').length")
                    assert (lines >= 6) == SCENES[name].has_history or name == "empty"
                    check_quiet(page, url)
                assert len(grounds) == 2
                await page.leave()


async def test_a_thousand_topics_and_names_that_are_programs(tmp_path: Path) -> None:
    rows = [
        {"topic": name, "system": False, "writeQueues": 4, "readQueues": 4, "perm": "rw"}
        for name in [HOSTILE, *(f"topic-{number:04}" for number in range(TOPICS - 1))]
    ]
    tables = {A: a_master(a_connection(HOSTILE, HOSTILE), broker_name=HOSTILE, doubt=HOSTILE)}
    scene = Scene(tables, topics=rows, groups=[{"group": HOSTILE, "topics": 1, "lag": 7}])
    async with a_browser(tmp_path) as page, showing(scene) as (url, _):
        await page.open(url)
        assert (await page.text()).count(HOSTILE) > 2
        await page.show("topics")
        assert "1,000 of 1,000" in await page.text()
        assert await page.evaluate("document.querySelectorAll('tbody tr').length") == 500
        await page.evaluate("document.querySelector('main button').click()")
        assert await page.evaluate("document.querySelectorAll('tbody tr').length") == TOPICS
        await page.evaluate(
            "{ const input = document.querySelector('input[type=search]'); input.value = ' TOPIC-0123';"
            " input.dispatchEvent(new Event('input')); }"
        )
        assert await page.evaluate(
            "[...document.querySelectorAll('tbody tr')].map((one) => one.cells[0].innerText)"
        ) == ["topic-0123"]
        await page.evaluate("document.querySelector('tbody a').click()")
        await page.wait("document.body.dataset.shown === 'topics/topic-0123'")
        assert "8,028 messages in 8 queues" in await page.text()
        for part in (f"topics/{HOSTILE}", "groups", f"groups/{HOSTILE}", f"message/{HOSTILE}"):
            name, _, argument = part.partition("/")
            await page.show(f"{name}/{quote(argument, safe='')}" if argument else name)
            values = await page.evaluate("[...document.querySelectorAll('input')].map((one) => one.value).join(' ')")
            assert HOSTILE in await page.text() + values, part
        await page.show("config")
        assert "/etc/rmqha/master.conf:3" in await page.text()
        assert await page.evaluate("document.querySelectorAll('script').length") == 1
        assert await page.evaluate("document.title") != "gotcha"
        check_quiet(page, url)


async def test_a_message_is_found_and_its_markup_is_text(tmp_path: Path) -> None:
    async with a_browser(tmp_path) as page, showing(SCENES["healthy"]) as (url, _):
        await page.open(url)
        await page.show("message/orders")
        await page.evaluate(
            "document.querySelector('[name=key]').value = '4711', document.querySelector('form').requestSubmit()"
        )
        await page.wait("document.querySelector('[data-found]')")
        shown = await page.text()
        assert '{"order": 4711, "items": ["<b>tea</b>", "cups"], "total": 34.9}' in shown
        assert "<i>a1</i>" in shown
        assert "queue 1 of orders-a, offset 3" in shown
        check_quiet(page, url)


async def test_a_dashboard_that_has_ended_is_told(tmp_path: Path) -> None:
    async with a_browser(tmp_path) as page:
        async with showing(SCENES["healthy"]) as (url, _):
            await page.open(url)
            assert await page.evaluate("document.getElementById('lost').hidden")
        await page.evaluate("void document.dispatchEvent(new Event('visibilitychange'))")
        await page.wait("!document.getElementById('lost').hidden")
        assert "What is shown is old" in await page.text()
        await trio.lowlevel.checkpoint()
