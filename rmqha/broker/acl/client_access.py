"""ClientAccess: what clients may at present, where that is decided later than their request comes, or of its content.

A held pull goes on, or a transaction ends, long after the request was let in; who is asked about a transaction never
asked for it. And a clientId is an account's own. Without accounts all may all.
"""

from typing import Final

from rmqha.broker.acl.asker import NOBODY, Asker
from rmqha.broker.acl.client_ids import ClientIds
from rmqha.broker.acl.needed_permissions import Need
from rmqha.broker.acl.plain_permission_manager import AclError, PlainPermissionManager
from rmqha.codec.acl import ACCESS_KEY
from rmqha.codec.host import host_of
from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.connection import Connection

_SHOWN_SIZE_MAX: Final = 100


class ClientAccess:
    """Asked by processors; the guard has let their requests in.

    Attributes:
        permissions: of the accounts; None if there are none, and all may all.
    """

    def __init__(self, permissions: PlainPermissionManager | None) -> None:
        self.permissions: Final = permissions
        self._client_ids: Final = ClientIds(lambda key: permissions is not None and permissions.is_account(key))

    @property
    def is_open(self) -> bool:
        """Whether all may all."""
        return self.permissions is None

    def asker_of(self, connection: Connection, request: RemotingCommand) -> Asker:
        """Who asks; what keeps it keeps no more of the request."""
        if self.permissions is None:
            return NOBODY
        access_key = request.ext_fields.get(ACCESS_KEY, "")
        return Asker(access_key if self.permissions.is_account(access_key) else "", host_of(connection.peer))

    def why_not(self, asker: Asker, *needs: Need) -> str:
        """Why this is not for who asked, as accounts are now; empty if it is."""
        return "" if self.permissions is None else self.permissions.why_not(asker, [*needs])

    def check(self, asker: Asker, *needs: Need) -> None:
        """Raises AclError: see :meth:`why_not`."""
        if reason := self.why_not(asker, *needs):
            raise AclError(reason)

    def check_client_id(self, client_id: str, connection: Connection, asker: Asker) -> None:
        """Raises AclError: a client of another account is connected with this clientId."""
        if self.permissions is None or self.permissions.is_white(asker.host):
            return
        holder = self._client_ids.find_holder(client_id, connection, asker)
        if holder is not None:
            raise AclError(
                f"clientId {client_id[:_SHOWN_SIZE_MAX]} is that of a client at {holder.host} with another account: "
                "give this one another instanceName"
            )

    def claim_client_id(self, client_id: str, connection: Connection, asker: Asker) -> None:
        """A client says that this is its clientId. Raises AclError: it is another account's."""
        self.check_client_id(client_id, connection, asker)
        if self.permissions is not None:
            self._client_ids.hold(client_id, connection, asker)

    def forget(self, connection: Connection) -> None:
        """A connection ended."""
        self._client_ids.forget(connection)
