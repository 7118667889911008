"""DefaultTransactionalMessageCheckListener: asks producers what became of their half messages.

Source: spec: remoting §2.8 (39); rocketmq-all-4.9.8 AbstractTransactionalMessageCheckListener.java, Broker2Client.java.
"""

from dataclasses import replace
from functools import cache
from typing import Final

import structlog
import trio

from rmqha.broker.acl.asker import Asker
from rmqha.broker.acl.client_access import ClientAccess
from rmqha.broker.acl.needed_permissions import to_send
from rmqha.broker.clients.producer_manager import ProducerManager
from rmqha.broker.transaction.half_message import CHECK_MAX_TIME_TOPIC, real_destination, text_property
from rmqha.codec.codes import RequestCode
from rmqha.codec.headers import encode_header
from rmqha.codec.message_id import encode_message_id
from rmqha.codec.properties import PGROUP, UNIQ_KEY
from rmqha.codec.record.message import StoredMessage
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.transaction_headers import CheckTransactionStateRequestHeader
from rmqha.errors import RemoteProtocolError
from rmqha.log_limit import LogLimit
from rmqha.remoting.connection import Connection
from rmqha.store.discarded_halves import DiscardedHalves

logger = structlog.get_logger()


class DefaultTransactionalMessageCheckListener:
    """Sends 39 to any one live connection of the producer's group: to whichever of them the answer is the same.

    Where there are accounts, to one that might have sent the message: it is shown to nobody else.
    """

    def __init__(self, producers: ProducerManager, access: ClientAccess, discarded: DiscardedHalves) -> None:
        self._producers: Final = producers
        self._access: Final = access
        self._discarded: Final = discarded
        self._lines: Final = LogLimit()

    def takes_question(self, half: StoredMessage) -> bool:
        """Whether to ask now: not one that is connected, and has yet to take what it was asked before."""
        try:
            connection = self._find(text_property(half, PGROUP), half, is_used=False)
        except RemoteProtocolError:
            return True
        return connection is None or connection.takes_answers

    def resolve_half_msg(self, half: StoredMessage) -> None:
        """Ask, if a producer of the group is there and takes it; the next round asks again."""
        group = text_property(half, PGROUP)
        connection = None
        try:
            connection = self._find(group, half, is_used=True)
            is_asked = connection is not None and connection.notify(check_request(half))
        except RemoteProtocolError:
            is_asked = False
        if not is_asked:
            facts = {"group": group, "half_offset": half.queue_offset, "is_connected": connection is not None}
            if not self._access.is_open:
                facts["members_without_permission"] = 0 if connection else len(self._producers.members(group))
            self._lines.log(logger.warning, "transaction.producer_not_asked", **facts)

    def _find(self, group: str, half: StoredMessage, *, is_used: bool) -> Connection | None:
        if self._access.is_open:
            return self._producers.any_connection(group, is_used=is_used)
        need = to_send(real_destination(half)[0])

        @cache  # of many members few have another account, or another address
        def may(asker: Asker) -> bool:
            return not self._access.why_not(asker, need)

        return self._producers.any_connection(group, may=lambda client: may(client.asker), is_used=is_used)

    def tell_discarded(self, half: StoredMessage, *, reason: str, not_kept: str) -> None:
        """Nobody ended it: an operator may want to know."""
        self._discarded.note(now=trio.current_time())
        self._lines.log(
            logger.error,
            "transaction.discarded",
            group=text_property(half, PGROUP),
            msg_id=half.msg_id,
            half_offset=half.queue_offset,
            reason=reason,
            kept_in=CHECK_MAX_TIME_TOPIC if not not_kept else None,
            not_kept_because=not_kept or None,
        )


def check_request(half: StoredMessage) -> RemotingCommand:
    """39 about a half message, with the place where it lies now: there the answer's mark is to point.

    Raises:
        RemoteProtocolError: the half message does not say where it belongs.
    """
    topic, queue_id = real_destination(half)
    key = text_property(half, UNIQ_KEY) or None
    header = CheckTransactionStateRequestHeader(
        tran_state_table_offset=half.queue_offset,
        commit_log_offset=half.physical_offset,
        offset_msg_id=encode_message_id(half.store_host_raw, half.physical_offset),
        msg_id=key,
        transaction_id=key,
    )
    size = half.store_size - len(half.topic) + len(topic)
    body = replace(half, topic=topic, queue_id=queue_id, store_size=size).encode()
    return RemotingCommand(RequestCode.CHECK_TRANSACTION_STATE, ext_fields=encode_header(header), body=body)
