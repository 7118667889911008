"""``rmqha doctor``: the other members of a DLedger group, as dLegerPeers names them. They are asked, no more."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import trio

from rmqha.cli.ask import NoBrokerError, runtime_table
from rmqha.cli.doctor_clock import check_other_clock
from rmqha.cli.errors import CliError
from rmqha.cli.finding import FAIL, OK, WARN, Finding
from rmqha.cli.verdict import read_status
from rmqha.codec.dledger_wire import MetadataResponse
from rmqha.codec.host import is_same_address
from rmqha.config import BrokerConfig, split_address
from rmqha.config.dledger_peers import parse_peers
from rmqha.dledger.dledger_client import open_dledger_client
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.errors import MQBrokerError, RmqhaError
from rmqha.logs import escaped
from rmqha.transport import Network, TcpNetwork

_KEY: Final = "dLegerPeers"
_NO_FACTS: Final = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
Answer = MetadataResponse | RmqhaError


def check_members(config: BrokerConfig, *, timeout_s: float, network: Network | None = None) -> Iterator[Finding]:
    """Whether each is who it is taken for, and has the same list.

    Args:
        config: of a broker; of one that is no member nothing is asked.
        timeout_s: for each answer.
        network: the door to them.
    """
    if not config.enable_dleger_commit_log:
        return
    peers = parse_peers(config.d_leger_peers)
    others = {peer: address for peer, address in peers.items() if peer != config.d_leger_self_id}
    answers = trio.run(_ask, config.d_leger_group, others, timeout_s, network or TcpNetwork())
    for peer, address in others.items():
        answer = answers.get(peer)
        yield _judge(config.d_leger_group, peer, address, answer, peers=peers, timeout_s=timeout_s)
        if isinstance(answer, MetadataResponse) and (status := answer.rmqha_status) and status.broker_address:
            yield from _clock(status.broker_address, timeout_s=timeout_s)


async def _ask(group: str, peers: dict[str, str], timeout_s: float, network: Network) -> dict[str, Answer]:
    """What each says, or why it does not."""
    answers: dict[str, Answer] = {}

    async def ask(peer: str) -> None:
        try:
            answers[peer] = await client.metadata(peer, timeout_s=timeout_s)
        except RmqhaError as error:
            answers[peer] = error

    async with open_dledger_client(group=group, peers=peers, network=network) as client, trio.open_nursery() as nursery:
        for peer in peers:
            nursery.start_soon(ask, peer)
    return answers


def _judge(
    group: str, peer: str, address: str, answer: Answer | None, *, peers: dict[str, str], timeout_s: float
) -> Finding:
    named = f"{peer} at {address}"
    if isinstance(answer, MQBrokerError):
        what = f"{named}: {_who_answers(address, timeout_s=timeout_s)}, and is no member's port"
        told = f"name {peer}'s own port of the group, as its dLegerPeers has it: not its listenPort"
        return Finding(FAIL, _KEY, escaped(what), told)
    if not isinstance(answer, MetadataResponse):
        told = "is it running, and is this its own port of the group (not listenPort)?"
        return Finding(WARN, _KEY, escaped(f"{named}: {answer}"), told)
    if answer.code != DLedgerResponseCode.SUCCESS:
        is_group = answer.code == DLedgerResponseCode.UNKNOWN_GROUP
        what = f"is of another group than {group}" if is_group else f"is not {peer}, but another member"
        told = "compare dLegerGroup, dLegerSelfId and dLegerPeers of both files: each member has the same list"
        return Finding(FAIL, _KEY, f"{named}: who answers there {what}", told)
    its = answer.peers or {}
    if differing := _differing(peers, its):
        may_pass = all(
            peer not in peers or peer not in its or _port(peers[peer]) == _port(its[peer]) for peer in differing
        )
        told = (
            "give all members the same list, each address written alike, and one member more or less at a time: "
            "docs/dledger.md, 'Other members'"
        )
        what = f"{named}: its list is another one: {'; '.join(differing.values())}"
        return Finding(WARN if may_pass else FAIL, _KEY, escaped(what), told)
    return Finding(OK, _KEY, escaped(f"{named}: a member of group {group} with the same list"))


def _who_answers(address: str, *, timeout_s: float) -> str:
    try:
        facts = read_status(runtime_table(address, timeout_s=timeout_s))
        return f"a broker's listenPort answers ({facts.get('role', facts['version'])} {facts.get('broker_name', '')})"
    except NoBrokerError:
        return "a name server answers"
    except (CliError, *_NO_FACTS):
        return "somebody else answers"


def _clock(address: str, *, timeout_s: float) -> Iterator[Finding]:
    """What the broker of a member says the time is: segments expire by it."""
    with suppress(CliError, *_NO_FACTS):
        yield from check_other_clock(_KEY, address, read_status(runtime_table(address, timeout_s=timeout_s)))


def _differing(own: dict[str, str], its: dict[str, str]) -> dict[str, str]:
    """By id, members that one list alone has, or with another address."""
    return {
        peer: f"{peer} is {_shown(its.get(peer))} there, and {_shown(own.get(peer))} here"
        for peer in dict.fromkeys([*own, *its])
        if peer not in own or peer not in its or not is_same_address(own[peer], its[peer])
    }


def _shown(address: str | None) -> str:
    return address or "missing"


def _port(address: str) -> int | None:
    try:
        return split_address(address)[1]
    except ValueError:
        return None
