"""ConsumerManager: what the members of each group said in their last heartbeat that they subscribe to."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from rmqha.codec.heartbeat import SubscriptionData
from rmqha.errors import RemoteProtocolError

SIZE_MAX: Final = 64 * 1024 * 1024
"""Bytes, more or less, of all that heartbeats said and that is kept."""
_ENTRY_SIZE: Final = 256
"""What an object costs beside its text."""
_CODE_SIZE: Final = 128
"""A tag's code in its set; a client may name others than its tags have, and as many as it likes."""


@dataclass(slots=True)
class _Group:
    members: dict[object, str] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    size: int = 0
    """Bytes, more or less, of the name and the subscriptions; the members come on top."""


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

    def register(
        self, group: str, member: object, *, client_id: str, subscriptions: Iterable[SubscriptionData]
    ) -> None:
        """A member's heartbeat: it is alive, and the group's subscriptions are these.

        Raises:
            RemoteProtocolError: there is no room for that; nothing has changed.
        """
        entry = self._groups.get(group) or _Group()
        said = {one.topic: one for one in subscriptions}
        said_size = _ENTRY_SIZE + _text_size(group) + sum(map(_size, said.values()))
        former_id = entry.members.get(member)
        size = self._size + said_size - entry.size + _text_size(client_id)
        if former_id is not None:
            size -= _text_size(former_id)
        if size > SIZE_MAX:
            raise RemoteProtocolError(
                f"group {group[:80]} is not taken: what groups subscribe to fills {SIZE_MAX} bytes"
            )
        self._size = size
        entry.subscriptions, entry.size = said, said_size
        entry.members[member] = client_id
        self._groups[group] = entry
        self._groups_of.setdefault(member, {})[group] = None

    def unregister(self, group: str, member: object) -> None:
        """A member leaves its group."""
        groups = self._groups_of.get(member, {})
        if group not in groups:
            return
        del groups[group]
        if not groups:
            del self._groups_of[member]
        entry = self._groups[group]
        self._size -= _text_size(entry.members.pop(member))
        if not entry.members:
            self._size -= entry.size
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
