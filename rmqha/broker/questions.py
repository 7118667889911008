"""Questions that one broker asks another by remoting, and what may be an answer."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeVar

import trio

from rmqha.codec import java_json
from rmqha.codec.acl import Signer
from rmqha.codec.codes import READS_ORIGIN_FIELD, STATUS_KEY, RequestCode, ResponseCode
from rmqha.codec.remoting import HEADER_SIZE_MAX, RemotingCommand
from rmqha.codec.transfer import OFFSET_MAX
from rmqha.config.java_properties import parse_properties
from rmqha.errors import RemoteProtocolError
from rmqha.remoting.client import RemotingClient, open_remoting_client
from rmqha.threads import needing_a_thread
from rmqha.transport import Network

_Table = TypeVar("_Table")

RPC_TIMEOUT_S: Final = 3.0
TABLE_TIMEOUT_S: Final = 20.0
"""A busy master takes its time to make a table of megabytes."""
_READ_AT_ONCE_MAX: Final = 64 * 1024
"""Bytes of JSON, or of a configuration: some 20 milliseconds' work."""
_STATUS_SIZE_MAX: Final = 1024 * 1024


def open_link(
    network: Network, address: str, *, credentials: Signer | None = None
) -> AbstractAsyncContextManager[RemotingClient]:
    """A connection to another broker, whose answers hold nobody up: what is large in them is in the body."""
    return open_remoting_client(
        network, address, timeout_s=RPC_TIMEOUT_S, header_size_max=HEADER_SIZE_MAX, credentials=credentials
    )


async def ask(client: RemotingClient, code: RequestCode, fields: dict[str, str] | None = None) -> dict[str, Any]:
    """The JSON object that answers ``code``; empty when the broker has nothing to say."""
    return await ask_table(client, code, dict, fields=fields, timeout_s=RPC_TIMEOUT_S)


async def ask_table(
    client: RemotingClient,
    code: RequestCode,
    decode: Callable[[dict[str, Any]], _Table],
    *,
    fields: dict[str, str] | None = None,
    timeout_s: float = TABLE_TIMEOUT_S,
) -> _Table:
    """What ``decode`` makes of the JSON object that answers ``code``, or of an empty one.

    To read and decode a large one may take seconds: a worker thread does it, and replication goes on.

    Raises:
        OSError: there is no thread.
        RemoteProtocolError: the answer is an error, or no JSON object, or ``decode`` does not take it.
    """
    ext_fields = {READS_ORIGIN_FIELD: "true"} | (fields or {})
    answer = await client.invoke(RemotingCommand(code, ext_fields=ext_fields), timeout_s=timeout_s)
    if answer.code != ResponseCode.SUCCESS:
        remark = f"{answer.remark or 'no reason given'!s:.200}"
        raise RemoteProtocolError(f"request {code} ({code.name}) is answered with error {answer.code}: {remark}")
    if not answer.body:
        return decode({})
    return await read_table(answer, decode)


async def read_table(answer: RemotingCommand, decode: Callable[[dict[str, Any]], _Table]) -> _Table:
    """What ``decode`` makes of the JSON object that is an answer's body; of a large one in a worker thread.

    Raises:
        OSError: there is no thread.
        RemoteProtocolError: it is no JSON object, or ``decode`` does not take it.
    """

    def read() -> _Table:
        return decode(json_of(answer))

    if len(answer.body) <= _READ_AT_ONCE_MAX:
        return read()
    with needing_a_thread():
        return await trio.to_thread.run_sync(read)


def json_of(answer: RemotingCommand) -> dict[str, Any]:
    """The JSON object that an answer's body is. Raises RemoteProtocolError if it is none."""
    value = java_json.loads(answer.body)
    if not isinstance(value, dict):
        raise RemoteProtocolError("the answer is no JSON object")
    return value


def offset_of(text: str) -> int:
    """Where a log begins or ends; RocketMQ's that has no file begins at -1. Raises ValueError."""
    offset = int(text)
    if not -1 <= offset <= OFFSET_MAX:
        raise ValueError(f"no log begins or ends at {offset}")
    return offset


def status_of(table: dict[str, Any]) -> dict[str, Any]:
    """What one of our brokers tells. Raises RemoteProtocolError, or TypeError, if it is no JSON object of some size."""
    if len(table[STATUS_KEY]) > _STATUS_SIZE_MAX:
        raise RemoteProtocolError(f"a status of {len(table[STATUS_KEY])} characters: more than any broker's")
    status = java_json.loads(table[STATUS_KEY], java_keys=False)
    if not isinstance(status, dict):
        raise TypeError("its status is no JSON object")
    return status


async def ask_keys(client: RemotingClient) -> dict[str, str]:
    """The configuration of a broker of RocketMQ's (26); empty if it does not say."""
    answer = await client.invoke(RemotingCommand(RequestCode.GET_BROKER_CONFIG), timeout_s=RPC_TIMEOUT_S)
    if answer.code != ResponseCode.SUCCESS:
        return {}
    if len(answer.body) > _READ_AT_ONCE_MAX:
        raise RemoteProtocolError(f"a configuration of {len(answer.body)} bytes: more than any broker's")
    properties, _ = parse_properties(answer.body)
    return {one.key: one.value for one in properties}


async def ask_log_end(client: RemotingClient) -> int:
    """Where the other's log ends at present. Raises RemoteProtocolError if it does not say."""
    table = (await ask(client, RequestCode.GET_BROKER_RUNTIME_INFO)).get("table") or {}
    try:
        return offset_of(table["commitLogMaxOffset"])
    except (KeyError, TypeError, ValueError) as error:
        raise RemoteProtocolError(f"it does not say where its log ends: {error!r:.100}") from None
