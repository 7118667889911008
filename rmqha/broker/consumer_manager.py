"""ConsumerManager: what the members of each group said in their last heartbeat that they subscribe to."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from rmqha.broker.shares import Shares
from rmqha.codec.heartbeat import SubscriptionData
from rmqha.codec.host import host_of
from rmqha.errors import RemoteProtocolError

SIZE_MAX: Final = 64 * 1024 * 1024
"""Bytes, more or less, of all that heartbeats said and that is kept."""
_ENTRY_SIZE: Final = 256
"""What an object costs beside its text."""
_CODE_SIZE: Final = 128
"""A tag's code in its set; a client may name others than its tags have, and as many as it likes."""


@dataclass(slots=True)
class _Group:
    members: dict[object, tuple[str, int]] = field(default_factory=dict)
    """Each with its host, and about how many bytes it takes."""
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    size: int = 0
    """Bytes, more or less, of the name and the subscriptions; the members come on top."""
    host: str = ""
    """Of the member that said so last."""


class ConsumerManager:
    """Groups by name; a member is a connection, which takes its place along when it closes.

    A heartbeat costs the same however many members its group has.

    Invariant: ``_size``, the sum of the groups' sizes and of their members', is at most :data:`SIZE_MAX`: no client
    fills the memory.
    """

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._groups_of: dict[object, dict[str, None]] = {}
        self._size = 0
        self._shares = Shares()

    def register(
        self, group: str, member: object, *, client_id: str, subscriptions: Iterable[SubscriptionData], peer: str = ""
    ) -> None:
        """A member's heartbeat: it is alive, and the group's subscriptions are these.

        Raises:
            RemoteProtocolError: there is no room for that, or clients of the host of ``peer`` fill too much of it;
                nothing has changed.
        """
        entry, host = self._groups.get(group) or _Group(), host_of(peer)
        said = {one.topic: one for one in subscriptions}
        said_size = _ENTRY_SIZE + _text_size(group) + sum(map(_size, said.values()))
        former_host, former_size = entry.members.get(member, (host, 0))
        member_size = _text_size(client_id)
        self._check_room(group, host, growth=said_size - entry.size + member_size - former_size)
        for whose, change in (
            (entry.host, -entry.size), (host, said_size), (former_host, -former_size), (host, member_size)
        ):  # fmt: skip
            self._add(whose, change)
        entry.subscriptions, entry.size, entry.host = said, said_size, host
        entry.members[member] = host, member_size
        self._groups[group] = entry
        self._groups_of.setdefault(member, {})[group] = None

    def _check_room(self, group: str, host: str, *, growth: int) -> None:
        free = SIZE_MAX - self._size
        if growth <= 0 or self._shares.has_room(host, growth, free=free):
            return
        why = f"what groups subscribe to fills {SIZE_MAX} bytes"
        if growth <= free:
            taken = self._shares.of(host)
            why = f"what clients of {host} subscribe to fills {taken} bytes, and all others have room for {free}"
        raise RemoteProtocolError(f"group {group[:80]} is not taken: {why}")

    def _add(self, host: str, size: int) -> None:
        self._size += size
        self._shares.add(host, size)

    def unregister(self, group: str, member: object) -> None:
        """A member leaves its group."""
        groups = self._groups_of.get(member, {})
        if group not in groups:
            return
        del groups[group]
        if not groups:
            del self._groups_of[member]
        entry = self._groups[group]
        host, member_size = entry.members.pop(member)
        self._add(host, -member_size)
        if not entry.members:
            self._add(entry.host, -entry.size)
            del self._groups[group]

    def forget_member(self, member: object) -> None:
        """A connection closed."""
        for group in list(self._groups_of.get(member, ())):
            self.unregister(group, member)

    def find_subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """What the group wants of a topic, or None if no member subscribes to it."""
        entry = self._groups.get(group)
        return entry.subscriptions.get(topic) if entry is not None else None


def _text_size(text: str) -> int:
    return _ENTRY_SIZE + 4 * len(text)


def _size(subscription: SubscriptionData) -> int:
    tags = sum(map(_text_size, subscription.tags_set))
    codes = _CODE_SIZE * len(subscription.code_set or ())
    return _text_size(subscription.topic) + _text_size(subscription.sub_string) + tags + codes
