"""What ``rmqha top`` shows of a broker at one time."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rmqha.cli.ask import BrokerConnection
from rmqha.cli.broker_tables import all_consumed
from rmqha.cli.errors import CliError
from rmqha.cli.named_brokers import NO_ANSWER, NamedBroker
from rmqha.cli.status_text import human_bytes
from rmqha.cli.verdict import read_status
from rmqha.codec.codes import RequestCode
from rmqha.codec.java_json import loads
from rmqha.logs import escaped

COLUMNS: Final = ("BROKER", "ROLE", "PUT/S", "GET/S", "BYTES/S", "P99 MS", "REPL LAG", "REPL BEHIND", "CONSUMER LAG")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One broker. None: it does not tell, or it does not apply.

    Attributes:
        at_s: when, by a clock that only grows.
        put_tps: messages per second, as ``get_tps``.
        bytes_per_s: by which the log grew.
        put_p99_ms: of the answers to puts.
        replica_lag_s: for how long the last of its replicas has lacked something; ``replica_lag_bytes`` how much.
        group_lags: messages that each group has not consumed.
        trouble: why nothing is known; else empty.
    """

    broker: NamedBroker
    at_s: float
    role: str = ""
    put_tps: float | None = None
    get_tps: float | None = None
    max_offset: int | None = None
    bytes_per_s: float | None = None
    put_p99_ms: float | None = None
    replica_lag_s: float | None = None
    replica_lag_bytes: int | None = None
    consumer_lag: int | None = None
    group_lags: Mapping[str, int] = field(default_factory=dict)
    trouble: str = ""

    def as_json(self) -> dict[str, Any]:
        """As an object of one line."""
        named = {"time": int(time.time() * 1000), "broker": self.broker.name, "address": self.broker.address}
        if self.trouble:
            return named | {"trouble": self.trouble}
        return named | {
            "role": self.role,
            "putTps": self.put_tps,
            "getTps": self.get_tps,
            "bytesPerSecond": self.bytes_per_s,
            "putP99Ms": self.put_p99_ms,
            "maxOffset": self.max_offset,
            "replicaLagSeconds": self.replica_lag_s,
            "replicaLagBytes": self.replica_lag_bytes,
            "consumerLag": self.consumer_lag,
            "groups": dict(self.group_lags),
        }

    def cells(self) -> list[str]:
        """A text for each of the columns."""
        if self.trouble:
            return [escaped(self.broker.name), "no answer", *["-"] * (len(COLUMNS) - 2)]
        shown = (
            _rate(self.put_tps),
            _rate(self.get_tps),
            "-" if self.bytes_per_s is None else human_bytes(self.bytes_per_s),
            "-" if self.put_p99_ms is None else f"{self.put_p99_ms:.1f}",
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
        return Sample(broker=broker, at_s=time.monotonic(), trouble=f"{error.message}: {error.why}")
    except NO_ANSWER as error:
        return Sample(broker=broker, at_s=time.monotonic(), trouble=f"its answer cannot be read: {error!r:.200}")


def read_sample(
    broker: NamedBroker, table: dict[str, str], lags: dict[str, int] | None, *, before: Sample | None, now_s: float
) -> Sample:
    """From a broker's runtime table and its groups' lags. Pure.

    Raises:
        LookupError, TypeError, ValueError: it is no such table.
    """
    facts = read_status(table)
    replicas = (facts.get("ha") or {}).get("connections", ())
    max_offset = facts.get("max_offset")
    bytes_per_s = None
    if before is not None and before.max_offset is not None and max_offset is not None and now_s > before.at_s:
        bytes_per_s = max(max_offset - before.max_offset, 0) / (now_s - before.at_s)
    return Sample(
        broker=broker,
        at_s=now_s,
        role=str(facts.get("role", "")),
        put_tps=_first(table.get("putTps")),
        get_tps=_first(table.get("getTransferedTps")),
        max_offset=max_offset,
        bytes_per_s=bytes_per_s,
        put_p99_ms=_first(table.get("putLatency99")),
        replica_lag_s=max((float(one["lag_s"]) for one in replicas), default=None),
        replica_lag_bytes=max((int(one["lag_bytes"]) for one in replicas), default=None),
        consumer_lag=None if lags is None else sum(lags.values()),
        group_lags=lags or {},
    )


def _first(numbers: str | None) -> float | None:
    """Of ``12.3 4.5 6.7``, the rates of several spans, that of the shortest."""
    return float(numbers.split()[0]) if numbers and numbers.split() else None


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
