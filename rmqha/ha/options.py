"""What an operator decides about replication. Times are seconds, sizes bytes; each default is safe."""

from dataclasses import dataclass

from rmqha.choices import HaAck, HaStartFrom
from rmqha.codec.transfer import BODY_SIZE_MAX
from rmqha.replication.slave_session import BUFFER_SIZE


@dataclass(frozen=True, slots=True)
class HAOptions:
    """The serving side; a slave serves its own log too."""

    listen_host: str = "127.0.0.1"
    port: int = 0
    allow: tuple[str, ...] = ()
    """Networks whose slaves may connect, as ``10.0.0.0/8``; empty: any that can reach the port."""
    connections_max: int = 64
    connections_per_address_max: int = 8
    heartbeat_s: float = 5.0
    housekeeping_s: float = 20.0
    first_report_s: float = 10.0
    """A new connection must have reported within this time. A RocketMQ slave takes up to 6 s (spec: ha §3)."""
    transfer_batch_size: int = 32 * 1024
    transfer_size_max: int = BODY_SIZE_MAX
    slave_fallbehind_max: int = 256 * 1024 * 1024
    in_sync_replicas: int = 2
    send_durable_only: bool = False
    start_from: HaStartFrom = HaStartFrom.MIN


@dataclass(frozen=True, slots=True)
class HAClientOptions:
    """The receiving side."""

    ack: HaAck = HaAck.DURABLE
    heartbeat_s: float = 5.0
    housekeeping_s: float = 20.0
    connect_timeout_s: float = 5.0
    overlap_size: int = 64 * 1024
    stream_buffer_size: int = BUFFER_SIZE
    """A connection receives into so many bytes, to begin with."""
