"""What the dashboard asks one broker, in plain blocking code for a thread. What comes back is bounded, whatever it is.

Each function raises what :data:`NO_ANSWER` holds; :func:`why` makes a sentence of it.
"""

import time
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from rmqha.cli import broker_tables, named_brokers
from rmqha.cli.ask import BrokerConnection, known_brokers
from rmqha.cli.errors import CliError
from rmqha.cli.message_search import by_id, by_key, by_offset, by_time
from rmqha.cli.named_brokers import NamedBroker
from rmqha.cli.top_samples import Sample, read_sample
from rmqha.cli.topic_text import is_of_a_group, perm_text
from rmqha.cli.verdict import read_status
from rmqha.codec.codes import CONFIG_ORIGINS_FIELD, RequestCode, ResponseCode
from rmqha.codec.java_json import loads
from rmqha.codec.remoting import RemotingCommand
from rmqha.config.java_properties import parse_properties
from rmqha.dashboard.bounded import number, text
from rmqha.dashboard.broker_view import broker_view
from rmqha.dashboard.message_view import message_view
from rmqha.errors import RmqhaError

NO_ANSWER: Final = (*named_brokers.NO_ANSWER, ArithmeticError, CliError, OSError, RmqhaError)
"""What comes of a broker that does not answer, or not as one."""
ANSWER_SIZE_MAX: Final = 8 << 20
GROUPS_MAX: Final = 1_000
TOPICS_MAX: Final = 5_000
QUEUES_MAX: Final = 1_000
MEMBERS_MAX: Final = 200
MESSAGES_MAX: Final = 16
_REGISTERED_MAX: Final = 64
_CONFIG_KEYS_MAX: Final = 500
_NAME_SIZE_MAX: Final = 255
_ANY_TIME_MS: Final = (0, (1 << 63) - 1)
_SECRETS: Final = ("secret", "password", "token", "accesskey")

Row = dict[str, Any]


@dataclass(frozen=True)
class Reading:
    """A broker at one time; ``view`` as of :func:`broker_view`, None if it does not answer, which the sample tells."""

    sample: Sample
    view: Row | None


def why(error: Exception) -> str:
    """One of :data:`NO_ANSWER`, as a sentence."""
    if isinstance(error, CliError):
        return text(f"{error.message}: {error.why}" if error.why else error.message)
    if isinstance(error, OSError | RmqhaError):
        return text(str(error))
    return text(f"its answer cannot be read: {error!r:.200}")


def _connection(broker: NamedBroker, timeout_s: float) -> BrokerConnection:
    return BrokerConnection(broker.address, timeout_s=timeout_s, answer_size_max=ANSWER_SIZE_MAX)


def brokers_at(address: str, *, timeout_s: float) -> tuple[NamedBroker, ...]:
    """The broker that listens there; of a name server all that it knows, slaves too."""
    with _connection(NamedBroker(address, address), timeout_s) as connection:
        answer = connection.ask(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
    if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return (NamedBroker(address, address),)
    found = [
        NamedBroker(text(one), text(name, _NAME_SIZE_MAX), is_slave=broker_id != 0)
        for name, broker in sorted(known_brokers(address, timeout_s=timeout_s).items())
        for broker_id, one in sorted(broker.broker_addrs.items())
    ]
    return tuple(found[:_REGISTERED_MAX])


def read_broker(
    broker: NamedBroker, before: Sample | None, lags: dict[str, int] | None, *, timeout_s: float
) -> Reading:
    """How it is now; ``lags`` are those of its groups when they were last asked for; None: unknown. Raises nothing."""
    try:
        with _connection(broker, timeout_s) as connection:
            table = loads(bytes(connection.ask_for(RequestCode.GET_BROKER_RUNTIME_INFO).body))["table"]
        view = broker_view(read_status(table))
        sample = read_sample(broker, table, lags, before=before, now_s=time.monotonic())
        return Reading(replace(sample, role=text(sample.role), gone=(), group_lags={}), view)
    except NO_ANSWER as error:
        answered_at_s = None if before is None else before.answered_at_s
        at_s = time.monotonic()
        return Reading(Sample(broker=broker, at_s=at_s, trouble=why(error), answered_at_s=answered_at_s), None)


def read_groups(broker: NamedBroker, *, timeout_s: float) -> list[Row]:
    """Its groups, those with the most lag first: group, topics, lag."""
    with _connection(broker, timeout_s) as connection:
        consumed = broker_tables.all_consumed(connection)
        names = {*broker_tables.group_configs(connection), *consumed}
    rows: list[Row] = [
        {
            "group": text(name, _NAME_SIZE_MAX),
            "topics": len({queue.topic for queue in consumed.get(name, ())}),
            "lag": number(sum(queue.lag for queue in consumed.get(name, ()))) or 0,
        }
        for name in names
    ]
    return sorted(rows, key=lambda row: (-row["lag"], row["group"]))[:GROUPS_MAX]


def read_topics(broker: NamedBroker, *, timeout_s: float) -> list[Row]:
    """Its topics: topic, system, writeQueues, readQueues, perm."""
    with _connection(broker, timeout_s) as connection:
        topics = broker_tables.topic_configs(connection)
        system = broker_tables.system_topics(connection)
    rows = [
        {
            "topic": text(name, _NAME_SIZE_MAX),
            "system": name in system or is_of_a_group(name),
            "writeQueues": one.write_queue_nums,
            "readQueues": one.read_queue_nums,
            "perm": perm_text(one.perm),
        }
        for name, one in topics.items()
    ]
    return sorted(rows, key=lambda row: str(row["topic"]))[:TOPICS_MAX]


def read_topic(broker: NamedBroker, topic: str, *, timeout_s: float) -> Row:
    """Its queues, where each begins and ends, and the groups that consume it."""
    with _connection(broker, timeout_s) as connection:
        queues = broker_tables.topic_stats(connection, topic)
        groups = broker_tables.groups_of_topic(connection, topic)
    shown = [{name: number(value) for name, value in asdict(queue).items()} for queue in queues[:QUEUES_MAX]]
    return {
        "queues": [
            {"queue": one["queue_id"], "first": one["first"], "end": one["end"], "storedMs": one["last_stored_ms"]}
            for one in shown
        ],
        "groups": [text(group, _NAME_SIZE_MAX) for group in groups[:GROUPS_MAX]],
        "left": max(len(queues) - QUEUES_MAX, 0),
    }


def read_group(broker: NamedBroker, group: str, *, timeout_s: float) -> Row:
    """Its members, and how far it is in each queue, those with the most lag first."""
    with _connection(broker, timeout_s) as connection:
        queues = broker_tables.consumed(connection, group)
        found = broker_tables.group_connections(connection, group)
    members = found["connectionSet"] if found else []
    queues.sort(key=lambda queue: -queue.lag)
    return {
        "members": [
            {name: text(str(member.get(name, ""))) for name in ("clientId", "clientAddr", "language")}
            for member in members[:MEMBERS_MAX]
        ],
        "queues": [
            {
                "topic": text(queue.topic, _NAME_SIZE_MAX),
                "queue": number(queue.queue_id),
                "consumed": number(queue.consumed),
                "end": number(queue.end),
                "lag": number(queue.lag),
                "storedMs": number(queue.consumed_stored_ms),
            }
            for queue in queues[:QUEUES_MAX]
        ],
        "left": max(len(queues) - QUEUES_MAX, 0),
    }


def read_config(broker: NamedBroker, *, timeout_s: float) -> Row:
    """Its configuration: key, value, origin ("default", or where it was set; None: it does not tell)."""
    with _connection(broker, timeout_s) as connection:
        answer = connection.ask_for(RequestCode.GET_BROKER_CONFIG)
    properties, _ = parse_properties(bytes(answer.body))
    told = answer.ext_fields.get(CONFIG_ORIGINS_FIELD)
    origins = None if told is None else loads(told)
    return {
        "keys": [
            {
                "key": text(one.key),
                "value": "(not shown)" if _is_secret(one.key, one.value) else text(one.value),
                "origin": None if origins is None else text(origins.get(one.key, "default")),
            }
            for one in properties[:_CONFIG_KEYS_MAX]
        ]
    }


def _is_secret(key: str, value: str) -> bool:
    """By its name, or by what it holds: RocketMQ 5 has accounts in JSON under names that tell nothing."""
    said = f"{key} {value}".lower()
    return any(word in said for word in _SECRETS)


@dataclass(frozen=True)
class Wanted:
    """A message: by its place in the log, by an id, or in a topic by a key, a time at which it was stored, or both."""

    topic: str = ""
    key: str = ""
    msg_id: str = ""
    offset: int | None = None
    since_ms: int | None = None


def read_messages(broker: NamedBroker, wanted: Wanted, *, timeout_s: float) -> Row:
    """Those that are found, and why if that is none."""
    name = broker.name
    with _connection(broker, timeout_s) as connection:
        if wanted.offset is not None:
            found, reason = by_offset(connection, wanted.offset, broker_name=name)
        elif wanted.msg_id:
            found, reason = by_id(connection, wanted.msg_id, wanted.topic or None, broker_name=name)
        else:
            between_ms = (wanted.since_ms or _ANY_TIME_MS[0], _ANY_TIME_MS[1])
            limits: Any = {"broker_name": name, "limit": MESSAGES_MAX, "between_ms": between_ms}
            if wanted.key:
                found, reason = by_key(connection, wanted.topic, wanted.key, **limits)
            else:
                found, reason = by_time(connection, wanted.topic, **limits)
    return {"messages": [message_view(one) for one in found[:MESSAGES_MAX]], "reason": text(reason)}
