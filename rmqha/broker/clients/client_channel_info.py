"""ClientChannelInfo: a client, as the last heartbeat on one of its connections said who it is."""

from dataclasses import dataclass
from typing import Any

from rmqha.broker.acl.asker import NOBODY, Asker
from rmqha.codec.codes import LanguageCode
from rmqha.codec.remoting import VERSION
from rmqha.remoting.connection import Connection


@dataclass(frozen=True, slots=True)
class ClientChannelInfo:
    """One connection of a client. A client may have several, and two clients may have one ``client_id``."""

    connection: Connection
    client_id: str
    peer: str = ""
    """``ip:port``."""
    language: LanguageCode = LanguageCode.JAVA
    version: int = VERSION
    last_update_timestamp_ms: int = 0
    """When the heartbeat came."""
    asker: Asker = NOBODY
    """Which account it was signed for."""

    def to_json(self) -> dict[str, Any]:
        """A member of ``connectionSet`` (spec: remoting §2.7, 203 and 204)."""
        return {
            "clientAddr": self.peer,
            "clientId": self.client_id,
            "language": self.language.name,
            "version": self.version,
        }

    def producer_json(self) -> dict[str, Any]:
        """An entry of the answer to 328; the address as Java's sockets write it."""
        return {
            "clientId": self.client_id,
            "language": self.language.name,
            "lastUpdateTimestamp": self.last_update_timestamp_ms,
            "remoteIP": f"/{self.peer}",
            "version": self.version,
        }
