"""What an operator decides about replication, under the names and with the defaults of the keys (config/ha_config.py).

Times are seconds, sizes bytes.
"""

from dataclasses import dataclass

from rmqha.choices import HaAck, HaStartFrom
from rmqha.replication.master_session import MasterSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class HAOptions:
    """The serving side; a slave serves its own log too."""

    ha_bind_address: str
    ha_listen_port: int
    ha_allow: tuple[str, ...]
    """Networks whose slaves may connect, as ``10.0.0.0/8``; empty: any that can reach the port."""
    max_ha_connections: int
    max_ha_connections_per_address: int
    ha_send_heartbeat_interval_s: float
    ha_housekeeping_interval_s: float
    ha_first_report_timeout_s: float
    """A new connection must have reported within this time. A RocketMQ slave takes up to 6 s (spec: ha §3)."""
    ha_transfer_batch_size: int
    ha_transfer_size_max: int
    ha_slave_fallbehind_max: int
    in_sync_replicas: int
    ha_send_durable_only: bool
    ha_start_from: HaStartFrom
    is_slave: bool
    """A slave follows a master itself, which catches up from it when it comes back."""

    def session_settings(self, file_size: int) -> MasterSettings:
        """What the sessions of a master are told whose log has files of this size."""
        return MasterSettings(
            file_size=file_size,
            heartbeat_s=self.ha_send_heartbeat_interval_s,
            housekeeping_s=self.ha_housekeeping_interval_s,
            first_report_s=self.ha_first_report_timeout_s,
            transfer_batch_size=self.ha_transfer_batch_size,
            transfer_size_max=self.ha_transfer_size_max,
            start_from=self.ha_start_from,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HAClientOptions:
    """The receiving side."""

    ha_ack: HaAck
    ha_send_heartbeat_interval_s: float
    ha_housekeeping_interval_s: float
    connect_timeout_s: float = 5.0
    overlap_size: int
    """A slave that reconnects has at least so many bytes of its log compared."""
    stream_buffer_size: int
    """A connection receives into so many bytes, to begin with; they grow with the records."""
