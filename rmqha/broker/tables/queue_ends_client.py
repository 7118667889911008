"""QueueEndsClient: how a broker learns from another where queues end of which its log holds no message."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog
import trio

from rmqha.broker.master_link import HA_PORT_DISTANCE
from rmqha.broker.questions import RPC_TIMEOUT_S, TABLE_TIMEOUT_S, ask_log_end, open_link, read_table
from rmqha.broker.tables.queue_ends import ENTRIES_MAX, QueueEnds
from rmqha.broker.tables.topic_config import decode_topics
from rmqha.codec.acl import Signer
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import (
    OffsetResponseHeader,
    QueueEndsRequestHeader,
    QueueRequestHeader,
    decode_header,
    encode_header,
)
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import MQBrokerError, RemoteProtocolError, RemotingError
from rmqha.remoting.client import RemotingClient
from rmqha.store.message_store import DefaultMessageStore
from rmqha.transport import Network

logger = structlog.get_logger()

_AGAIN_S: Final = 1.0
"""Until it knows the ends, this slave should not become master: it asks soon, and often."""
_STILL_UNKNOWN_S: Final = 10.0
_LOOKED_AT_ONCE: Final = 1000
_REASON_SIZE_MAX: Final = 300
_AWAITS_LOG: Final = "not all of its log is here yet, and its queues end where that does"
NOT_ASKED: Final = "its master has yet to be asked"
_NOT_TAKEN: Final = "were not taken over"
_OUTDATED: Final = "are not up to date"
_PAGE_SIZE_MAX: Final = 256 * 1024
"""Bytes: 500 queues with the longest names have 75 KB."""


CheckGroup = Callable[[RemotingClient], Awaitable[object]]
"""Raises RemoteProtocolError if this broker is of another group."""


def address_behind(ha_address: tuple[str, int]) -> str:
    """Where the broker with this HA port listens, unless it was told otherwise."""
    host, ha_port = ha_address
    return f"{host}:{ha_port - HA_PORT_DISTANCE}"


class QueueEndsClient:
    """Asks one broker, whose log is the same: where queues ended before some byte of it never changes.

    Attributes:
        failure: why it could not be learned the last time, or not all; empty if it was, or nobody was asked yet.
        has_learned: whether all ever were, as far as the other broker knows.
    """

    def __init__(
        self,
        network: Network,
        address: str,
        *,
        store: DefaultMessageStore,
        queue_ends: QueueEnds,
        check_group: CheckGroup,
        credentials: Signer | None = None,
    ) -> None:
        self._address: Final = address
        self._network: Final = network
        self._store: Final = store
        self._queue_ends: Final = queue_ends
        self._check_group: Final = check_group
        self._credentials: Final = credentials
        self.failure = ""
        self.has_learned = False
        self._awaits_log = False
        """Of a broker of RocketMQ's: its ends are known, and count once the log here goes as far."""

    @property
    def why_unknown(self) -> str:
        """Why this broker does not know where queues end; empty if it does, or there is nothing to know."""
        has_begun_later = 0 < self._store.min_offset < self._store.max_offset
        return self.failure or (NOT_ASKED if has_begun_later and not self.has_learned else "")

    async def run(self) -> None:
        """Ask until the answer is complete, once it is settled where the local log begins."""
        while True:
            is_told = False
            if self._store.min_offset < self._store.max_offset:
                is_told = await self._settle() if self._awaits_log else await self.learn(before=self._store.min_offset)
            if self.has_learned:
                return
            await trio.sleep(_STILL_UNKNOWN_S if is_told else _AGAIN_S)

    async def learn(self, *, before: int) -> bool:
        """Ask where queues ended before offset ``before``; False if no complete answer came, which is logged once.

        So is it if the other broker is a slave that was not told all of them itself: it then tells those it knows.
        """
        unknown = ""
        try:
            async with open_link(self._network, self._address, credentials=self._credentials) as client:
                await self._check_group(client)
                count, unknown = await self._ask_ends(client, before=before)
        except (RemotingError, MQBrokerError, RemoteProtocolError, OSError) as error:
            self._fail(str(error))
            return False
        if unknown:
            self._fail(f"{self._address} does not know all of them itself: {unknown}")
            return True
        logger.info("queue_ends.learned", address=self._address, count=count)
        return await self._settle()

    async def _settle(self) -> bool:
        """What is told counts, if the log here goes as far; True: it is told."""
        self._awaits_log = not await self._queue_ends.settle()
        self.failure, self.has_learned = _AWAITS_LOG if self._awaits_log else "", not self._awaits_log
        return True

    def _fail(self, reason: str) -> None:
        if reason != self.failure:
            logger.warning("queue_ends.unknown", address=self._address, reason=reason)
        self.failure = reason

    async def _ask_ends(self, client: RemotingClient, *, before: int) -> tuple[int, str]:
        """Page by page; returns how many ends are news here, and why some may be missing there."""
        count = start = 0
        while True:
            answer = await _invoke(client, RequestCode.GET_QUEUE_ENDS, QueueEndsRequestHeader(before, start))
            if len(answer.body) > _PAGE_SIZE_MAX:
                raise RemoteProtocolError(f"a page of queue ends has {len(answer.body)} bytes: more than any broker's")
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return await self._ask_max_offsets(client), ""
            page = await read_table(_successful(answer), dict)
            count += self._queue_ends.merge_from_json(page)
            following = page.get("next")
            if following is None:
                if not (unknown := str(page.get("unknown") or "")[:_REASON_SIZE_MAX]):
                    self._queue_ends.forget_later()
                return count, unknown
            if type(following) is not int or following <= start:
                raise RemoteProtocolError(f"page {following!r:.40} of the queue ends cannot follow page {start}")
            start = following

    async def _ask_max_offsets(self, client: RemotingClient) -> int:
        """Ask RocketMQ, queue by queue, for the ends of those that show no message here.

        It tells present ones: the messages before them may be in the part of its log that is yet to come here.
        """
        code = RequestCode.GET_ALL_TOPIC_CONFIG
        answer = _successful(await _invoke(client, code, timeout_s=TABLE_TIMEOUT_S))
        queue_nums = await read_table(answer, _queue_nums)
        ends, count, looked_at = dict[str, dict[int, int]](), 0, 0
        for topic, nums in queue_nums.items():
            for queue_id in range(nums):
                looked_at += 1
                if looked_at % _LOOKED_AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()
                first, end = self._store.queues.range_of(topic, queue_id)
                if first < end:
                    continue
                header = QueueRequestHeader(topic, queue_id)
                answer = _successful(await _invoke(client, RequestCode.GET_MAX_OFFSET, header))
                if (end := decode_header(OffsetResponseHeader, answer).offset) > 0:
                    ends.setdefault(topic, {})[queue_id], count = end, count + 1
        await self._queue_ends.learn_later({"queueEnds": ends}, log_end=await ask_log_end(client))
        return count


def _queue_nums(value: dict[str, Any]) -> dict[str, int]:
    """How many queues each topic of a table has. Raises RemoteProtocolError if it is no such table, or too large."""
    queue_nums = {name: topic.queue_nums for name, topic in decode_topics(value).items()}
    if sum(queue_nums.values()) > ENTRIES_MAX:
        raise RemoteProtocolError(f"its topics have more than {ENTRIES_MAX} queues, the limit")
    return queue_nums


def not_learned(why_no_tables: str, ends: QueueEndsClient | None, *, had_tables: bool) -> list[str]:
    """What a slave should have from its master beside the log, and has not, or could not get the last time it asked.

    Args:
        why_no_tables: why it lacks some; empty: it has all.
        ends: who asks where queues end, if somebody does.
        had_tables: it took all of them over before, and they are only not the newest.
    """
    asked = (
        (f"topics, groups and consumers' offsets {_OUTDATED if had_tables else _NOT_TAKEN}", why_no_tables),
        ("it should not be made master: where queues end is unknown", ends.why_unknown if ends else ""),
    )
    return [f"{what}: {why}" for what, why in asked if why]


async def _invoke(
    client: RemotingClient, code: RequestCode, header: object = None, *, timeout_s: float = RPC_TIMEOUT_S
) -> RemotingCommand:
    ext_fields = {} if header is None else encode_header(header)
    return await client.invoke(RemotingCommand(code, ext_fields=ext_fields), timeout_s=timeout_s)


def _successful(answer: RemotingCommand) -> RemotingCommand:
    if answer.code != ResponseCode.SUCCESS:
        raise MQBrokerError(answer.code, answer.remark)
    return answer
