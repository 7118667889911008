"""Dashboards of made-up clusters, on a real port: the states that an operator meets, with an hour of history."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import sin
from typing import Any

import trio

from rmqha.cli.top_samples import Sample
from rmqha.client.message import read_message
from rmqha.codec.record.message import decode_message
from rmqha.dashboard.collector import Collector, WatchedBroker
from rmqha.dashboard.history import History
from rmqha.dashboard.message_view import message_view
from rmqha.dashboard.server import open_site
from rmqha.dashboard.site import Site
from tests.cli.facts import connection, master, slave
from tests.dashboard.fakes import A, B, C, FakeAsker, record, table

HOUR_MS = 3_600_000
STEP_MS = 15_000
END = 734_003_200
NAMED = {"broker_name": "orders-a", "broker_cluster_name": "shop", "up_s": 86_400.0 * 12, "disk_used_percent": 41.5}
OFFSETS = dict.fromkeys(("max_offset", "flushed_offset", "dispatched_offset", "confirm_offset"), END)
HERE = NAMED | OFFSETS | {"put_p99_ms": 1.9, "min_offset": 104_857_600, "version": "rmqha 0.1.0"}


@dataclass
class Scene:
    """What brokers say; ``gone`` have a history, and answer no more."""

    tables: dict[str, dict[str, str]]
    gone: tuple[str, ...] = ()
    put: float = 2400.0
    topics: list[dict[str, Any]] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    has_history: bool = True


def a_connection(name: str, state: str = "in-sync", **more: Any) -> dict[str, Any]:
    """A slave as its master sees it."""
    host = "10.0.0.2" if name.endswith("/1") else "10.0.0.3"
    told = {"name": name, "peer": f"{host}:40312", "slave_ack_offset": END - 512, "lag_bytes": 512, "lag_s": 0.0}
    return connection(state, **(told | {"rate_bytes_s": 2.4e6} | more))


def a_master(*connections: dict[str, Any], **more: Any) -> dict[str, str]:
    """The table of a master."""
    ha = {"connections": list(connections), "refused": [], "departed": more.pop("departed", [])}
    return table(master() | HERE | {"ha": ha} | more, put="2410.0" if more.get("max_offset", END) else "0.0")


def a_slave(number: int, state: str = "transfer", **more: Any) -> dict[str, str]:
    """The table of a slave."""
    client = {
        "state": state, "master": "10.0.0.1:10912", "last_error": "", "received_offset": END, "durable_offset": END,
    }  # fmt: skip
    own = {"broker_id": number, "put_p99_ms": None, "ha_client": client | more.pop("client", {})}
    return table(slave(state) | HERE | own | more, put="0.0")


DEPARTED = {
    "peer": "10.0.0.2:40312", "name": "orders-a/1", "slave_ack_offset": END - 9_400_000, "last_s_ago": 241.0,
    "lag_s": 241.0, "reason": "its connection ended: Connection reset by peer",
}  # fmt: skip
STARTING = {
    "what": "walking the log from its last checkpoint", "done_bytes": 412_000_000, "total_bytes": END, "for_s": 7.0,
}  # fmt: skip
TOPICS = [
    {"topic": name, "system": False, "writeQueues": 8, "readQueues": 8, "perm": "rw"}
    for name in ("orders", "payments", "shipments")
]
GROUPS = [{"group": "billing", "topics": 1, "lag": 1204}, {"group": "audit", "topics": 2, "lag": 0}]
FIRST, SECOND = a_connection("orders-a/1"), a_connection("orders-a/2")
_DIVERGED = {"last_error": "the master's log differs at 733,998,080"}
_EMPTY: dict[str, Any] = dict.fromkeys((*OFFSETS, "min_offset"), 0)
SCENES = {
    "healthy": Scene(
        {A: a_master(FIRST, SECOND), B: a_slave(1), C: a_slave(2)}, topics=TOPICS, groups=GROUPS
    ),
    "slave lost": Scene(
        {A: a_master(SECOND, departed=[DEPARTED], in_sync_replicas=3), C: a_slave(2)}, gone=(B,),
        topics=TOPICS, groups=GROUPS,
    ),
    "diverged": Scene(
        {A: a_master(SECOND, in_sync_replicas=3), B: a_slave(1, "diverged", client=_DIVERGED), C: a_slave(2)},
        topics=TOPICS, groups=GROUPS,
    ),
    "recovering": Scene(
        {
            A: table({"role": "SYNC_MASTER", "broker_name": "orders-a", "broker_id": 0, "starting": STARTING}),
            B: a_slave(1, "connecting", client={"last_error": "Connection refused"}),
            C: a_slave(2, "connecting", client={"last_error": "Connection refused"}),
        },
        topics=TOPICS, groups=GROUPS,
    ),
    "empty": Scene(
        {A: a_master(a_connection("orders-a/1", lag_bytes=0), **_EMPTY), B: a_slave(1, **_EMPTY)}, has_history=False
    ),
}  # fmt: skip


def _with_history(watched: WatchedBroker, scene: Scene, collector: Collector) -> None:
    """As it might have been."""
    watched.history = History(interval_s=collector.interval_s)
    leads, order = watched.broker.address == A, int(watched.broker.address[7])
    now_ms = collector.now_ms()
    for at in range(now_ms - HOUR_MS + STEP_MS, now_ms, STEP_MS):
        wave = 1 + 0.25 * sin(at / 500_000 + order) + 0.06 * sin(at / 17_000)
        late = max(0.0, 1 - (now_ms - at) / 241_000) if scene.gone else 0.0
        watched.history.add(
            Sample(
                broker=watched.broker,
                at_s=0.0,
                trouble="no answer" if watched.broker.address in scene.gone and late else "",
                put_tps=scene.put * wave if leads else 0.0,
                get_tps=scene.put * wave * (0.9 if leads else 0.35),
                bytes_per_s=scene.put * wave * 1_030,
                put_p99_ms=1.2 + 0.9 * wave if leads else None,
                replica_lag_s=0.02 * wave + 241 * late if leads else None,
                consumer_lag=int(1_200 * wave) if leads else None,
            ),
            time_ms=at,
        )


def details() -> dict[str, Any]:
    """What a broker tells when it is asked for more."""
    body = b'{"order": 4711, "items": ["<b>tea</b>", "cups"], "total": 34.9}'
    stored = decode_message(record(body, properties="KEYS\x014711\x02TAGS\x01new\x02trace\x01<i>a1</i>"), 0)
    queues = [{"queue": queue, "first": 0, "end": 1000 + queue, "storedMs": 1_795_000_000_000} for queue in range(8)]
    consumed = {"topic": "orders", "queue": 3, "consumed": 10, "end": 17, "lag": 7, "storedMs": 0}
    member = {"clientId": "10.0.0.8@4", "clientAddr": "10.0.0.8:51234", "language": "JAVA"}
    keys = [
        {"key": "brokerName", "value": "orders-a", "origin": "/etc/rmqha/master.conf:3"},
        {"key": "haAck", "value": "durable", "origin": "default"},
    ]
    found = message_view(read_message(stored, "orders-a", body_size_max=1 << 20))
    return {
        "topic": {"queues": queues, "groups": ["billing"], "left": 0},
        "group": {"members": [member], "queues": [consumed], "left": 0},
        "messages": {"messages": [found], "reason": ""},
        "config": {"keys": keys},
    }


@asynccontextmanager
async def showing(scene: Scene) -> AsyncIterator[tuple[str, FakeAsker]]:
    """A dashboard of it; yields its URL, and who answers it."""
    asker = FakeAsker(dict.fromkeys(scene.gone, a_slave(1)) | scene.tables)
    asker.topics[A], asker.groups[A], asker.details = scene.topics, scene.groups, details()
    collector = Collector([*scene.tables, *scene.gone], asker, interval_s=STEP_MS / 1000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(collector.run)
        for watched in await _all_asked(collector, len(scene.tables) + len(scene.gone)):
            if scene.has_history:
                _with_history(watched, scene, collector)
        for address in scene.gone:
            _take_away(collector.watched[address], asker)
        async with open_site(Site(collector, asker), host="127.0.0.1", port=0) as url:
            yield url, asker
        nursery.cancel_scope.cancel()


async def _all_asked(collector: Collector, count: int) -> list[WatchedBroker]:
    watched = collector.watched
    with trio.fail_after(60):
        while len(watched) < count or not all(one.sample for one in watched.values()):  # noqa: ASYNC110 - it tells nobody
            await trio.sleep(0.01)
    return list(watched.values())


def _take_away(watched: WatchedBroker, asker: FakeAsker) -> None:
    """It answers no more, and has not for some time."""
    del asker.tables[watched.broker.address]
    watched.trouble = f"the broker at {watched.broker.address} cannot be reached: Connection refused"
    assert watched.answered_ms is not None
    watched.answered_ms -= 241_000
