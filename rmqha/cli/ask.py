"""Questions to a broker, in plain blocking code: a command that asks a few times need not start an event loop."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self

from rmqha.cli.credentials import client_credentials, sign_in_hint
from rmqha.cli.errors import CliError, SilentError, UnreachableError
from rmqha.cli.tls import secured_socket
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import encode_header
from rmqha.codec.host import join_address
from rmqha.codec.java_json import loads
from rmqha.codec.remoting import FRAME_SIZE_MAX, RemotingCommand
from rmqha.codec.route import MASTER_ID, BrokerData, decode_cluster_info
from rmqha.config.kinds import split_told_address
from rmqha.errors import RemoteProtocolError
from rmqha.logs import escaped
from rmqha.remoting.blocking import BlockingConnection

if TYPE_CHECKING:
    from rmqha.codec.acl import SessionCredentials

_NAMED_MAX: Final = 12


class RefusedError(CliError):
    """A broker has answered with an error.

    Attributes:
        code: its number.
        remark: what the broker says.
    """

    def __init__(self, address: str, answer: RemotingCommand) -> None:
        self.code: Final = answer.code
        self.remark: Final = escaped(answer.remark or "")
        super().__init__(
            f"the broker at {address} refuses",
            why=f"code {answer.code}: {self.remark}",
            hint=sign_in_hint(answer.remark, otherwise=""),
        )


class NoBrokerError(CliError):
    """What answers is no broker."""


class NotToldError(CliError):
    """A broker answers, and refuses: to who asks, or at present."""

    is_broker = True


class BrokerConnection:
    """A connection to a broker, for one question after the other; made with the first one.

    Requests are signed by what ``credentials`` returns: as the environment says, unless told otherwise.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout_s: float,
        answer_size_max: int = FRAME_SIZE_MAX,
        credentials: "Callable[[], SessionCredentials | None]" = client_credentials,
    ) -> None:
        self.address: Final = address
        self._timeout_s: Final = timeout_s
        self.credentials: Final = credentials()
        self._connection: BlockingConnection | None = None
        self._answer_size_max: Final = answer_size_max

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._connection is not None:
            self._connection.__exit__(*error)

    def ask_for(
        self, code: RequestCode, header: object | None = None, *, more: Mapping[str, str] | None = None
    ) -> RemotingCommand:
        """The answer to a request, which is none of an error; ``more`` fields go beside the header's.

        Raises:
            RefusedError: it is one.
            UnreachableError: as for :meth:`ask`.
        """
        fields = (encode_header(header) if header is not None else {}) | dict(more or {})
        answer = self.ask(RemotingCommand(code, ext_fields=fields))
        if answer.code != ResponseCode.SUCCESS:
            raise RefusedError(self.address, answer)
        return answer

    def ask(self, request: RemotingCommand) -> RemotingCommand:
        """The broker's answer, whatever its code. ``request`` gets a number of this connection, and is signed.

        A name server answers what every broker knows by REQUEST_CODE_NOT_SUPPORTED; for RocketMQ's, which is silent,
        that is returned here.

        Raises:
            UnreachableError: nobody answers in time, or what answers is no broker.
        """
        is_known_to_brokers = request.code == RequestCode.GET_BROKER_RUNTIME_INFO
        cluster_info = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO) if is_known_to_brokers else None
        try:
            return self._connected().ask(request, known_instead=cluster_info)
        except TimeoutError:
            raise SilentError(self.address, f"no answer within {self._timeout_s:g} s") from None
        except OSError as error:
            raise UnreachableError(self.address, error.strerror or str(error)) from None
        except UnicodeError as error:
            raise UnreachableError(self.address, f"is no host's name: {error}") from None
        except RemoteProtocolError as error:
            raise UnreachableError(self.address, str(error)) from None

    def _connected(self) -> BlockingConnection:
        if self._connection is None:
            host, port = split_told_address(self.address)
            self._connection = BlockingConnection(
                host, port, timeout_s=self._timeout_s, credentials=self.credentials, secure=secured_socket,
                answer_size_max=self._answer_size_max,
            )  # fmt: skip
        return self._connection


def ask_broker(address: str, request: RemotingCommand, *, timeout_s: float) -> RemotingCommand:
    """Return the broker's answer, whatever its code.

    Raises:
        ConfigError: the environment's credentials cannot be used.
        UnreachableError: nobody answers within ``timeout_s``, or what answers is no broker.
    """
    with BrokerConnection(address, timeout_s=timeout_s) as connection:
        return connection.ask(request)


def runtime_table(address: str, *, timeout_s: float) -> dict[str, str]:
    """Return what GET_BROKER_RUNTIME_INFO answers.

    Raises:
        UnreachableError: nobody answers.
        CliError: the answer is no such table; a name server's address was given.
    """
    answer = ask_broker(address, RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO), timeout_s=timeout_s)
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        raise no_broker_error(address, timeout_s=timeout_s)
    if answer.code != ResponseCode.SUCCESS:
        raise NotToldError(
            f"the broker at {address} does not tell its status",
            why=f"code {answer.code}: {answer.remark}",
            hint=sign_in_hint(
                answer.remark, otherwise="a RocketMQ broker cannot in its first second or two: ask again"
            ),
        )
    try:
        document = loads(bytes(answer.body))
    except RemoteProtocolError as error:
        raise CliError(f"the broker at {address} does not tell its status", why=escaped(str(error))) from None
    if not isinstance(document, dict) or not isinstance(document.get("table"), dict):
        raise CliError(f"the broker at {address} does not tell its status", why="its answer holds no table")
    return {str(key): str(value) for key, value in document["table"].items()}


def known_brokers(address: str, *, timeout_s: float) -> dict[str, BrokerData]:
    """The brokers that a name server knows, by name.

    Raises:
        UnreachableError: nobody answers.
        CliError: it is no name server.
    """
    answer = ask_broker(address, RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO), timeout_s=timeout_s)
    if answer.code != ResponseCode.SUCCESS:
        raise CliError(
            f"what listens at {address} is neither a broker nor a name server",
            why=f"code {answer.code}: {answer.remark}",
            hint=sign_in_hint(answer.remark, otherwise="name a broker's listenPort with --broker HOST:PORT"),
        )
    try:
        brokers = decode_cluster_info(bytes(answer.body))
        return {name: replace(one, broker_addrs=_in_brackets(one.broker_addrs)) for name, one in brokers.items()}
    except RemoteProtocolError as error:
        raise CliError(f"the name server at {address} does not tell its brokers", why=str(error)) from None


def _in_brackets(addresses: dict[int, str]) -> dict[int, str]:
    """IPv6 as an operator has to write it; what is no address is left as it is."""
    found = dict(addresses)
    for broker_id, told in addresses.items():
        with suppress(ValueError):
            found[broker_id] = join_address(*split_told_address(told))
    return found


def no_broker_error(address: str, *, timeout_s: float) -> NoBrokerError:
    """What to raise when what answers at ``address`` does not know a request that each broker knows.

    Raises:
        UnreachableError: nobody answers.
        CliError: it is no name server, either.
    """
    brokers = known_brokers(address, timeout_s=timeout_s)
    named = [
        f"{broker_address} ({name}, {'master' if broker_id == MASTER_ID else f'slave {broker_id}'})"
        for name, broker in sorted(brokers.items())
        for broker_id, broker_address in sorted(broker.broker_addrs.items())
    ]
    more = f", and {len(named) - _NAMED_MAX} more" if len(named) > _NAMED_MAX else ""
    known = f", one of {', '.join(named[:_NAMED_MAX])}{more}" if named else ": but none is registered there now"
    return NoBrokerError(
        f"{address} is a name server's address, not a broker's",
        why="a name server knows where brokers are; it holds no messages, and no state of theirs",
        hint=escaped(f"name a broker with --broker{known}"),
    )
