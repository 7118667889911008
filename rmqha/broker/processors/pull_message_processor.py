"""PullMessageProcessor: answers pulls from the consume queues, and holds those that find nothing yet.

Source: spec: remoting §2.5; rocketmq-all-4.9.8 PullMessageProcessor.java.
"""

from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Final

import trio

from rmqha.broker.acl.client_access import ClientAccess
from rmqha.broker.acl.needed_permissions import to_pull
from rmqha.broker.broker_stats_manager import BrokerStatsManager
from rmqha.broker.clients.consumer_manager import ConsumerManager
from rmqha.broker.processors.pull_rules import PullRefusedError, PullRules
from rmqha.broker.pull_request_hold_service import SUSPEND_S_MAX, PullRequestHoldService
from rmqha.broker.replication import Replication
from rmqha.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupConfig, SubscriptionGroupManager
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.broker.visible import PATIENCE_S, EndSeekers, comes_soon
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import (
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    PullSysFlag,
    decode_header,
    encode_header,
)
from rmqha.codec.heartbeat import SubscriptionData, build_subscription_data
from rmqha.codec.limits import GROUP_SIZE_MAX
from rmqha.codec.remoting import FLAG_RESPONSE, RemotingCommand
from rmqha.codec.route import MASTER_ID, PERM_READ
from rmqha.errors import RemoteProtocolError
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.replication.role import RoleKind
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.status import GetMessageResult, GetMessageStatus

_CODE_OF_STATUS: Final = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
_MAY_BE_HELD: Final = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY})
_NEVER_HERE_S: Final = 1.0
"""A slave whose queue begins behind what is asked for lets the consumer wait so long: the master may have it."""
_MASTER_LIVES_S: Final = 0.1
"""A slave that knows its master alive, which has what it lacks itself, sends the consumer there soon."""
_OVER: Final = -inf
"""The deadline of a pull that has been held: it is answered."""
_BROADCASTING: Final = "BROADCASTING"


class PullMessageProcessor:
    """Handles codes 11 and 361."""

    def __init__(  # noqa: PLR0917 - the parts it brings together
        self,
        store: DefaultMessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        offsets: ConsumerOffsetManager,
        holds: PullRequestHoldService,
        access: ClientAccess,
        replication: Replication,
        *,
        rules: PullRules,
        stats: BrokerStatsManager,
    ) -> None:
        self._store = store
        self._role = store.role
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._offsets = offsets
        self._holds = holds
        self._access = access
        self._replication = replication
        self._rules = rules
        self._stats = stats
        self._flush_demanded = False
        self._seekers = EndSeekers()

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the codes of pulls."""
        dispatcher.register(RequestCode.PULL_MESSAGE, self.process)
        dispatcher.register(RequestCode.LITE_PULL_MESSAGE, self.process)

    def process(self, connection: Connection, request: RemotingCommand) -> None:
        """Answer a pull now, or hold it."""
        header = decode_header(PullMessageRequestHeader, request)
        try:
            group = self._check(header)
            subscription = self._subscription_of(header, group)
        except PullRefusedError as error:
            connection.respond(request, error.code, remark=str(error))
            return
        if header.sys_flag & PullSysFlag.COMMIT_OFFSET and self._role.is_master:
            with suppress(RemoteProtocolError):  # a commit of its own is told why not
                self._offsets.commit_offset(
                    header.consumer_group,
                    header.topic,
                    header.queue_id,
                    offset=header.commit_offset,
                    peer=connection.peer,
                )
        deadline = None
        if header.sys_flag & PullSysFlag.SUSPEND:
            asked_s = min(header.suspend_timeout_millis / 1000, SUSPEND_S_MAX)
            held_s = asked_s if self._rules.long_polling_enable else self._rules.short_polling_s
            deadline = trio.current_time() + held_s
        self._pull(connection, request, header, group=group, subscription=subscription, deadline=deadline)

    def _check(self, header: PullMessageRequestHeader) -> SubscriptionGroupConfig:
        if not self._rules.readable:
            raise PullRefusedError(ResponseCode.NO_PERMISSION, "brokerPermission does not allow pulls")
        group = self._groups.select(header.consumer_group)
        if group is None:
            raise PullRefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] does not exist, and autoCreateSubscriptionGroup is off",
            )
        if not group.consume_enable:
            raise PullRefusedError(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {header.consumer_group}"
            )
        topic = self._topics.select(header.topic)
        if topic is None:
            raise PullRefusedError(ResponseCode.TOPIC_NOT_EXIST, _no_topic(header.topic))
        if not topic.perm & PERM_READ:
            raise PullRefusedError(ResponseCode.NO_PERMISSION, f"topic {header.topic} may not be read")
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise PullRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"topic {header.topic} has {topic.read_queue_nums} read queues, there is no queue {header.queue_id}",
            )
        if header.expression_type not in {None, "", "TAG"}:
            raise PullRefusedError(
                ResponseCode.SYSTEM_ERROR, f"the broker filters by TAG only, not by {header.expression_type}"
            )
        return group

    def _subscription_of(self, header: PullMessageRequestHeader, config: SubscriptionGroupConfig) -> SubscriptionData:
        if header.sys_flag & PullSysFlag.SUBSCRIPTION:
            try:
                return build_subscription_data(header.topic, header.subscription)
            except RemoteProtocolError as error:
                raise PullRefusedError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        group = self._consumers.find_group(header.consumer_group)
        if group and group.message_model == _BROADCASTING and not config.consume_broadcast_enable:
            raise PullRefusedError(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{header.consumer_group}] can not consume by broadcast way",
            )
        known = group.subscriptions.get(header.topic) if group else None
        if known is None:
            raise PullRefusedError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's group info not exist: {header.consumer_group} has no member that subscribes to "
                f"{header.topic}",
            )
        if known.sub_version < header.sub_version:
            raise PullRefusedError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription is newer than its last heartbeat"
            )
        if not known.is_tag_type:
            raise PullRefusedError(
                ResponseCode.SYSTEM_ERROR, f"the broker filters by TAG only, not by {known.expression_type}"
            )
        return known

    def _pull(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        *,
        group: SubscriptionGroupConfig,
        subscription: SubscriptionData,
        deadline: float | None,
    ) -> None:
        """Look, and answer; with a deadline hold what finds nothing until a message arrives or the time is over.

        Without one, too, if its queue has acknowledged messages that can be seen after a flush: who reads a queue to
        its end would leave them out.
        """
        begun_at = trio.current_time()
        result = self._store.get_message(
            header.topic,
            header.queue_id,
            header.queue_offset,
            max_msg_nums=header.max_msg_nums,
            code_set=subscription.code_set,
        )
        self._store.stats.note_get(len(result.views), trio.current_time() - begun_at)
        code = _code_of(result, header.queue_offset)
        if code != ResponseCode.SUCCESS:
            self._demand_flush()
        if code == ResponseCode.PULL_OFFSET_MOVED and result.max_offset < header.queue_offset:
            code, result = self._beyond_the_end(header, result)
        if self._waits(connection, header, result, code=code, deadline=deadline):
            until = begun_at + PATIENCE_S
            self._hold(connection, request, header, subscription, until, result.max_offset, held_again_until=_OVER)
            return
        if deadline in {None, _OVER} or not (code in _MAY_BE_HELD or self._is_late(code)):
            self._answer(connection, request, header, group=group, result=result, code=code)
            return
        if code == ResponseCode.PULL_RETRY_IMMEDIATELY:
            is_at_end = result.next_begin_offset >= result.max_offset
            if result.status is not GetMessageStatus.NO_MATCHED_MESSAGE or not is_at_end:
                self._answer(connection, request, header, group=group, result=result, code=code)
                return
            header = replace(header, queue_offset=result.next_begin_offset)
        if self._is_for_the_master(code):
            deadline = min(deadline, trio.current_time() + _MASTER_LIVES_S)
        elif self._is_late(code) and header.queue_offset < result.min_offset:
            deadline = min(deadline, trio.current_time() + _NEVER_HERE_S)
        self._hold(connection, request, header, subscription, deadline, result.max_offset)

    def _waits(
        self,
        connection: Connection,
        header: PullMessageRequestHeader,
        result: GetMessageResult,
        *,
        code: ResponseCode,
        deadline: float | None,
    ) -> bool:
        """Whether this one that would not is to wait for what was acknowledged; one that was held has."""
        queue = header.topic, header.queue_id
        reader = connection.peer, header.consumer_group[:GROUP_SIZE_MAX], *queue
        if code != ResponseCode.PULL_NOT_FOUND:
            if reader in self._seekers and result.next_begin_offset >= self._store.next_queue_offset(*queue):
                self._seekers.forget(reader)
            return False
        if deadline is None and comes_soon(self._store, *queue, seen_end=result.max_offset):
            given_out = self._store.next_queue_offset(*queue)
            if self._seekers.waits(reader, at=header.queue_offset, given_out=given_out):
                return True
        self._seekers.forget(reader)
        return False

    def _is_late(self, code: ResponseCode) -> bool:
        """Whether this slave lacks what the consumer asks for: it would ask again and again without a pause."""
        return code == ResponseCode.PULL_OFFSET_MOVED and not self._role.is_master

    def _is_for_the_master(self, code: ResponseCode) -> bool:
        """Whether this slave lacks it, and its master, which has it, is there."""
        return self._is_late(code) and self._role.kind is RoleKind.SLAVE and self._replication.follows_tables

    def _hold(  # noqa: PLR0917 - what a held pull needs, passed on once
        self,
        connection: Connection,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        subscription: SubscriptionData,
        deadline: float,
        queue_end: int,
        *,
        held_again_until: float | None = None,
    ) -> None:
        """Of all that came with the pull no more is kept than what it is for: clients may be many, and leave.

        Whether it is still allowed is asked again before it goes on, and so is what its group subscribes to by then;
        the tags are kept of a pull that named them itself, and of a group whose name is not kept.
        """
        asker = self._access.asker_of(connection, request)
        request = connection.let_go(request)
        name = header.consumer_group if len(header.consumer_group) <= GROUP_SIZE_MAX else ""
        is_own = not name or bool(header.sys_flag & PullSysFlag.SUBSCRIPTION)
        header = replace(header, consumer_group=name, subscription=None, expression_type=None, bname=None)
        codes = subscription.code_set if is_own else None
        kept = SubscriptionData(header.topic, code_set=codes) if is_own else None

        def retry(arrived: bool) -> None:
            if not connection.closed:
                again = (held_again_until or deadline) if arrived else _OVER
                with connection.fenced(request):
                    if not self._access.is_open:
                        self._access.check(asker, *to_pull(header.topic, header.consumer_group))
                    try:
                        group = self._check(header)
                        subscription = kept or self._subscription_of(header, group)
                    except PullRefusedError as error:
                        connection.respond(request, error.code, remark=str(error))
                        return
                    self._pull(connection, request, header, group=group, subscription=subscription, deadline=again)

        self._holds.suspend_pull_request(
            header.topic,
            header.queue_id,
            offset=header.queue_offset,
            queue_end=queue_end,
            deadline=deadline,
            retry=retry,
            tags=len(codes or ()),
            peer=connection.peer,
        )

    def _beyond_the_end(
        self, header: PullMessageRequestHeader, result: GetMessageResult
    ) -> tuple[ResponseCode, GetMessageResult]:
        """What is given out already, but not visible yet, is waited for; no consumer is sent back before it, either.

        Of a master that has yet to take its tail back from a peer, nobody can tell what it gave out.
        """
        given_out = self._store.next_queue_offset(header.topic, header.queue_id)
        if header.queue_offset <= given_out or self._store.running_flags.is_peer_longer:
            return ResponseCode.PULL_NOT_FOUND, result._replace(next_begin_offset=header.queue_offset)
        begins = max(result.next_begin_offset, given_out) if self._role.is_master else result.next_begin_offset
        return ResponseCode.PULL_OFFSET_MOVED, result._replace(next_begin_offset=begins)

    def _demand_flush(self) -> None:
        """Somebody waits: what is written, now or next, shall become visible after one flush (decision 4)."""
        if self._flush_demanded:
            return
        self._flush_demanded = True
        self._store.wrote.add(self._store.flushed.value + 1, inf, self._on_written)

    def _on_written(self, reached: bool, end: int) -> None:
        if reached:
            self._store.request_flush()
            self._store.flushed.add(end, inf, self._on_flushed)
        else:  # the log was cut, and goes on here
            self._store.wrote.add(end + 1, inf, self._on_written)

    def _on_flushed(self, _reached: bool, _end: int) -> None:
        self._flush_demanded = False
        if self._holds.is_holding():
            self._demand_flush()

    def _answer(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        *,
        group: SubscriptionGroupConfig,
        result: GetMessageResult,
        code: ResponseCode,
    ) -> None:
        if request.is_oneway:
            connection.respond(request, code)
            return
        next_begin_offset = result.next_begin_offset
        suggested = MASTER_ID if self._is_for_the_master(code) else self._suggest_which_broker_id(result, group)
        if self._is_late(code) or (code == ResponseCode.SUCCESS and connection.has_too_many_answers):
            # A slave may be behind the consumer: it never sends anybody back (spec: remoting §6, trap 33).
            code, next_begin_offset = ResponseCode.PULL_RETRY_IMMEDIATELY, header.queue_offset
        fields = PullMessageResponseHeader(suggested, next_begin_offset, result.min_offset, result.max_offset)
        response = RemotingCommand(
            code,
            request.opaque,
            FLAG_RESPONSE,
            remark=result.status.value,
            ext_fields=encode_header(fields),
            serialize=request.serialize,
        )
        if code == ResponseCode.SUCCESS:
            self._stats.note_get(header.topic, header.consumer_group, len(result.views), result.size_bytes)
        body = result.views if code == ResponseCode.SUCCESS else ()
        body_size = result.size_bytes if code == ResponseCode.SUCCESS else 0
        connection.send_response(response.encode_header(body_size), *body, size=request.size)

    def _suggest_which_broker_id(self, result: GetMessageResult, group: SubscriptionGroupConfig) -> int:
        rules = self._rules
        if not rules.slave_read_enable:
            return MASTER_ID
        if not result.views:
            return group.broker_id
        last = self._store.physical_offset_of(result.views[-1])
        other = group.which_broker_when_consume_slowly
        is_far = self._store.max_offset - last > rules.far_behind_bytes  # a slave goes on with it
        return other if is_far and self._has_what_follows(other, last) else group.broker_id

    def _has_what_follows(self, broker_id: int, offset: int) -> bool:
        return not self._role.is_master or self._replication.is_held_by(broker_id, offset)


def _no_topic(topic: str) -> str:
    return f"topic {topic} does not exist"


def _code_of(result: GetMessageResult, queue_offset: int) -> ResponseCode:
    """The table of spec: remoting §2.5: an empty or unknown queue is only wrong for an offset other than 0."""
    code = _CODE_OF_STATUS.get(result.status)
    if code is not None:
        return code
    return ResponseCode.PULL_NOT_FOUND if queue_offset == 0 else ResponseCode.PULL_OFFSET_MOVED
