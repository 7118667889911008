"""HeartbeatData: who a client is, which groups it belongs to, and what they subscribe to. The body of 34.

    {"clientID":S,"consumerDataSet":[ConsumerData],"producerDataSet":[{"groupName":S}]}
    ConsumerData {"groupName":S,"consumeType":S,"messageModel":S,"consumeFromWhere":S,"subscriptionDataSet":[...],
                  "unitMode":B}
    SubscriptionData {"topic":S,"subString":S,"tagsSet":[S],"codeSet":[I],"subVersion":L,"expressionType":S,
                      "classFilterMode":B}

Clients in the field leave out or null what they please, write codes as strings and put the subscriptions under
``subscriptionData``: all of that is read.

Source: spec: remoting §2.1, §2.4, §6 rows 24-26.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from rmqha.codec import java_json
from rmqha.codec.hashing import tags_code
from rmqha.codec.record.layout import PROPERTIES_SIZE_MAX
from rmqha.errors import RemoteProtocolError

SUBSCRIBE_ALL: Final = "*"

HEARTBEAT_SIZE_MAX: Final = 256 * 1024
"""A thousand topics with some tags each. To read a larger one would keep everybody else waiting."""
SUBSCRIPTIONS_MAX: Final = 2048
"""Groups and subscriptions of one heartbeat together: as Java writes them no more fit into one."""
TAGS_MAX: Final = 16_384
"""Tags of one heartbeat, and their codes: Java's clients write each tag as both."""
TAGS_SIZE_MAX: Final = PROPERTIES_SIZE_MAX
"""Characters of a tag expression: no message has a longer tag, and RocketMQ's console takes 4,096."""


_CONSUME_TYPES: Final = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY")
_MESSAGE_MODELS: Final = ("BROADCASTING", "CLUSTERING")
_CONSUME_FROM_WHERES: Final = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)
"""In the order of RocketMQ's enums."""


@dataclass(frozen=True, slots=True)
class SubscriptionData:
    """One topic of a group: ``*``, or tags joined by ``||``.

    ``code_set`` are the tags' codes, None if every message passes. A broker filters by them alone, clients by the
    text once more: a false positive is harmless.
    """

    topic: str
    sub_string: str = SUBSCRIBE_ALL
    tags_set: tuple[str, ...] = ()
    code_set: frozenset[int] | None = None
    sub_version: int = 0
    expression_type: str = "TAG"

    @property
    def is_tag_type(self) -> bool:
        """Whether it is one that brokers of ours filter by."""
        return self.expression_type == "TAG"


@dataclass(frozen=True, slots=True)
class ConsumerData:
    """A group that the client consumes in."""

    group_name: str
    consume_type: str = "CONSUME_ACTIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: tuple[SubscriptionData, ...] = ()
    unit_mode: bool = False


@dataclass(frozen=True, slots=True)
class HeartbeatData:
    """The whole body."""

    client_id: str
    producer_data_set: tuple[str, ...] = ()
    consumer_data_set: tuple[ConsumerData, ...] = ()


def build_subscription_data(topic: str, sub_string: str | None, *, sub_version: int = 0) -> SubscriptionData:
    """A tag subscription from its expression, as a pull request with bit 0x4 carries it.

    Raises:
        RemoteProtocolError: the expression names no tag at all, or is too long; answer with SUBSCRIPTION_PARSE_FAILED.
    """
    if sub_string and len(sub_string) > TAGS_SIZE_MAX:
        raise RemoteProtocolError(
            f"a tag expression of {len(sub_string)} characters: at most {TAGS_SIZE_MAX} are taken"
        )
    if not sub_string or sub_string.strip() == SUBSCRIBE_ALL:
        return SubscriptionData(topic, sub_version=sub_version)
    tags = tuple(dict.fromkeys(tag for part in sub_string.split("||") if (tag := part.strip())))
    if not tags:
        raise RemoteProtocolError(f"the tag expression {sub_string[:80]!r} names no tag: use '*' or 'TagA || TagB'")
    codes = frozenset(map(tags_code, tags))
    return SubscriptionData(topic, sub_string, tags, codes, sub_version)


def decode_heartbeat(body: bytes | memoryview) -> HeartbeatData:
    """A heartbeat from any client.

    Raises:
        RemoteProtocolError: it is no JSON object of this shape, or too large.
    """
    if len(body) > HEARTBEAT_SIZE_MAX:
        raise RemoteProtocolError(
            f"a heartbeat of {len(body)} bytes: at most {HEARTBEAT_SIZE_MAX} are taken; let this client's consumers "
            "subscribe to fewer topics and tags, or spread them over several clients"
        )
    value = java_json.loads(body, java_keys=False)
    try:
        consumers, producers = value.get("consumerDataSet") or (), value.get("producerDataSet") or ()
        _check_counts(consumers, len(producers))
        return HeartbeatData(
            _text(value["clientID"]),
            tuple(_text(entry["groupName"]) for entry in producers),
            tuple(_consumer(entry) for entry in consumers),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise RemoteProtocolError(f"heartbeat does not parse: {error!r}") from None


def _check_counts(consumers: Sequence[dict[str, Any]], producers: int) -> None:
    """Raises RemoteProtocolError if it would take too long to go through all that is named."""
    subscriptions = [subscription for consumer in consumers for subscription in _subscriptions_of(consumer)]
    tags = sum(
        str(subscription.get("subString")).count("||") + len(subscription.get("codeSet") or ())
        for subscription in subscriptions
    )
    count = len(consumers) + producers + len(subscriptions)
    if count > SUBSCRIPTIONS_MAX or tags > TAGS_MAX:
        raise RemoteProtocolError(
            f"a heartbeat of {count} groups and subscriptions, with {tags} tags and codes: at most {SUBSCRIPTIONS_MAX} "
            f"and {TAGS_MAX} are taken; spread them over several clients"
        )


def _text(value: object) -> str:
    """A name; a number counts as one. Raises TypeError for anything else."""
    if type(value) is str:
        return value
    if type(value) is int:
        return str(value)
    raise TypeError(f"{type(value).__name__} where a name belongs")


def _integer(value: Any, *, bits: int) -> int:
    """A number of so many bits, or text that is one. Raises TypeError or ValueError if it is none, or larger."""
    number = int(value)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(f"a number of more than {bits} bits")
    return number


def _consumer(entry: dict[str, Any]) -> ConsumerData:
    return ConsumerData(
        _text(entry["groupName"]),
        _constant(entry.get("consumeType"), _CONSUME_TYPES, default="CONSUME_ACTIVELY"),
        _constant(entry.get("messageModel"), _MESSAGE_MODELS, default="CLUSTERING"),
        _constant(entry.get("consumeFromWhere"), _CONSUME_FROM_WHERES, default="CONSUME_FROM_LAST_OFFSET"),
        tuple(map(decode_subscription, _subscriptions_of(entry))),
        unit_mode=bool(entry.get("unitMode")),
    )


def _constant(value: object, names: tuple[str, ...], *, default: str) -> str:
    """An enum's constant: by its name, or by its number, as the C++ client sends it and fastjson takes it."""
    if type(value) is int:
        return names[value] if 0 <= value < len(names) else default
    return _text(value or default)


def _subscriptions_of(consumer: dict[str, Any]) -> Sequence[dict[str, Any]]:
    return consumer.get("subscriptionDataSet") or consumer.get("subscriptionData") or ()


def decode_subscription(entry: dict[str, Any]) -> SubscriptionData:
    """One SubscriptionData; codes that are missing are derived from the expression.

    Raises:
        RemoteProtocolError: the expression names no tag.
        KeyError, TypeError, ValueError, AttributeError: a member has another type; the caller names the body.
    """
    topic = _text(entry["topic"])
    sub_string = _text(entry.get("subString") or SUBSCRIBE_ALL)
    sub_version = _integer(entry.get("subVersion") or 0, bits=64)
    expression_type = _text(entry.get("expressionType") or "TAG")
    if expression_type != "TAG":
        return SubscriptionData(topic, sub_string, sub_version=sub_version, expression_type=expression_type)
    derived = build_subscription_data(topic, sub_string, sub_version=sub_version)
    codes = frozenset(_integer(code, bits=32) for code in entry.get("codeSet") or ())
    if derived.sub_string == SUBSCRIBE_ALL or not codes:
        return derived
    return SubscriptionData(topic, sub_string, derived.tags_set, codes, sub_version)


def decode_checked_subscription(body: bytes) -> SubscriptionData | None:
    """The subscription that 46 asks about, ``{"clientId":S,"group":S,"subscriptionData":SubscriptionData}``, if any.

    Raises:
        RemoteProtocolError: it is none, or too large.
    """
    if not body:
        return None
    if len(body) > HEARTBEAT_SIZE_MAX:
        raise RemoteProtocolError(f"a subscription of {len(body)} bytes: at most {HEARTBEAT_SIZE_MAX} are taken")
    try:
        entry = java_json.loads(body, java_keys=False).get("subscriptionData")
        return decode_subscription(entry) if entry else None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise RemoteProtocolError(f"the subscription does not parse: {error!r:.200}") from None


def encode_heartbeat(heartbeat: HeartbeatData) -> bytes:
    """The body, members in the order of their names, as fastjson writes them."""
    value = {
        "clientID": heartbeat.client_id,
        "consumerDataSet": [_consumer_json(consumer) for consumer in heartbeat.consumer_data_set],
        "producerDataSet": [{"groupName": group} for group in heartbeat.producer_data_set],
    }
    return java_json.dumps(value).encode()


def _consumer_json(consumer: ConsumerData) -> dict[str, Any]:
    return {
        "consumeFromWhere": consumer.consume_from_where,
        "consumeType": consumer.consume_type,
        "groupName": consumer.group_name,
        "messageModel": consumer.message_model,
        "subscriptionDataSet": [subscription_json(entry) for entry in consumer.subscription_data_set],
        "unitMode": consumer.unit_mode,
    }


def subscription_json(subscription: SubscriptionData) -> dict[str, Any]:
    """The members of a SubscriptionData, also of use in 203's answer."""
    return {
        "classFilterMode": False,
        "codeSet": sorted(subscription.code_set or ()),
        "expressionType": subscription.expression_type,
        "subString": subscription.sub_string,
        "subVersion": subscription.sub_version,
        "tagsSet": list(subscription.tags_set),
        "topic": subscription.topic,
    }
