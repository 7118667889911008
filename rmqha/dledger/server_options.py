"""ServerOptions: what the operator decides about a member."""

from dataclasses import dataclass
from typing import Final

from rmqha.dledger.dledger_config import DLedgerConfig
from rmqha.dledger.dledger_entry_pusher import PusherOptions
from rmqha.dledger.elector_options import ElectorOptions
from rmqha.dledger.leadership_transfer import TransferOptions
from rmqha.remoting.limits import RemotingLimits

MEMBER_LIMITS: Final = RemotingLimits(
    client_allow=(),
    max_connections=4096,
    max_connections_per_address=4096,
    max_in_flight_bytes=512 << 20,
    max_in_flight_bytes_per_connection=64 << 20,
    receive_size=256 * 1024,
    server_channel_max_idle_time_s=120.0,
)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Of one member.

    Attributes:
        peers: ``(host, port)`` of each member by its id, this one's too, where it listens.
        limits: what the other members and the clients are granted.
    """

    group: str
    peers: dict[str, tuple[str, int]]
    store: DLedgerConfig
    elector: ElectorOptions
    pusher: PusherOptions
    transfer: TransferOptions
    limits: RemotingLimits = MEMBER_LIMITS
