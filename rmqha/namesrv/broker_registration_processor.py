"""BrokerRegistrationProcessor: brokers come, go, and say that they are still there (103, 104, 322).

Source: spec: remoting §2.3; rocketmq-all-4.9.8 DefaultRequestProcessor.java.
"""

import json
import re
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

import structlog
import trio

from rmqha.codec import java_json
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import decode_header, encode_header
from rmqha.codec.namesrv_headers import (
    BrokerRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
)
from rmqha.codec.register_broker import NO_TOPICS, DataVersion, RegisteredTopics, check_name
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.route import QueueData
from rmqha.errors import RemoteProtocolError
from rmqha.log_limit import RepeatLimit
from rmqha.namesrv.routes import Registration, Routes
from rmqha.remoting.answers_in_turns import AnswersInTurns
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher

logger = structlog.get_logger()

OrderedTopics = Callable[[], dict[str, str]]
"""The namespace ORDER_TOPIC_CONFIG, which a broker is told."""

_READ_AT_ONCE: Final = 250
"""Steps: a millisecond's work."""
_VERSION_SIZE_MAX: Final = 1024
_ADDRESS: Final = re.compile(r'[^\s,"{}\\]{1,255}:[0-9]{1,5}')
"""What decoders that split a route by hand take for an address."""


class BrokerRegistrationProcessor:
    """Registrations with many topics are read in turns, one at a time."""

    def __init__(self, routes: Routes, *, ordered_topics: OrderedTopics) -> None:
        self._routes: Final = routes
        self._ordered_topics: Final = ordered_topics
        self._registering: Final = AnswersInTurns()
        self._said: Final = RepeatLimit()

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the codes that brokers send."""
        dispatcher.register(RequestCode.REGISTER_BROKER, self.register_broker)
        dispatcher.register(RequestCode.UNREGISTER_BROKER, self.unregister_broker)
        dispatcher.register(RequestCode.QUERY_DATA_VERSION, self.query_data_version)
        dispatcher.on_closed(self._routes.connection_closed)

    def register_broker(self, connection: Connection, request: RemotingCommand) -> None:
        """103: a broker is there, and a master has these topics."""
        header = decode_header(RegisterBrokerRequestHeader, request)
        register = partial(self._register, connection, request, header)
        self._registering.answer(connection, request, register, keeps_request=True)

    async def _register(
        self, connection: Connection, request: RemotingCommand, header: RegisterBrokerRequestHeader
    ) -> RemotingCommand:
        body, registration = request.body, _registration(header)
        if header.body_crc32 and header.body_crc32 != zlib.crc32(body) & 0x7FFFFFFF:
            return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark="crc32 not match")
        reader = RegisteredTopics(body, registration.broker_name, version=request.version, compressed=header.compressed)
        topics = dict[str, QueueData]()
        for step, entry in enumerate(reader):
            if entry is not None:
                topics[entry[0]] = entry[1]
            if step % _READ_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        self._tell_left_out(registration, reader)
        found = self._routes.register_broker(
            replace(registration, data_version=reader.data_version),
            topics,
            connection=connection,
            now=trio.current_time(),
        )
        ordered = self._ordered_topics()
        body = java_json.dumps({"table": ordered}).encode() if ordered else b""
        return RemotingCommand(ResponseCode.SUCCESS, ext_fields=encode_header(found), body=body)

    def _tell_left_out(self, registration: Registration, reader: RegisteredTopics) -> None:
        """They come with each registration of all topics."""
        if reader.left_out:
            who = registration.broker_name, registration.broker_addr
            facts = {"broker_name": who[0], "address": who[1], "reason": reader.why_left_out}
            self._said.log(logger.warning, "route_info.topics_left_out", key=who, count=reader.left_out, **facts)

    def unregister_broker(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """104: a broker stops."""
        self._routes.unregister_broker(_registration(decode_header(BrokerRequestHeader, request)))
        return RemotingCommand(ResponseCode.SUCCESS)

    def query_data_version(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """322: whether a broker has to register its topics again; if not, it is known to be alive."""
        header = decode_header(BrokerRequestHeader, request)
        asked = _data_version(request.body)
        found = self._routes.query_data_version(_registration(header, asked), now=trio.current_time())
        return RemotingCommand(
            ResponseCode.SUCCESS,
            ext_fields=encode_header(QueryDataVersionResponseHeader(changed=found != asked)),
            body=b"" if found is None else java_json.dumps(found.to_json()).encode(),
        )


def _registration(
    header: RegisterBrokerRequestHeader | BrokerRequestHeader, data_version: DataVersion = NO_TOPICS
) -> Registration:
    """Raises RemoteProtocolError if a name or an address is none."""
    check_name("broker", header.broker_name)
    check_name("cluster", header.cluster_name)
    ha_server_addr = header.ha_server_addr if isinstance(header, RegisterBrokerRequestHeader) else ""
    for address in (header.broker_addr, ha_server_addr):
        if address and not _ADDRESS.fullmatch(address):
            raise RemoteProtocolError(f"{address:.80} is no address of a broker: it has to be host:port")
    if not header.broker_addr:
        raise RemoteProtocolError("a broker without an address")
    return Registration(
        header.cluster_name,
        header.broker_name,
        header.broker_id,
        header.broker_addr,
        ha_server_addr,
        data_version,
    )


def _data_version(body: bytes) -> DataVersion:
    if len(body) > _VERSION_SIZE_MAX:
        raise RemoteProtocolError(f"a data version of {len(body)} bytes")
    try:
        return DataVersion.from_json(json.loads(body or b"null"))
    except (ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"a data version does not parse: {error!r:.200}") from None
