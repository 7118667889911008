"""ConsumerManager: what the members of each group said in their last heartbeat that they subscribe to."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from rmqha.codec.heartbeat import SubscriptionData


@dataclass(slots=True)
class _Group:
    members: dict[object, str] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)


class ConsumerManager:
    """Groups by name; a member is a connection, which takes its place along when it closes."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}

    def register(
        self, group: str, member: object, *, client_id: str, subscriptions: Iterable[SubscriptionData]
    ) -> None:
        """A member's heartbeat: it is alive, and the group's subscriptions are these."""
        entry = self._groups.setdefault(group, _Group())
        entry.members[member] = client_id
        entry.subscriptions = {subscription.topic: subscription for subscription in subscriptions}

    def unregister(self, group: str, member: object) -> None:
        """A member leaves its group."""
        entry = self._groups.get(group)
        if entry is not None:
            entry.members.pop(member, None)
            if not entry.members:
                del self._groups[group]

    def forget_member(self, member: object) -> None:
        """A connection closed."""
        for group in [name for name, entry in self._groups.items() if member in entry.members]:
            self.unregister(group, member)

    def find_subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """What the group wants of a topic, or None if no member subscribes to it."""
        entry = self._groups.get(group)
        return entry.subscriptions.get(topic) if entry is not None else None

    def client_ids(self, group: str) -> list[str]:
        """Ids of the group's members, sorted."""
        entry = self._groups.get(group)
        return sorted(set(entry.members.values())) if entry is not None else []
