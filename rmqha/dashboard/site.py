"""Site: what there is at each path: the page's files, and ``/api/...``, which tells as JSON what the page shows.

Nothing here changes anything. What brokers say is data in JSON; the page makes text of it. Who asks must name this
server by an IP address, ``localhost`` or an allowed name, so that no foreign site can have its own name lead here (DNS
rebinding), and must not be another site's page.
"""

import json
import time
from collections.abc import Awaitable, Callable, Iterable
from importlib.resources import files
from ipaddress import ip_address
from typing import Any, Final, Protocol
from urllib.parse import parse_qs

import trio

from rmqha.cli.named_brokers import NamedBroker
from rmqha.cli.when import parse_time
from rmqha.dashboard.cluster_view import cluster_view
from rmqha.dashboard.collector import Asker, Collector, Row, WatchedBroker
from rmqha.dashboard.history import COLUMNS
from rmqha.dashboard.questions import NO_ANSWER, Wanted, why
from rmqha.metrics.http_server import Answer, Asked

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS: Final = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
)
MESSAGES_MAX: Final = 32
KEPT_FOR_S: Final = 5.0
"""For so long the tables of topics are told again without asking."""
ROWS_MAX: Final = 20_000
"""Of one answer here: to write it down holds up the event loop."""
QUESTIONS_MAX: Final = 4
"""So many answers that brokers are asked for are made at once."""
_JSON: Final = "application/json"
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_ARGUMENT_SIZE_MAX: Final = 1_000


class BadQuestionError(Exception):
    """What the page asks makes no sense; the text says why."""


class DetailAsker(Asker, Protocol):
    """What asks brokers for what the page shows only when it is looked at. Raises as :class:`Asker`."""

    async def read_topics(self, broker: NamedBroker) -> list[Row]:
        """All topics."""
        ...

    async def read_topic(self, broker: NamedBroker, topic: str) -> Row:
        """One."""
        ...

    async def read_group(self, broker: NamedBroker, group: str) -> Row:
        """One group."""
        ...

    async def read_config(self, broker: NamedBroker) -> Row:
        """The configuration."""
        ...

    async def read_messages(self, broker: NamedBroker, wanted: Wanted) -> Row:
        """Messages."""
        ...


Arguments = dict[str, str]
Page = Callable[[Arguments], Awaitable[Row]]


class Site:
    """Answers; what it tells of is a collector's, or asked of brokers."""

    def __init__(self, collector: Collector, asker: DetailAsker, *, names: Iterable[str] = ()) -> None:
        """``names`` are names of this server beside ``localhost``."""
        self._collector: Final = collector
        self._asker: Final = asker
        self._names: Final = frozenset({"localhost", *(name.lower() for name in names)})
        self._files: Final = _static_files()
        self._asking = 0
        self._topics: tuple[float, Row] | None = None
        self._known: Final[dict[str, Page]] = {
            "/api/cluster": self._cluster,
            "/api/history": self._history,
            "/api/groups": self._groups,
        }
        self._asked: Final[dict[str, Page]] = {
            "/api/topics": self._all_topics,
            "/api/topic": self._topic,
            "/api/group": self._group,
            "/api/message": self._message,
            "/api/config": self._config,
        }

    async def answer(self, asked: Asked) -> Answer:
        """What there is at a path."""
        refusal = self._why_refused(asked)
        if refusal:
            return _told(403, {"error": refusal})
        if asked.path in self._files:
            content_type, body = self._files[asked.path]
            return Answer(200, body, content_type, HEADERS)
        try:
            if asked.path in self._known:
                return _told(200, await self._known[asked.path](_arguments(asked.query)))
            if asked.path in self._asked:
                return await self._ask(self._asked[asked.path], _arguments(asked.query))
        except BadQuestionError as error:
            return _told(400, {"error": str(error)})
        return _told(404, {"error": "there is nothing at this path"})

    def _why_refused(self, asked: Asked) -> str:
        """Empty if it is not."""
        host = asked.headers.get("host", "")
        if not self._is_mine(host):
            return f"this server is not called {host!r:.100}: use its IP address, or start it with --name"
        if asked.headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and asked.path.startswith("/api"):
            return "another site asks"
        return ""

    def _is_mine(self, host: str) -> bool:
        name, colon, port = host.rpartition(":")
        if not colon or not port.isdigit():
            name = host
        if name.lower() in self._names:
            return True
        try:
            ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            return False
        return True

    async def _ask(self, page: Page, arguments: Arguments) -> Answer:
        """Not too many at once: each holds threads."""
        if self._asking >= QUESTIONS_MAX:
            return _told(503, {"error": "brokers are being asked for other pages: try again in a moment"})
        self._asking += 1
        try:
            return _told(200, await page(arguments))
        finally:
            self._asking -= 1

    async def _cluster(self, _arguments: Arguments) -> Row:
        return cluster_view(self._collector)

    async def _history(self, arguments: Arguments) -> Row:
        since_ms = _integer(arguments, "since") or 0
        watched = self._collector.watched.items()
        series = {address: {"name": one.name, "points": one.history.since(since_ms)} for address, one in watched}
        return {"nowMs": self._collector.now_ms(), "columns": COLUMNS, "series": series}

    async def _groups(self, _arguments: Arguments) -> Row:
        readers, names = self._collector.readers(), self._collector.groups()
        rows = [row | {"broker": names[one.broker.address]} for one in readers for row in one.groups or ()]
        troubles = [_trouble(one, one.groups_trouble) for one in readers if one.groups_trouble]
        waited_for = [names[one.broker.address] for one in readers if one.groups is None and not one.groups_trouble]
        return {"groups": rows[:ROWS_MAX], "troubles": troubles, "notAskedYet": waited_for}

    async def _all_topics(self, _arguments: Arguments) -> Row:
        now = trio.current_time()
        if self._topics is None or now - self._topics[0] > KEPT_FOR_S:
            answers, troubles = await self._each(self._asker.read_topics)
            rows = [row | {"broker": self._name_of(one)} for one, found in answers for row in found]
            self._topics = now, {"topics": rows[:ROWS_MAX], "left": max(len(rows) - ROWS_MAX, 0), "troubles": troubles}
        return self._topics[1]

    async def _topic(self, arguments: Arguments) -> Row:
        topic = _needed(arguments, "topic")
        return await self._of_each(lambda broker: self._asker.read_topic(broker, topic))

    async def _group(self, arguments: Arguments) -> Row:
        group = _needed(arguments, "group")
        return await self._of_each(lambda broker: self._asker.read_group(broker, group))

    async def _message(self, arguments: Arguments) -> Row:
        wanted = _wanted(arguments)
        answers, troubles = await self._each(lambda broker: self._asker.read_messages(broker, wanted))
        found = {one["offsetMsgId"]: one for _, answer in answers for one in answer["messages"]}
        reasons = [{"broker": watched.name, "why": answer["reason"]} for watched, answer in answers if answer["reason"]]
        return {
            "messages": list(found.values())[:MESSAGES_MAX],
            "reasons": [] if found else reasons,
            "troubles": troubles,
        }

    async def _config(self, arguments: Arguments) -> Row:
        address = _needed(arguments, "broker")
        watched = self._collector.watched.get(address)
        if watched is None:
            raise BadQuestionError("no such broker is watched")
        answers, troubles = await self._each(self._asker.read_config, [watched])
        return {"keys": answers[0][1]["keys"] if answers else [], "troubles": troubles}

    async def _of_each(self, ask: Callable[[NamedBroker], Awaitable[Row]]) -> Row:
        answers, troubles = await self._each(ask)
        return {"brokers": [{"broker": self._name_of(one), **row} for one, row in answers], "troubles": troubles}

    def _name_of(self, watched: WatchedBroker) -> str:
        """What its group is called; it may have been forgotten while it was asked."""
        return self._collector.groups().get(watched.broker.address, watched.name)

    async def _each(
        self, ask: Callable[[NamedBroker], Awaitable[Any]], watched: list[WatchedBroker] | None = None
    ) -> tuple[list[tuple[WatchedBroker, Any]], list[Row]]:
        """What each broker answers, and a row for each that does not; all are asked at once."""
        found, troubles = list[tuple[WatchedBroker, Any]](), list[Row]()

        async def ask_one(one: WatchedBroker) -> None:
            try:
                found.append((one, await ask(one.broker)))
            except NO_ANSWER as error:
                troubles.append(_trouble(one, why(error)))

        async with trio.open_nursery() as nursery:
            for one in self._collector.readers() if watched is None else watched:
                nursery.start_soon(ask_one, one)
        return sorted(found, key=lambda answer: answer[0].name), troubles


def _static_files() -> dict[str, tuple[str, bytes]]:
    """By path, type and content."""
    found = {}
    for file in (files("rmqha.dashboard") / "static").iterdir():
        kind = file.name.rpartition(".")[2]
        if kind in _TYPES:
            found["/" if file.name == "index.html" else f"/{file.name}"] = (_TYPES[kind], file.read_bytes())
    return found


def _told(status: int, document: Row) -> Answer:
    body = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    return Answer(status, body, _JSON, HEADERS)


def _trouble(watched: WatchedBroker, reason: str) -> Row:
    return {"broker": watched.name, "address": watched.broker.address, "why": reason}


def _arguments(query: str) -> Arguments:
    """The last of each name."""
    try:
        parsed = parse_qs(query, max_num_fields=16, errors="strict")
    except ValueError:
        raise BadQuestionError("the query cannot be read") from None
    return {name: values[-1][:_ARGUMENT_SIZE_MAX] for name, values in parsed.items()}


def _needed(arguments: Arguments, name: str) -> str:
    if not arguments.get(name):
        raise BadQuestionError(f"{name} is missing")
    return arguments[name]


def _integer(arguments: Arguments, name: str) -> int | None:
    said = arguments.get(name, "").strip()
    if not said:
        return None
    if not (said.isascii() and said.isdigit() and len(said) < 19):
        raise BadQuestionError(f"{name} is no number: {said!r:.50}")
    return int(said)


def _wanted(arguments: Arguments) -> Wanted:
    """Raises BadQuestionError: it is not clear which."""
    topic, key, msg_id = (arguments.get(name, "").strip() for name in ("topic", "key", "id"))
    offset = _integer(arguments, "offset")
    since = arguments.get("since", "").strip()
    ways = sum((bool(key), bool(msg_id), offset is not None))
    if ways != 1 and (ways or not since):
        raise BadQuestionError("give one of a key, an id and an offset, or a time")
    if (key or not ways) and not topic:
        raise BadQuestionError("a key or a time is looked for in a topic: give one")
    try:
        since_ms = parse_time(since.removeprefix("@"), now_ms=time.time_ns() // 1_000_000) if since else None
    except ValueError as error:
        raise BadQuestionError(str(error)) from None
    return Wanted(topic=topic, key=key, msg_id=msg_id, offset=offset, since_ms=since_ms)
