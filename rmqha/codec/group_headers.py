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


@dataclass(frozen=True, slots=True)
class CallConsumerRequestHeader:
    """307 GET_CONSUMER_RUNNING_INFO; the consumer reads further fields."""

    consumer_group: str
    client_id: str


@dataclass(frozen=True, slots=True)
class ConsumeMessageDirectlyRequestHeader:
    """309 CONSUME_MESSAGE_DIRECTLY; ``msg_id`` is an offset id."""

    consumer_group: str
    client_id: str
    msg_id: str


@dataclass(frozen=True, slots=True)
class GetConsumerStatusRequestHeader:
    """223 INVOKE_BROKER_TO_GET_CONSUMER_STATUS, and 221 to the consumer; ``client_addr`` is a clientId, or all."""

    topic: str
    group: str
    client_addr: str | None = None
