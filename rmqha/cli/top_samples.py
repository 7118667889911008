"""What ``rmqha top`` shows of a broker at one time."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rmqha.cli.ask import BrokerConnection, RefusedError
from rmqha.cli.broker_tables import all_consumed
from rmqha.cli.dledger_verdict import members_in_sync
from rmqha.cli.errors import CliError
from rmqha.cli.lag_limits import replica_lags
from rmqha.cli.named_brokers import NO_ANSWER, NamedBroker
from rmqha.cli.span import span
from rmqha.cli.status_text import human_bytes
from rmqha.cli.verdict import judge, named, read_status, slaves_in_sync, slaves_of
from rmqha.codec.codes import RequestCode
from rmqha.codec.java_json import loads
from rmqha.logs import escaped

_FAILED: Final = "failed"
_DEGRADED: Final = "degraded"
_REASON_SIZE_MAX: Final = 160
"""Characters, of a reason that is one line among others; ``rmqha status`` tells all of it."""
COLUMNS: Final = (
    "BROKER", "ROLE", "PUT/S", "GET/S", "BYTES/S", "P99 MS", "UNDER-REPL", "REPL LAG", "REPL BEHIND", "CONSUMER LAG",
)  # fmt: skip


@dataclass(frozen=True)
class GoneSlave:
    """One that has left, and is still missed."""

    name: str
    last_seen_s_ago: float
    lag_bytes: int


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One broker. None: it does not tell, or it does not apply.

    Attributes:
        at_s: when, by a clock that only grows.
        put_tps: messages per second, as ``get_tps``.
        bytes_per_s: by which the log grew.
        put_p99_ms: of the answers to puts, of the last ten seconds; a RocketMQ broker tells its last whole minute.
        in_sync: replicas beside this broker that hold its log, and how many should.
        replica_lag_s: for how long the last of its replicas has lacked something; ``replica_lag_bytes`` how much.
        gone: slaves that have left count as well.
        group_lags: messages that each group has not consumed.
        verdict: as ``rmqha status`` has it, and its ``reasons``; empty where nothing is known.
        trouble: why nothing is known; else empty.
        answered_at_s: when it was last known, as ``at_s``.
    """

    broker: NamedBroker
    at_s: float
    role: str = ""
    put_tps: float | None = None
    get_tps: float | None = None
    max_offset: int | None = None
    bytes_per_s: float | None = None
    put_p99_ms: float | None = None
    in_sync: tuple[int, int] | None = None
    replica_lag_s: float | None = None
    replica_lag_bytes: int | None = None
    gone: tuple[GoneSlave, ...] = ()
    consumer_lag: int | None = None
    group_lags: Mapping[str, int] = field(default_factory=dict)
    verdict: str = ""
    reasons: tuple[str, ...] = ()
    trouble: str = ""
    is_refused: bool = False
    """The trouble is its own answer: it refuses to tell."""
    answered_at_s: float | None = None

    @property
    def is_under_replicated(self) -> bool | None:
        """Whether a replica that there was, or that a send needs, is missing or behind."""
        return None if self.in_sync is None else self.in_sync[0] < self.in_sync[1]

    @property
    def remarks(self) -> list[str]:
        """What no column says."""
        if self.trouble:
            at_s = self.answered_at_s
            return [self.trouble if at_s is None else f"{self.trouble}; last answer {span(self.at_s - at_s)} ago"]
        told = "slave {} is gone, last seen {} ago, {} behind"
        return self._told_reasons() + [
            told.format(one.name, span(one.last_seen_s_ago), human_bytes(one.lag_bytes)) for one in self.gone
        ]

    def _told_reasons(self) -> list[str]:
        """All of a broker that failed; of a degraded one the first that is not told by a slave that is gone."""
        if self.verdict == _FAILED:
            return [f"{_FAILED}: {reason}" for reason in self.reasons]
        if self.verdict != _DEGRADED:
            return []
        left = tuple(f"{one.name} left" for one in self.gone)
        others = [reason for reason in self.reasons if not reason.startswith(left)]
        return [_shortened(f"{_DEGRADED}: {reason}") for reason in others[:1]]

    def as_json(self) -> dict[str, Any]:
        """As an object of one line."""
        named_here = {"time": int(time.time() * 1000), "broker": self.broker.name, "address": self.broker.address}
        if self.trouble:
            ago = None if self.answered_at_s is None else round(self.at_s - self.answered_at_s, 3)
            return named_here | {"trouble": self.trouble, "lastAnswerSecondsAgo": ago}
        in_sync, wanted = self.in_sync or (None, None)
        return named_here | {
            "role": self.role,
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "putTps": self.put_tps,
            "getTps": self.get_tps,
            "bytesPerSecond": self.bytes_per_s,
            "putP99Ms": self.put_p99_ms,
            "maxOffset": self.max_offset,
            "underReplicated": self.is_under_replicated,
            "replicasInSync": in_sync,
            "replicasWanted": wanted,
            "replicaLagSeconds": self.replica_lag_s,
            "replicaLagBytes": self.replica_lag_bytes,
            "slavesGone": [
                {"name": one.name, "lastSeenSecondsAgo": one.last_seen_s_ago, "lagBytes": one.lag_bytes}
                for one in self.gone
            ],
            "consumerLag": self.consumer_lag,
            "groups": dict(self.group_lags),
        }

    def cells(self) -> list[str]:
        """A text for each of the columns."""
        if self.trouble:
            said = "refuses" if self.is_refused else "no answer"
            return [escaped(self.broker.name), said, *["-"] * (len(COLUMNS) - 2)]
        shown = (
            _rate(self.put_tps),
            _rate(self.get_tps),
            "-" if self.bytes_per_s is None else human_bytes(self.bytes_per_s),
            "-" if self.put_p99_ms is None else f"{self.put_p99_ms:.1f}",
            "-" if self.in_sync is None else _share(*self.in_sync),
            "-" if self.replica_lag_s is None else f"{self.replica_lag_s:.1f} s",
            "-" if self.replica_lag_bytes is None else human_bytes(self.replica_lag_bytes),
            "-" if self.consumer_lag is None else f"{self.consumer_lag:,}",
        )
        return [escaped(self.broker.name), escaped(self.role) or "-", *shown]


def take_samples(
    brokers: Sequence[NamedBroker], before: Mapping[str, Sample], *, with_groups: bool, timeout_s: float
) -> dict[str, Sample]:
    """One of each broker, by address; ``before`` are the last ones. One that cannot be asked says why."""
    return {
        broker.address: _sample(broker, before.get(broker.address), with_groups=with_groups, timeout_s=timeout_s)
        for broker in brokers
    }


def _sample(broker: NamedBroker, before: Sample | None, *, with_groups: bool, timeout_s: float) -> Sample:
    try:
        with BrokerConnection(broker.address, timeout_s=timeout_s) as connection:
            table = loads(bytes(connection.ask_for(RequestCode.GET_BROKER_RUNTIME_INFO).body))["table"]
            lags: dict[str, int] | None = None
            if with_groups:
                consumed = all_consumed(connection)
                lags = {group: sum(queue.lag for queue in queues) for group, queues in consumed.items()}
        return read_sample(broker, table, lags, before=before, now_s=time.monotonic())
    except CliError as error:
        trouble, is_refused = f"{error.message}: {error.why}", isinstance(error, RefusedError)
    except NO_ANSWER as error:
        trouble, is_refused = f"its answer cannot be read: {error!r:.200}", False
    answered_at_s = None if before is None else before.answered_at_s
    return Sample(
        broker=broker, at_s=time.monotonic(), trouble=trouble, is_refused=is_refused, answered_at_s=answered_at_s
    )


def read_sample(
    broker: NamedBroker, table: dict[str, str], lags: dict[str, int] | None, *, before: Sample | None, now_s: float
) -> Sample:
    """From a broker's runtime table and its groups' lags. Pure.

    Raises:
        LookupError, TypeError, ValueError: it is no such table.
    """
    facts = read_status(table)
    verdict = judge(facts)
    max_offset = facts.get("max_offset")
    bytes_per_s = None
    if before is not None and before.max_offset is not None and max_offset is not None and now_s > before.at_s:
        bytes_per_s = max(max_offset - before.max_offset, 0) / (now_s - before.at_s)
    gone = tuple(_gone_slaves(facts))
    here = slaves_of(facts)
    return Sample(
        broker=broker,
        at_s=now_s,
        role=str(facts.get("role", "")),
        put_tps=_first(table.get("putTps")),
        get_tps=_first(table.get("getTransferedTps")),
        max_offset=max_offset,
        bytes_per_s=bytes_per_s,
        put_p99_ms=facts["put_p99_ms"] if "put_p99_ms" in facts else _first(table.get("putLatency99")),
        in_sync=_in_sync(facts),
        replica_lag_s=max((lag_s for _, lag_s in replica_lags(facts)), default=None),
        replica_lag_bytes=max(
            (*(int(one["lag_bytes"]) for one in here), *(one.lag_bytes for one in gone)), default=None
        ),
        gone=gone,
        consumer_lag=None if lags is None else sum(lags.values()),
        group_lags=lags or {},
        verdict=verdict.level,
        reasons=verdict.reasons,
        answered_at_s=now_s,
    )


def _gone_slaves(facts: dict[str, Any]) -> Iterator[GoneSlave]:
    for one in (facts.get("ha") or {}).get("departed", ()):
        lag_bytes = max(int(facts["max_offset"]) - max(int(one["slave_ack_offset"]), 0), 0)
        yield GoneSlave(named(one), round(float(one["last_s_ago"]), 3), lag_bytes)


def _in_sync(facts: dict[str, Any]) -> tuple[int, int] | None:
    """Replicas that hold the log, and how many there were, or are needed; None: there is none to have."""
    if "dledger" in facts:
        return members_in_sync(facts) if facts["role"] == "LEADER" else None
    if "ha" not in facts:
        return None
    current, needed = slaves_in_sync(facts)
    wanted = max(needed, len(slaves_of(facts)) + len(facts["ha"].get("departed", ())))
    return (current, wanted) if wanted else None


def _share(in_sync: int, wanted: int) -> str:
    return f"{'yes' if in_sync < wanted else 'no'}, {in_sync}/{wanted}"


def _first(numbers: str | None) -> float | None:
    """Of ``12.3 4.5 6.7``, the rates of several spans, that of the shortest."""
    return float(numbers.split()[0]) if numbers and numbers.split() else None


def _shortened(remark: str) -> str:
    """With a page to read only where that has room: what is wrong comes first."""
    if len(remark) > _REASON_SIZE_MAX:
        remark = remark.partition("; see docs/")[0]
    return remark if len(remark) <= _REASON_SIZE_MAX else f"{remark[: _REASON_SIZE_MAX - 3]}..."


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
