"""Headers of the requests about groups of consumers and producers.

Source: spec: remoting §2.5 (38), §2.7 (203, 204, 207), §2.8 (40).
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConsumerGroupRequestHeader:
    """38 GET_CONSUMER_LIST_BY_GROUP, 203 GET_CONSUMER_CONNECTION_LIST, 40 NOTIFY_CONSUMER_IDS_CHANGED."""

    consumer_group: str


@dataclass(frozen=True, slots=True)
class ProducerGroupRequestHeader:
    """204 GET_PRODUCER_CONNECTION_LIST."""

    producer_group: str


@dataclass(frozen=True, slots=True)
class DeleteSubscriptionGroupRequestHeader:
    """207 DELETE_SUBSCRIPTIONGROUP."""

    group_name: str
    remove_offset: bool = False
