"""A group's place in the queues of a topic at one broker: where it is, where it is to be, and setting it.

While members are connected the broker tells them (222, as mqadmin has it), and they commit; else it is done for them.
"""

from dataclasses import dataclass

from rmqha.cli.ask import BrokerConnection, RefusedError
from rmqha.cli.broker_tables import (
    all_consumed,
    group_configs,
    group_connections,
    topic_configs,
    topic_stats,
)
from rmqha.cli.errors import CliError
from rmqha.cli.when import End, Offset, Place, Start, Time
from rmqha.codec.admin_headers import ResetOffsetRequestHeader
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SaveConsumerOffsetsRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    decode_header,
)

_TO_THE_START_MS = 0
_TO_THE_END_MS = -1


@dataclass(frozen=True)
class QueueReset:
    """One queue; ``current`` is None, or 0, if the group never committed there."""

    queue_id: int
    current: int | None
    wanted: int
    end: int


@dataclass(frozen=True)
class ResetPlan:
    """All queues of a topic at one broker.

    Attributes:
        members: so many of the group are connected to it.
        is_known: the broker has heard of the group; else its name may be mistaken.
        groups: if it has not, the names of those that it has heard of.
    """

    queues: tuple[QueueReset, ...]
    members: int
    is_known: bool
    groups: frozenset[str]


def plan_reset(connection: BrokerConnection, group: str, topic: str, place: Place) -> ResetPlan | None:
    """What is to be done; None if the broker does not have the topic. Changes nothing."""
    config = topic_configs(connection).get(topic)
    if config is None:
        return None
    found = group_connections(connection, group)
    last_stored_ms = {queue.queue_id: queue.last_stored_ms for queue in topic_stats(connection, topic)}
    queues = []
    for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
        place_here = place
        last_ms = last_stored_ms.get(queue_id)  # RocketMQ's broker leaves out what is not written any more
        if not found and isinstance(place, Time) and last_ms is not None and place.timestamp_ms > last_ms:
            place_here = End()  # a search would give the last message
        queues.append(_queue_reset(connection, group, QueueRequestHeader(topic, queue_id), place_here))
    groups = frozenset(group_configs(connection))
    if not (is_known := bool(found) or group in groups or any(queue.current for queue in queues)):
        groups |= all_consumed(connection).keys()
    members = len(found["connectionSet"]) if found else 0
    return ResetPlan(tuple(queues), members, is_known or group in groups, groups)


def _queue_reset(connection: BrokerConnection, group: str, queue: QueueRequestHeader, place: Place) -> QueueReset:
    first = _offset(connection, RequestCode.GET_MIN_OFFSET, queue)
    end = _offset(connection, RequestCode.GET_MAX_OFFSET, queue)
    match place:
        case Start():
            wanted = first
        case Time(timestamp_ms):
            header = SearchOffsetRequestHeader(queue.topic, queue.queue_id, timestamp_ms)
            wanted = _offset(connection, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        case Offset(value):
            wanted = min(max(value, first), end)
        case _:
            wanted = end
    return QueueReset(queue.queue_id, _committed(connection, group, queue), wanted, end)


def _offset(connection: BrokerConnection, code: RequestCode, header: object) -> int:
    return decode_header(OffsetResponseHeader, connection.ask_for(code, header)).offset


def _committed(connection: BrokerConnection, group: str, queue: QueueRequestHeader) -> int | None:
    header = QueryConsumerOffsetRequestHeader(group, queue.topic, queue.queue_id)
    try:
        return _offset(connection, RequestCode.QUERY_CONSUMER_OFFSET, header)
    except RefusedError as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        raise


def reset(connection: BrokerConnection, group: str, topic: str, place: Place, plan: ResetPlan) -> None:
    """Do it.

    Raises:
        CliError: members are connected, who can be told a time alone.
        RefusedError, UnreachableError: as any question.
    """
    if plan.members:
        _tell_members(connection, group, topic, place)
        return
    for queue in plan.queues:
        header = UpdateConsumerOffsetRequestHeader(group, topic, queue.queue_id, queue.wanted)
        connection.ask_for(RequestCode.UPDATE_CONSUMER_OFFSET, header)
    _save(connection, group, topic)


def _save(connection: BrokerConnection, group: str, topic: str) -> None:
    try:
        connection.ask_for(RequestCode.SAVE_CONSUMER_OFFSETS, SaveConsumerOffsetsRequestHeader(group, topic))
    except RefusedError as error:
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:  # RocketMQ's, which saves every five seconds
            return
        raise CliError(
            f"group {group} goes on there, but a crash of {connection.address} may undo it",
            why=error.remark,
            hint="'rmqha status' says why its tables are not saved; then look at 'rmqha groups describe'",
        ) from None


def _tell_members(connection: BrokerConnection, group: str, topic: str, place: Place) -> None:
    match place:
        case Start():
            timestamp_ms = _TO_THE_START_MS
        case End():
            timestamp_ms = _TO_THE_END_MS
        case Time(timestamp_ms):
            pass
        case _:
            raise CliError(
                f"group {group} cannot be set to an offset while members of it are connected",
                why="a broker tells them a time",
                hint="stop them first, or name a time: --to @TIME",
            )
    header = ResetOffsetRequestHeader(topic, group, timestamp_ms, is_force=True)
    connection.ask_for(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
