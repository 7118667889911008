"""QueryMessageProcessor: messages by key (request 12).

Source: spec: remoting §2.5, code 12; rocketmq-all-4.9.8 QueryMessageProcessor.java.
"""

from functools import partial
from typing import Final

from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import (
    UNIQUE_KEY_QUERY,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    decode_header,
    encode_header,
)
from rmqha.codec.remoting import FLAG_RESPONSE, RemotingCommand
from rmqha.remoting.answers_in_turns import AnswersInTurns
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.store.index_query import Query, QueryMessageResult
from rmqha.store.message_store import DefaultMessageStore

_UNIQUE_MAX: Final = 32
"""defaultQueryMaxNum: so many messages may have one UNIQ_KEY, as those that were sent back have."""
_ASKED_MAX: Final = 64
"""Of one connection: all users of a console share one."""


class QueryMessageProcessor:
    """Answers one query at a time; of those that wait, hosts take turns. A slave answers as a master does."""

    def __init__(self, store: DefaultMessageStore) -> None:
        self._store: Final = store
        self._answers: Final = AnswersInTurns(asked_max=_ASKED_MAX)

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the code."""
        dispatcher.register(RequestCode.QUERY_MESSAGE, self.query_message)

    def query_message(self, connection: Connection, request: RemotingCommand) -> None:
        """12: the newest messages of a topic with a key, within a range of time.

        Until then its bytes are in flight, of which topic and key are kept.
        """
        header = decode_header(QueryMessageRequestHeader, request)
        is_unique = request.ext_fields.get(UNIQUE_KEY_QUERY) == "true"
        max_num = _UNIQUE_MAX if is_unique else header.max_num
        query = Query(header.topic, header.key, max_num, header.begin_timestamp, header.end_timestamp)
        kept = request.to_answer(request.size)
        self._answers.answer(connection, kept, partial(self._search, connection, kept, query), keeps_request=True)

    async def _search(self, connection: Connection, request: RemotingCommand, query: Query) -> None:
        self._answer(connection, request, await self._store.query_message(query))

    def _answer(self, connection: Connection, request: RemotingCommand, result: QueryMessageResult) -> None:
        fields = encode_header(
            QueryMessageResponseHeader(result.index_last_update_timestamp, result.index_last_update_phyoffset)
        )
        if result.views and not connection.takes_answers:
            remark = "answers wait to be taken: read them, then ask again"
            connection.respond(request, ResponseCode.SYSTEM_BUSY, remark=remark)
        elif not result.views or request.is_oneway:
            code = ResponseCode.SUCCESS if result.views else ResponseCode.QUERY_NOT_FOUND
            connection.respond(request, code, remark=self._reason(result), ext_fields=fields)
        else:
            response = RemotingCommand(
                ResponseCode.SUCCESS, request.opaque, FLAG_RESPONSE, ext_fields=fields, serialize=request.serialize
            )
            connection.send_response(response.encode_header(result.size_bytes), *result.views, size=request.size)

    def _reason(self, result: QueryMessageResult) -> str:
        if not self._store.options.message_index_enable:
            return "messages are not found by key here: messageIndexEnable is false"
        if not result.is_complete:
            return "too many messages have this key to look at all: narrow the range of time"
        return self._store.index.describe() or "can not find message, maybe time range not correct"
