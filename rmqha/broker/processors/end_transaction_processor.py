"""EndTransactionProcessor: producers say what became of their transactions.

Source: spec: remoting §2.4 (37); rocketmq-all-4.9.8 EndTransactionProcessor.java.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import structlog
import trio

from rmqha.broker.acl.asker import Asker
from rmqha.broker.acl.client_access import ClientAccess
from rmqha.broker.acl.needed_permissions import to_send
from rmqha.broker.puts.durability import Answer
from rmqha.broker.puts.put_service import Put, PutMessageService
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.broker.transaction.fates import Fates
from rmqha.broker.transaction.half_message import (
    HALF_TOPIC,
    committed,
    first_place,
    real_destination,
    removal_mark,
    text_property,
)
from rmqha.broker.transaction.transactional_message_bridge import TransactionalMessageBridge
from rmqha.broker.transaction.transactional_message_service import TransactionalMessageService
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import decode_header
from rmqha.codec.host import host_of
from rmqha.codec.properties import PGROUP
from rmqha.codec.record.encoder import PreparedRecord
from rmqha.codec.record.layout import SysFlag
from rmqha.codec.record.message import StoredMessage
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.transaction_headers import EndTransactionRequestHeader
from rmqha.errors import RemoteProtocolError
from rmqha.log_limit import LogLimit
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.fence import Guard
from rmqha.replication.role import Role
from rmqha.shares import Shares
from rmqha.store.status import AppendResult, PutMessageStatus

logger = structlog.get_logger()

WAITING_MAX: Final = 65_536
"""Ends of transactions whose half message cannot be seen yet: some 60 MB."""
_VISIBLE_S: Final = 15.0
"""A half message is visible some milliseconds after its SEND_OK, and when it is flushed if slaves are missing."""


class EndTransactionProcessor:
    """Handles code 37: commits write the message that consumers see, and then, as rollbacks, a mark.

    The half message is read from its queue, and nowhere else: what a client says of the log is not believed.
    """

    def __init__(
        self,
        service: TransactionalMessageService,
        bridge: TransactionalMessageBridge,
        topics: TopicConfigManager,
        puts: PutMessageService,
        access: ClientAccess,
        *,
        role: Role,
        store_host: bytes,
        now_ms: Callable[[], int],
    ) -> None:
        self._service: Final = service
        self._bridge: Final = bridge
        self._topics: Final = topics
        self._puts: Final = puts
        self._access: Final = access
        self._role: Final = role
        self._store_host: Final = store_host
        self._now_ms: Final = now_ms
        self._lines: Final = LogLimit()
        self._waiting = 0
        self._shares: Final = Shares()

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the code this processor answers."""
        dispatcher.register(RequestCode.END_TRANSACTION, self.end_transaction)

    def end_transaction(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """37: of a transaction whose state is unknown there is nothing to do; its producer will be asked."""
        header = decode_header(EndTransactionRequestHeader, request)
        if header.commit_or_rollback not in (SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK):
            return RemotingCommand(ResponseCode.SUCCESS)
        if not self._role.is_master:
            return RemotingCommand(ResponseCode.SLAVE_NOT_AVAILABLE, remark=self._role.refusal())
        if refusal := self._puts.refusal():
            return RemotingCommand(ResponseCode.SERVICE_NOT_AVAILABLE, remark=refusal)
        if not self._bridge.was_given_out(header.tran_state_table_offset):
            raise RemoteProtocolError(f"there is no half message {header.tran_state_table_offset}")
        host = host_of(connection.peer)
        if not self._shares.has_room(host, 1, free=WAITING_MAX - self._waiting):
            remark = f"{self._waiting} ends of transactions wait for dispatch: the producer will be asked"
            return RemotingCommand(ResponseCode.SYSTEM_BUSY, remark=remark)
        self._count(host, 1)
        asked = _Asked(connection, connection.let_go(request), header, self._access.asker_of(connection, request))
        deadline = trio.current_time() + _VISIBLE_S
        self._bridge.when_visible(header.tran_state_table_offset, deadline, partial(self._on_visible, asked, deadline))
        return None

    def _count(self, host: str, change: int) -> None:
        self._waiting += change
        self._shares.add(host, change)

    def _on_visible(self, asked: "_Asked", deadline: float, is_visible: bool, _queue_end: int) -> None:
        if is_visible and self._role.is_master:
            self._service.when_learned(deadline, partial(self._on_learned, asked))
        else:
            self._go_on(asked, problem=f"half message {asked.place} cannot be read yet")

    def _on_learned(self, asked: "_Asked", has_learned: bool, _masterships: int) -> None:
        problem = "" if has_learned else "which transactions have ended is not known yet: the producer will be asked"
        self._go_on(asked, problem=problem)

    def _go_on(self, asked: "_Asked", *, problem: str = "", is_looked_for: bool = False) -> None:
        self._count(host_of(asked.connection.peer), -1)
        with asked.connection.fenced(asked.request):
            if not self._role.is_master:
                problem = self._role.refusal()
            if problem:
                raise RemoteProtocolError(problem)
            half = self._find(asked.header, asked.asker)
            if not is_looked_for and self._service.is_in_doubt(half):
                self._count(host_of(asked.connection.peer), 1)
                self._service.look_for_mark(half, lambda why: self._go_on(asked, problem=why, is_looked_for=True))
                return
            self._end(asked, half)

    def _end(self, asked: "_Asked", half: StoredMessage) -> None:
        if _commits(asked.header) and (topic := self._deleted_topic(half)):
            remark = f"topic[{topic}] not exist: it was deleted after the half message was sent"
            asked.connection.respond(asked.request, ResponseCode.TOPIC_NOT_EXIST, remark=remark)
            return
        records = [self._committed(half)] if _commits(asked.header) else []
        fates = self._service.fates
        places = self._service.begin_end(half)
        if not places and fates.has_ended(half.queue_offset):  # who was asked, and has answered, may do so again
            asked.connection.respond(asked.request, ResponseCode.SUCCESS)
            return
        if not places:
            remark = f"an end of half message {asked.place} waits to be stored, and may be refused: ask again"
            asked.connection.respond(asked.request, ResponseCode.SYSTEM_BUSY, remark=remark)
            return
        first, *_ = records or [self._mark(places[0])]
        ending = _Ending(asked.request, places, marked=None if records else places[0])
        producer = _Producer(asked.connection, self._puts, fates, mark=self._mark, on_unmarked=self._service.mark_later)
        self._puts.put([_put_of(ending, first)], producer)

    def _deleted_topic(self, half: StoredMessage) -> str:
        """The topic that this half message was sent to, if it was deleted since; else empty."""
        topic, _ = real_destination(half)
        sent_at = self._bridge.position_of(HALF_TOPIC, first_place(half))
        if not self._topics.was_deleted(topic, since=0 if sent_at is None else sent_at):
            return ""
        facts = {"topic": topic, "group": text_property(half, PGROUP), "half_offset": half.queue_offset}
        self._lines.log(logger.warning, "transaction.undeliverable", **facts, reason="its topic was deleted")
        return topic

    def _find(self, header: EndTransactionRequestHeader, asker: Asker) -> StoredMessage:
        """The half message that is meant.

        Raises:
            AclError: who asks might not have sent it.
            RemoteProtocolError: it is not the one that this producer was told of.
            StoreReadError: it cannot be read at present.
        """
        place = header.tran_state_table_offset
        half = self._service.half_message_at(place)
        if half is None:
            is_gone = self._bridge.is_gone(HALF_TOPIC, place)
            raise RemoteProtocolError(f"half message {place} is gone" if is_gone else self._bridge.damaged.note(place))
        if half.physical_offset != header.commit_log_offset:
            raise RemoteProtocolError(f"half message {place} does not lie at {header.commit_log_offset} in the log")
        if text_property(half, PGROUP) != header.producer_group:
            raise RemoteProtocolError(f"half message {place} is another group's")
        if not self._access.is_open:
            self._access.check(asker, to_send(real_destination(half)[0]))
        return half

    def _committed(self, half: StoredMessage) -> PreparedRecord:
        return committed(half, store_host=self._store_host, queue_for=self._bridge.queue_for)

    def _mark(self, place: int) -> PreparedRecord:
        return removal_mark(place, store_host=self._store_host, born_timestamp_ms=self._now_ms())


def _commits(header: EndTransactionRequestHeader) -> bool:
    return header.commit_or_rollback == SysFlag.TRANSACTION_COMMIT


class _Asked(NamedTuple):
    """A transaction that is to be ended."""

    connection: Connection
    request: RemotingCommand
    header: EndTransactionRequestHeader
    asker: Asker

    @property
    def place(self) -> int:
        """Of its half message."""
        return self.header.tran_state_table_offset


class _Ending(NamedTuple):
    """What the first record of one transaction's end asks for. Each mark behind it asks for nothing but its place.

    They follow in the log once the first is there: no crash leaves a mark of a message that is not committed.
    """

    request: RemotingCommand
    places: list[int]
    """Of the half message; there are more if it is written again while this waits."""
    marked: int | None
    """The one whose mark the first record is."""


def _put_of(asked: _Ending | int, record: PreparedRecord) -> Put[_Ending | int]:
    """Nobody waits for disk and replicas: what is lost with the end of the log is asked about again."""
    return Put(asked, record, wait=False, oneway=False)


class _Producer:
    """A :class:`~rmqha.broker.puts.put_service.PutCaller`: one connection that ends transactions."""

    def __init__(
        self,
        connection: Connection,
        puts: PutMessageService,
        fates: Fates,
        *,
        mark: Callable[[int], PreparedRecord],
        on_unmarked: Callable[[int, str], None],
    ) -> None:
        self._connection: Final = connection
        self._puts: Final = puts
        self._fates: Final = fates
        self._mark: Final = mark
        self._on_unmarked: Final = on_unmarked

    @property
    def peer(self) -> str:
        return self._connection.peer

    def fenced(self) -> Guard:
        return self._connection.fenced()

    def refuse(self, asked: _Ending | int, result: AppendResult) -> None:
        """A mark that is missing costs nothing while this process lives: what has ended is remembered."""
        remark = result.remark or result.status.value
        if isinstance(asked, int):
            self._on_unmarked(asked, remark)
        else:
            self._fates.take_back(asked.places)
            self._connection.respond(asked.request, ResponseCode.SYSTEM_ERROR, remark=remark)

    def finish_oneway(self, puts: list[_Ending | int]) -> None:
        """None of the puts is."""

    def prepare_answers(self, stored: list[tuple[_Ending | int, AppendResult]]) -> Answer:
        endings = [asked for asked, _ in stored if not isinstance(asked, int)]
        for ending in endings:
            self._fates.finish_end(ending.places)
            marks = [_put_of(place, self._mark(place)) for place in ending.places if place != ending.marked]
            self._puts.put(marks, self)

        def send_answers(_statuses: list[PutMessageStatus]) -> None:
            for ending in endings:
                self._connection.respond(ending.request, ResponseCode.SUCCESS)

        return send_answers
