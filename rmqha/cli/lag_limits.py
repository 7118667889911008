"""``rmqha status --warn-lag --crit-lag``: from how far replicas are behind, in seconds, to a verdict. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from rmqha.cli.verdict import Verdict, named, slaves_of

_FAILED = "failed"


@dataclass(frozen=True)
class LagLimits:
    """Seconds; None: no limit of that kind."""

    warn_s: float | None
    crit_s: float | None


def replica_lags(facts: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Each replica that a master, or a leader, knows, and for how long it has lacked something."""
    for connection in slaves_of(facts):
        yield named(connection), float(connection["lag_s"])
    for gone in (facts.get("ha") or {}).get("departed", ()):
        yield f"{named(gone)}, which left,", gone_lag_s(gone)
    if facts.get("role") == "LEADER":
        for view in facts["dledger"].get("members", ()):
            yield str(view["id"]), float(view["stuck_s"] if view["connected"] else view["since_s"])


def gone_lag_s(gone: dict[str, Any]) -> float:
    """For how long a slave that left has lacked something: what came since, for all that its master knows."""
    return float(gone.get("lag_s", gone["last_s_ago"]))


def within_limits(verdict: Verdict, facts: dict[str, Any], limits: LagLimits) -> Verdict:
    """The verdict, made worse by replicas beyond the limits: with one it is not in sync."""
    level, reasons, in_sync = verdict.level, list(verdict.reasons), verdict.in_sync
    for name, lag_s in replica_lags(facts):
        for worse, option, limit_s in (
            (_FAILED, "--crit-lag", limits.crit_s),
            ("degraded", "--warn-lag", limits.warn_s),
        ):
            if limit_s is not None and lag_s > limit_s:
                level, in_sync = worse if level != _FAILED else level, False
                reasons.append(f"{name} lags behind by {lag_s:.1f} s, more than {option} {limit_s:g} s")
                break
    return replace(verdict, level=level, reasons=tuple(reasons), in_sync=in_sync)
