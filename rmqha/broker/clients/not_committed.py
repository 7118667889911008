"""What a group consumes and has committed nothing of: the table of offsets does not know it.

Who is stuck at the first message stands nowhere else.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from rmqha.broker.clients.consumer_manager import ConsumerGroupInfo
from rmqha.broker.tables.subscription_group_manager import BUILT_IN
from rmqha.broker.transaction.half_message import CONSUMER_GROUP
from rmqha.codec.codes import NO_GROUP

_COMMIT_NOTHING: Final = {*BUILT_IN, CONSUMER_GROUP, NO_GROUP}


def not_committed(
    group: str, online: ConsumerGroupInfo | None, *, committed: Iterable[str], got: Mapping[str, Iterable[str]]
) -> list[str]:
    """Topics that its members subscribe to or, if it has none, of which it got messages, without those committed.

    A broadcasting group has none, as its members keep their places themselves.

    Args:
        group: its name; RocketMQ's own have none, nor has the name of those who read without a group.
        online: None: it has no members.
        committed: topics that it has a place in.
        got: by group, see :meth:`~rmqha.broker.broker_stats_manager.BrokerStatsManager.got_in_turns`.
    """
    if group in _COMMIT_NOTHING or (online is not None and online.message_model == "BROADCASTING"):
        return []
    known = {*committed}
    return [topic for topic in (got.get(group, ()) if online is None else online.subscriptions) if topic not in known]
