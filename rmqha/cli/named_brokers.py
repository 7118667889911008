"""The brokers that a command is about: those that were named, or the masters that a named name server knows."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from rmqha.cli.ask import BrokerConnection, known_brokers
from rmqha.cli.errors import CliError, UnreachableError, unreadable
from rmqha.codec.codes import STATUS_KEY, RequestCode, ResponseCode
from rmqha.codec.java_json import loads
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.route import MASTER_ID
from rmqha.errors import RemoteProtocolError

T = TypeVar("T")

_SLAVE: Final = "SLAVE"
_NO_MASTER: Final = "name all of its members; where nobody leads, 'rmqha status' of each says why"
NO_ANSWER: Final = (AttributeError, LookupError, RecursionError, RemoteProtocolError, TypeError, ValueError)
"""What comes of reading an answer that is none."""


@dataclass(frozen=True)
class NamedBroker:
    """One broker.

    Attributes:
        name: its brokerName; its address, if it does not tell.
        is_slave: changes go to its master instead.
        group: the DLedger group that it is a member of; empty: none, or it does not tell.
        term: of that group, as far as it knows.
        master: where it says that the group's master takes clients; empty if it knows none.
        is_starting: it tells its name, and nothing else yet.
    """

    address: str
    name: str
    is_slave: bool = False
    group: str = ""
    term: int = 0
    master: str = ""
    is_starting: bool = False


@dataclass(frozen=True)
class NamedBrokers:
    """What the addresses stand for; ``name_servers`` are those among them."""

    brokers: tuple[NamedBroker, ...]
    name_servers: tuple[str, ...]

    @property
    def leading(self) -> tuple[NamedBroker, ...]:
        """All, but of each DLedger group its master alone, or one member if that is not among them."""
        found = dict[tuple[str, str], NamedBroker]()
        members = {(one.name, one.group) for one in self.brokers if one.group}
        grouped = {name for name, _ in members}
        for one in self.brokers:
            key = (one.name, one.group) if one.group else (one.address, "")
            known = found.get(key)
            if one.is_starting and one.name in grouped:
                continue
            if known is None or (known.is_slave, -known.term) > (one.is_slave, -one.term):
                found[key] = one
        return tuple(found.values())

    def masters(self) -> tuple[NamedBroker, ...]:
        """Those to change. Raises CliError if one is a slave: its tables are its master's."""
        for broker in self.leading:
            if broker.is_slave and broker.group:
                elected = f"name the master with --broker: {broker.master}" if broker.master else _NO_MASTER
                raise CliError(
                    f"nothing can be changed at {broker.address}: it is no master of its DLedger group {broker.group}",
                    why="topics, groups and offsets are changed at the member that leads, and the others copy them",
                    hint=elected,
                )
            if broker.is_slave:
                raise CliError(
                    f"nothing can be changed at {broker.address}: it is a slave",
                    why="topics, groups and offsets are its master's, which it copies",
                    hint="name the master with --broker",
                )
        return self.leading


@dataclass(frozen=True)
class Answers(Generic[T]):
    """What brokers answered; ``is_partial`` if some could not be reached, which stderr tells."""

    found: list[tuple[NamedBroker, T]]
    is_partial: bool


def named_brokers(addresses: Sequence[str], *, timeout_s: float, may_be_away: bool = False) -> NamedBrokers:
    """Ask each address what it is. Where nobody answers is a broker, if ``may_be_away``: who asks it next is told.

    Raises:
        UnreachableError: nobody answers at one of them, and that may not be.
        CliError: what answers there is neither a broker nor a name server, or knows no broker.
    """
    brokers, name_servers = dict[str, NamedBroker](), list[str]()
    for address in addresses:
        try:
            with BrokerConnection(address, timeout_s=timeout_s) as connection:
                answer = connection.ask(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
        except UnreachableError:
            if not may_be_away:
                raise
            brokers.setdefault(address, NamedBroker(address, address))
            continue
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            name_servers.append(address)
            for broker in _registered(address, timeout_s=timeout_s):
                brokers.setdefault(broker.address, broker)
        else:
            brokers.setdefault(address, _described(address, answer))
    return NamedBrokers(tuple(brokers.values()), tuple(name_servers))


def _registered(address: str, *, timeout_s: float) -> list[NamedBroker]:
    found = []
    for name, broker in sorted(known_brokers(address, timeout_s=timeout_s).items()):
        if broker.broker_addrs:
            broker_id = min(broker.broker_addrs)
            found.append(NamedBroker(broker.broker_addrs[broker_id], name, is_slave=broker_id != MASTER_ID))
    if not found:
        raise CliError(
            f"no broker is registered at the name server {address}",
            hint="do the brokers have its address as namesrvAddr, and are they running?",
        )
    return found


def _described(address: str, answer: RemotingCommand) -> NamedBroker:
    """A broker that does not tell is taken for a master: it refuses by itself what it does not take."""
    try:
        facts = json.loads(loads(bytes(answer.body))["table"][STATUS_KEY])
        name, member = str(facts["broker_name"]), facts.get("dledger")
        if member is None:
            is_slave, is_starting = facts["role"] == _SLAVE, bool(facts.get("starting"))
            return NamedBroker(address, name, is_slave=is_slave, is_starting=is_starting)
        return NamedBroker(
            address,
            name,
            is_slave=not facts["is_master"],
            group=str(member["group"]),
            term=int(member["term"]),
            master=str(member["master"] or ""),
        )
    except NO_ANSWER:
        return NamedBroker(address, address)


def ask_each(
    brokers: Sequence[NamedBroker], ask: Callable[[BrokerConnection, NamedBroker], T], *, timeout_s: float
) -> Answers[T]:
    """What ``ask`` makes of each broker's answers; one that cannot be reached is told on stderr.

    Raises:
        UnreachableError: none can.
        CliError: a broker refuses, or its answer is none.
    """
    found, failures = list[tuple[NamedBroker, T]](), list[UnreachableError]()
    for broker in brokers:
        try:
            with BrokerConnection(broker.address, timeout_s=timeout_s) as connection:
                found.append((broker, ask(connection, broker)))
        except UnreachableError as error:
            failures.append(error)
        except NO_ANSWER as error:
            raise unreadable(broker.address, f"{type(error).__name__}: {str(error)[:200]!r}") from None
    if failures and not found:
        raise failures[0]
    for failure in failures:
        failure.show()
    return Answers(found, is_partial=bool(failures))
