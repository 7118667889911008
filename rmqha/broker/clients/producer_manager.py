"""ProducerManager: who produces in which group; one of a group's members is asked what became of a transaction.

Source: spec: remoting §2.4 (34), §2.8 (39); rocketmq-all-4.9.8 ProducerManager.java.
"""

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

import trio

from rmqha.broker.clients.client_channel_info import ClientChannelInfo
from rmqha.broker.clients.heartbeat_room import HeartbeatRoom, text_size
from rmqha.broker.clients.leaving import Leaving
from rmqha.codec.host import host_of
from rmqha.remoting.connection import Connection

_TRIED_MAX: Final = 3
"""Members that take no answers now are passed over. Source: ProducerManager.java, getAvailableChannel."""


class _Group:
    """Its members, in the order in which they are asked next."""

    def __init__(self) -> None:
        self.members: Final = OrderedDict[Connection, ClientChannelInfo]()

    def to_json(self) -> list[dict[str, Any]]:
        return [client.producer_json() for client in self.members.values()]


class ProducerManager:
    """Groups by name; a member is a connection, which takes its place along when it closes.

    Attributes:
        leaving: members whose connections ended, and who are still to be taken out of their groups.
    """

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._groups_of: dict[Connection, dict[str, None]] = {}
        self._connections_of: dict[str, dict[Connection, int]] = {}
        """By client id, each with how many groups it is in as that client."""
        self._room: Final = HeartbeatRoom("what groups produce")
        self.leaving: Final = Leaving(self._take_out)

    def register(self, name: str, client: ClientChannelInfo) -> None:
        """A member's heartbeat.

        Raises:
            RemoteProtocolError: there is no room for it; nothing has changed.
        """
        group = self._find(name) or _Group()
        former = group.members.get(client.connection)
        size = _size(name, client) - (_size(name, former) if former else 0)
        self._room.check(name, host_of(client.peer), growth=size)
        self._room.add(host_of(client.peer), size)
        connections = self._connections_of.setdefault(client.client_id, {})
        connections[client.connection] = connections.get(client.connection, 0) + 1
        if former is not None:  # after that: it keeps its place among the connections of this client
            self._forget_client(former)
        group.members[client.connection] = client
        self._groups[name] = group
        self._groups_of.setdefault(client.connection, {})[name] = None

    def unregister(self, name: str, connection: Connection) -> None:
        """A member leaves its group."""
        groups = self._groups_of.get(connection, {})
        if name not in groups:
            return
        del groups[name]
        if not groups:
            del self._groups_of[connection]
        self._take_out(name, [connection])

    def _take_out(self, name: str, connections: list[Connection]) -> None:
        members = self._groups[name].members
        for connection in connections:
            client = members.pop(connection)
            self._forget_client(client)
            self._room.add(host_of(client.peer), -_size(name, client))
        if not members:
            del self._groups[name]

    def _find(self, name: str) -> _Group | None:
        group = self._groups.get(name)
        if group is not None and self.leaving.groups_of:
            self.leaving.look_at(name, group.members.keys())
            return self._groups.get(name)
        return group

    def _forget_client(self, client: ClientChannelInfo) -> None:
        connections = self._connections_of[client.client_id]
        connections[client.connection] -= 1
        if not connections[client.connection]:
            del connections[client.connection]
        if not connections:
            del self._connections_of[client.client_id]

    def forget_member(self, connection: Connection) -> None:
        """A connection closed: it is in no group from now on."""
        self.leaving.leave(connection, self._groups_of.pop(connection, {}))

    def is_member(self, connection: Connection) -> bool:
        """Whether it is in any group."""
        return connection in self._groups_of

    def members(self, name: str) -> list[ClientChannelInfo]:
        """Those of a group; empty if it is not known."""
        group = self._find(name)
        return list(group.members.values()) if group is not None else []

    def any_connection(
        self, name: str, *, may: Callable[[ClientChannelInfo], bool] = lambda _client: True, is_used: bool = True
    ) -> Connection | None:
        """One of a group's that ``may``, each in its turn; of the next few one that takes answers. Or None.

        It is its turn until it ``is_used``; of those that take none, until they were tried.
        """
        group = self._find(name)
        if group is None:
            return None
        members = group.members
        tried = list(islice((connection for connection, client in members.items() if may(client)), _TRIED_MAX))
        if not tried:
            return None
        chosen = next((connection for connection in tried if connection.takes_answers), tried[0])
        for done in [chosen] if is_used else [] if chosen.takes_answers else tried:
            members.move_to_end(done)
        return chosen

    def find_connection(self, client_id: str) -> Connection | None:
        """Of a client, the last one that said for the first time that it is; None if there is none."""
        connections = reversed(self._connections_of.get(client_id, {}))
        return next((one for one in connections if one not in self.leaving.groups_of), None)

    async def to_json_in_turns(self) -> dict[str, Any]:
        """All members by group, as the answer to 328 holds them."""
        for _ in self.leaving.steps():
            await trio.lowlevel.checkpoint()
        return {"data": dict(self._groups)}


def _size(name: str, client: ClientChannelInfo) -> int:
    return text_size(name) + text_size(client.client_id)
