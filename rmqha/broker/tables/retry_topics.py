"""RetryTopics: where messages go that a consumer group could not consume, and how often they may come again.

``%RETRY%group`` brings them again, after a while; what was delivered too often goes to ``%DLQ%group``, which nobody
subscribes to by itself.

Source: spec: remoting §2.4, §2.5 (36); rocketmq-all-4.9.8 SendMessageProcessor.java, AbstractSendMessageProcessor.java.
"""

from typing import Final, Protocol

from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.broker.tables.topic_config_manager import TopicConfigManager

RETRY_GROUP_TOPIC_PREFIX: Final = "%RETRY%"
DLQ_GROUP_TOPIC_PREFIX: Final = "%DLQ%"
_UNIT_SUB: Final = 0x2
_DLQ_NUMS_PER_GROUP: Final = 1
_TELLS_MAX_RECONSUME_TIMES_FROM: Final = 121
"""The version (3.4.9) from which on what a client says about it counts."""


class GroupConfig(Protocol):
    """What is to be known of a group.

    It is a :class:`~rmqha.broker.tables.subscription_group_manager.SubscriptionGroupConfig`.
    """

    @property
    def retry_queue_nums(self) -> int:
        """Queues of its retry topic; with none, what it sends back is dropped."""
        ...

    @property
    def retry_max_times(self) -> int:
        """So often a message comes again."""
        ...


class Groups(Protocol):
    """Which groups there are (:class:`~rmqha.broker.tables.subscription_group_manager.SubscriptionGroupManager`)."""

    def find(self, group: str, *, peer: str = "") -> GroupConfig | None:
        """What a group is allowed that a client at ``peer`` consumes in; None if there may be no such group."""
        ...


class RetryTopics:
    """Makes them when they are needed."""

    def __init__(self, topics: TopicConfigManager, groups: Groups) -> None:
        self._topics: Final = topics
        self._groups: Final = groups
        self._next_queue = 0

    def find_group(self, group: str, *, peer: str) -> GroupConfig | None:
        """See :meth:`Groups.find`."""
        return self._groups.find(group, peer=peer)

    def retry_topic(self, group: str, queue_nums: int, *, peer: str, unit_mode: bool = False) -> TopicConfig:
        """Where a group's messages come again. Raises RemoteProtocolError: there is no room for another topic."""
        return self._topics.create_topic_in_send_message_back_method(
            RETRY_GROUP_TOPIC_PREFIX + group,
            queue_nums=queue_nums,
            topic_sys_flag=_UNIT_SUB if unit_mode else 0,
            peer=peer,
        )

    def dead_letter_topic(self, group: str, *, peer: str) -> TopicConfig:
        """Where its dead letters go. Raises RemoteProtocolError: there is no room for another topic."""
        return self._topics.create_topic_in_send_message_back_method(
            DLQ_GROUP_TOPIC_PREFIX + group, queue_nums=_DLQ_NUMS_PER_GROUP, peer=peer
        )

    def next_queue(self, queue_nums: int) -> int:
        """One queue after the other."""
        self._next_queue += 1
        return self._next_queue % queue_nums


def is_spent(group: GroupConfig, reconsume_times: int, *, client_version: int, max_reconsume_times: int | None) -> bool:
    """Whether a message has come as often as it may: as its client says, or else as its group is configured."""
    if max_reconsume_times is None or client_version < _TELLS_MAX_RECONSUME_TIMES_FROM:
        max_reconsume_times = group.retry_max_times
    return reconsume_times >= max_reconsume_times
