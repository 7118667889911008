"""ConsumerManager: who consumes in which group, and what the members' heartbeats said that they subscribe to.

Source: spec: remoting §2.4 (34), §6 rows 11 and 13; rocketmq-all-4.9.8 ConsumerManager.java, ConsumerGroupInfo.java.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import trio

from rmqha.broker.clients.client_channel_info import ClientChannelInfo
from rmqha.broker.clients.heartbeat_room import HeartbeatRoom, text_size
from rmqha.broker.clients.leaving import Leaving
from rmqha.codec import java_json
from rmqha.codec.heartbeat import ConsumerData, SubscriptionData
from rmqha.codec.host import host_of
from rmqha.remoting.connection import Connection

_LOOKED_AT_AT_ONCE: Final = 5000
_CODE_SIZE: Final = 128
"""A tag's code in its set; a client may name others than its tags have, and as many as it likes."""


@dataclass(slots=True)
class ConsumerGroupInfo:
    """A group that has members, and what the last heartbeat of one of them said of it.

    Attributes:
        members: by connection: two of them may have one clientId, and one client may have two connections.
        subscriptions: by topic; of two that members tell of one topic the newer one.
        size: bytes, more or less, of the name and the subscriptions; the members come on top.
        host: of the member that said so.
    """

    consume_type: str = ""
    message_model: str = ""
    consume_from_where: str = ""
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    members: dict[Connection, ClientChannelInfo] = field(default_factory=dict)
    size: int = 0
    host: str = ""
    _client_ids: bytes = b""

    @property
    def client_ids(self) -> bytes:
        """The body that answers 38: each id once, or a client with two connections would be given queues twice."""
        if not self._client_ids:
            ids = list(dict.fromkeys(member.client_id for member in self.members.values()))
            self._client_ids = java_json.dumps({"consumerIdList": ids}).encode()
        return self._client_ids

    def forget_client_ids(self) -> None:
        """Members have come or gone."""
        self._client_ids = b""

    def merged(self, said: Iterable[SubscriptionData]) -> dict[str, SubscriptionData]:
        """The subscriptions after a heartbeat that said these: new topics come, others go, newer versions win."""
        merged: dict[str, SubscriptionData] = {}
        for one in said:
            known = merged.get(one.topic) or self.subscriptions.get(one.topic)
            merged[one.topic] = one if known is None or one.sub_version > known.sub_version else known
        return merged


class ConsumerManager:
    """Groups by name; a member is a connection, which takes its place along when it closes.

    A heartbeat costs the same however many members its group has.

    Attributes:
        on_changed: told the name of a group when its members have changed, or the topics that it subscribes to.
        leaving: members whose connections ended, and who are still to be taken out of their groups.
    """

    def __init__(self) -> None:
        self.on_changed: Callable[[str], None] = lambda _group: None
        self._groups: dict[str, ConsumerGroupInfo] = {}
        self._groups_of: dict[Connection, dict[str, None]] = {}
        self._room: Final = HeartbeatRoom("what groups subscribe to")
        self.leaving: Final = Leaving(self._take_out)

    def register(self, consumer: ConsumerData, client: ClientChannelInfo) -> None:
        """A member's heartbeat: it is alive, and its group subscribes to this.

        Raises:
            RemoteProtocolError: there is no room for that; nothing has changed.
        """
        name, host = consumer.group_name, host_of(client.peer)
        group = self.find_group(name) or ConsumerGroupInfo()
        merged, former = group.merged(consumer.subscription_data_set), group.members.get(client.connection)
        size = text_size(name) + sum(map(_size, merged.values()))
        member_size, former_size = text_size(client.client_id), text_size(former.client_id) if former else 0
        self._room.check(name, host, growth=size - group.size + member_size - former_size)
        for whose, change in ((group.host, -group.size), (host, size), (host, member_size - former_size)):
            self._room.add(whose, change)
        is_known = former is not None and former.client_id == client.client_id
        has_changed = not is_known or merged.keys() != group.subscriptions.keys()
        group.consume_type, group.message_model = consumer.consume_type, consumer.message_model
        group.consume_from_where = consumer.consume_from_where
        group.subscriptions, group.size, group.host = merged, size, host
        group.members[client.connection] = client
        self._groups[name] = group
        self._groups_of.setdefault(client.connection, {})[name] = None
        if not is_known:
            group.forget_client_ids()
        if has_changed:
            self.on_changed(name)

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
        group = self._groups[name]
        for connection in connections:
            member = group.members.pop(connection)
            self._room.add(host_of(member.peer), -text_size(member.client_id))
        group.forget_client_ids()
        if not group.members:
            self._room.add(group.host, -group.size)
            del self._groups[name]
        self.on_changed(name)

    def forget_member(self, connection: Connection) -> None:
        """A connection closed: it is in no group from now on."""
        self.leaving.leave(connection, self._groups_of.pop(connection, {}))

    def is_member(self, connection: Connection) -> bool:
        """Whether it is in any group."""
        return connection in self._groups_of

    async def groups_of_in_turns(self, topic: str) -> list[str]:
        """The groups that subscribe to a topic; everybody else goes on meanwhile."""
        found: list[str] = []
        for number, (name, group) in enumerate([*self._groups.items()]):
            if number % _LOOKED_AT_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            if topic in group.subscriptions and self.find_group(name) is not None:
                found.append(name)
        return found

    def find_client(self, name: str, client_id: str) -> ClientChannelInfo | None:
        """A member of a group by its id, by its newest connection; None if there is none."""
        group = self.find_group(name)
        members = reversed(group.members.values()) if group is not None else ()
        return next((member for member in members if member.client_id == client_id), None)

    def names(self) -> list[str]:
        """Of all groups that have members at present, or had some a moment ago."""
        return [*self._groups]

    def find_group(self, name: str) -> ConsumerGroupInfo | None:
        """The group, or None if it has no member."""
        group = self._groups.get(name)
        if group is None or not self.leaving.groups_of:  # hot: each pull asks
            return group
        self.leaving.look_at(name, group.members.keys())
        return self._groups.get(name)


def _size(subscription: SubscriptionData) -> int:
    tags = sum(map(text_size, subscription.tags_set))
    codes = _CODE_SIZE * len(subscription.code_set or ())
    return text_size(subscription.topic) + text_size(subscription.sub_string) + tags + codes
