"""ClientIds: whose each clientId is. Replies, and the queues of a group, are handed out by it.

It is the account's of which a client said it first, as long as a connection lives on which such a client says so.
Clients make it of their address, their process and the time, so others come by it only on purpose; or in containers
that all have one address and one process number.
"""

from collections.abc import Callable
from typing import Final

from rmqha.broker.acl.asker import Asker
from rmqha.remoting.connection import Connection


class ClientIds:
    """A connection has one at a time, the one of its last heartbeat."""

    def __init__(self, is_account: Callable[[str], bool]) -> None:
        """``is_account`` tells whether there still is an account with this access key."""
        self._is_account: Final = is_account
        self._holders: Final[dict[str, dict[Connection, Asker]]] = {}
        """By clientId, in the order in which they came."""
        self._id_of: Final[dict[Connection, str]] = {}

    def find_holder(self, client_id: str, connection: Connection, asker: Asker) -> Asker | None:
        """Whose it is, if not the account's that asks. What was said for an account that is gone holds nothing."""
        for one, holder in self._holders.get(client_id, {}).items():
            if one is connection or holder.access_key == asker.access_key:
                return None
            if not holder.access_key or self._is_account(holder.access_key):
                return holder
        return None

    def hold(self, client_id: str, connection: Connection, asker: Asker) -> None:
        """A client says, on this connection, that it is its own."""
        if self._id_of.get(connection) != client_id:
            self.forget(connection)
            self._id_of[connection] = client_id
        self._holders.setdefault(client_id, {})[connection] = asker

    def forget(self, connection: Connection) -> None:
        """A connection ended."""
        client_id = self._id_of.pop(connection, None)
        if client_id is not None:
            holders = self._holders[client_id]
            del holders[connection]
            if not holders:
                del self._holders[client_id]
