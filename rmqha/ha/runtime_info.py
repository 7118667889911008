"""What an operator sees of replication: plain values, made on request."""

from dataclasses import dataclass
from enum import Enum


class ConnectionState(Enum):
    """How a master sees a slave's connection."""

    FIRST_REPORT_AWAITED = "first-report-awaited"
    """Connected and silent. A RocketMQ slave is, for 5 to 6 s."""
    CATCH_UP = "catch-up"
    """Receiving what was written some time ago."""
    IN_SYNC = "in-sync"
    """Holds everything that was written up to a moment ago."""


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """One slave, connected now."""

    peer: str
    name: str
    """``brokerName/brokerId``, if the slave said so by remoting; else empty."""
    state: ConnectionState
    connected_s: float
    slave_ack_offset: int
    """-1 before the first report."""
    next_transfer_from_where: int
    lag_bytes: int
    lag_s: float
    """How long the master has had something this slave has not acknowledged."""
    rate_bytes_s: float
    eta_s: float | None
    """Until in sync, if it goes on like this; None if nothing moves."""
    heard_s_ago: float
    """When the last bytes came; a slave reports at least every ``haSendHeartbeatInterval`` of its own."""


@dataclass(frozen=True, slots=True)
class RefusedInfo:
    """An address that was turned away."""

    address: str
    reason: str
    message: str
    count: int
    """How often in a row, without ten minutes in between."""
    offset: int
    """What it reported, if a report was the reason."""
    last_s_ago: float


@dataclass(frozen=True, slots=True)
class DepartedInfo:
    """A slave that was connected, and is not any more."""

    name: str
    """``brokerName/brokerId``, if the slave said so by remoting; else empty."""
    peer: str
    slave_ack_offset: int
    """Its last acknowledgement; -1 if there was none."""
    reason: str
    last_s_ago: float
    lag_s: float
    """How long the master has had something that it did not have: at least since it left."""


@dataclass(frozen=True, slots=True)
class HAServiceInfo:
    """The serving side of replication."""

    port: int
    heartbeat_s: float
    """``haSendHeartbeatInterval``, which a pair mostly has in common."""
    connections: tuple[ConnectionInfo, ...]
    connections_broken: int
    """How many ended by a bug of this broker; each is in its log with its traceback."""
    refused: tuple[RefusedInfo, ...]
    departed: tuple[DepartedInfo, ...]
    push2_slave_max_offset: int
    live_slaves: int
    """As how many slaves the connections that have reported count: one for all that may be one slave's."""
    below_needed_s: float | None
    """For so long fewer than a send needs, or none, have been connected; None: there are enough."""
    replicated_offset: int
    """Held by as many live slaves as ``in_sync_replicas`` asks for; -1 when there are not enough."""
    proven_offset: int
    """As much as enough slaves, one at least, took at some moment since the start, wherever they are now; 0: none."""
    refusals: dict[str, int]
    """How often a peer was turned away since the start, by reason."""


class ClientState(Enum):
    """How a slave stands to its master."""

    NO_MASTER = "no-master"
    CONNECTING = "connecting"
    COMPARING = "comparing"
    """Checks that the last bytes here and there are the same."""
    TRANSFER = "transfer"
    WAITING = "waiting"
    """Between two attempts; see ``last_error``."""
    DISK_FULL = "disk-full"
    """Connected, and not reading until there is space."""
    AHEAD = "ahead"
    """The master's log is shorter than this one. Nothing is cut; the tail may hold acknowledged messages."""
    BELOW_MIN = "below-min"
    """The master no longer has what comes next here: this slave must be rebuilt empty."""
    MISCONFIGURED = "misconfigured"
    """Master and slave are not of one group, or have the same brokerId, or files of different sizes."""
    DIVERGED = "diverged"
    """Master and slave hold different bytes at the same offsets. Replication has stopped for good."""
    FAILED = "failed"
    """The local store failed. Replication has stopped for good."""
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class HAClientInfo:
    """The receiving side of replication."""

    state: ClientState
    master: str | None
    last_error: str
    received_offset: int
    verified_offset: int
    durable_offset: int
    reported_offset: int
    heard_s_ago: float | None
    """For how long this slave has waited for the master's next bytes; None without a connection."""
    connections: int
    """How many were made since the start."""
    corrupt_streams: int
    """How many ended because the master's bytes were no records."""
    diverged_at: int | None
    """Set with ``DIVERGED``: the first difference in what was compared; what lies before that may differ, too."""
    apart_s: float | None
    """For how long no master's log has gone on with this one, at most since the start; None while one does."""
