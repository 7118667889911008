"""ConsumerManager: what the members of each group said in their last heartbeat that they subscribe to."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from rmqha.codec.hashing import tags_code
from rmqha.errors import RemoteProtocolError

SUB_ALL: Final = "*"
_TAG_SEPARATOR: Final = "||"


@dataclass(frozen=True, slots=True)
class SubscriptionData:
    """A topic and the tags wanted of it; ``code_set`` None means all of them.

    The broker filters by the tags' hashes alone, clients by the text once more: a false positive is harmless.
    """

    topic: str
    code_set: frozenset[int] | None
    sub_version: int = 0


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


def parse_subscription(topic: str, expression: str | None, *, sub_version: int = 0) -> SubscriptionData:
    """A tag expression: ``*`` or nothing for everything, else tags joined by ``||`` (FilterAPI.java).

    Raises:
        RemoteProtocolError: there is no tag between the separators.
    """
    if not expression or expression == SUB_ALL:
        return SubscriptionData(topic, None, sub_version)
    tags = [tag.strip() for tag in expression.split(_TAG_SEPARATOR) if tag.strip()]
    if not tags:
        raise RemoteProtocolError(f"subscription {expression!r} holds no tag: use tags joined by || or *")
    return SubscriptionData(topic, frozenset(map(tags_code, tags)), sub_version)


def subscription_of_heartbeat(entry: dict[str, Any]) -> SubscriptionData:
    """One member of ``subscriptionDataSet``; hashes are as sent, or derived where none are (spec: remoting §6, 24).

    Raises:
        RemoteProtocolError: it has no topic, or numbers that are none.
    """
    topic, expression = entry.get("topic"), entry.get("subString")
    if not isinstance(topic, str):
        raise RemoteProtocolError("a subscription in the heartbeat has no topic")
    parsed = parse_subscription(topic, expression, sub_version=int(entry.get("subVersion") or 0))
    sent = entry.get("codeSet")
    if parsed.code_set is None or not sent:
        return parsed
    try:
        return SubscriptionData(topic, frozenset(map(int, sent)), parsed.sub_version)
    except (TypeError, ValueError):
        raise RemoteProtocolError(f"codeSet of the subscription to {topic} holds what is no number") from None
