"""PlainAccessValidator: stands before all processors, and lets through what its sender may ask.

Source: spec: remoting §4.1; rocketmq-all-4.9.8 PlainAccessValidator.java.
"""

from typing import Final

from rmqha.broker.acl.needed_permissions import needs_of
from rmqha.broker.acl.plain_permission_manager import AclError, PlainPermissionManager
from rmqha.codec.host import host_of
from rmqha.codec.usual.sends import Request
from rmqha.errors import RemoteProtocolError
from rmqha.remoting.connection import Connection

_REPLY_TOPIC_POSTFIX: Final = "_REPLY_TOPIC"


class PlainAccessValidator:
    """See :data:`~rmqha.remoting.dispatcher.RequestGuard`."""

    def __init__(self, permissions: PlainPermissionManager, *, cluster: str) -> None:
        self._permissions: Final = permissions
        self._reply_topic: Final = cluster + _REPLY_TOPIC_POSTFIX

    def validate(self, connection: Connection, request: Request) -> Request:
        """``request``, if its sender may ask it.

        What goes on has the fields that were looked at, and no others: code that reads a header in another way, for
        speed, cannot find another topic in it.

        Raises:
            AclError: it may not, or what is asked cannot be read.
        """
        host = host_of(connection.peer)
        if self._permissions.is_white(host):
            return request
        command, refused = request.command, self._permissions.refused_tables
        try:
            account = self._permissions.authenticate(command, host)
            if account is not None:
                self._permissions.check_perm(account, command.code, needs_of(command, reply_topic=self._reply_topic))
            command.replace_ext_fields(command.ext_fields)
        except AclError as error:
            refused.note(host, command.code, str(error))
            raise
        except RemoteProtocolError as error:
            raise AclError(str(error)) from None
        refused.note(host, command.code, "")
        return command
