"""``rmqha dledger leadershipTransfer``: another member is to lead."""

from typing import TYPE_CHECKING, Final

import click

from rmqha.cli.dledger_options import ask_group, group_options
from rmqha.cli.errors import CliError

if TYPE_CHECKING:
    from rmqha.dledger.dledger_client import DLedgerClient

_TAKES_OVER_WITHIN_S: Final = 3.0
_ASKS_AGAIN_AFTER_S: Final = 0.05


@click.command(
    "leadershipTransfer",
    epilog="""\b
Examples:
  rmqha dledger transfer -p 'n0-10.0.0.1:20911;n1-10.0.0.2:20911;n2-10.0.0.3:20911' -t n1

\b
Exit codes: 0 that member leads now, 1 it does not, 2 wrong usage, 3 no member can be reached.
""",
)
@group_options
@click.option("-t", "--transfereeId", "transferee_id", metavar="ID", required=True, help="The member that is to lead.")
@click.option("-l", "--leader", "leader_id", metavar="ID", help="Who leads now, if that is not to be found out.")
@click.option("--term", type=click.IntRange(0), help="The leader's term, if that is not to be found out.")
def leadership_transfer(
    *,
    group: str,
    peers: dict[str, str],
    transferee_id: str,
    leader_id: str | None,
    term: int | None,
) -> None:
    """Hand the leadership of a group over to one of its members.

    leadershipTransfer is DLedger's name of it, transfer a short one.

    Prints the leader's answer as JSON: its code. Meanwhile, for some milliseconds, the group takes no appends.
    """
    from rmqha.cli.dledger_lines import as_json, code_name  # noqa: PLC0415 - not for --help

    code, leads = ask_group(
        group, peers, lambda client: hand_over(client, transferee_id, leader_id=leader_id, term=term)
    )
    click.echo(as_json({"code": code}))
    if not leads:
        why = f"the leader's answer is {code_name(code)}"
        hint = "see rmqha dledger status: does it run, and keep up?"
        raise CliError(f"{transferee_id} does not lead", why=why, hint=hint)


async def hand_over(
    client: "DLedgerClient", transferee_id: str, *, leader_id: str | None, term: int | None
) -> tuple[int, bool]:
    """The leader's answer, and whether the transferee leads afterwards.

    Raises:
        CliError: nobody leads, or not the one named, or the term cannot be found out.
    """
    from rmqha.dledger.dledger_exception import DLedgerResponseCode  # noqa: PLC0415 - not for --help
    from rmqha.errors import RemotingError, RemotingTimeoutError  # noqa: PLC0415

    leader_id = leader_id if leader_id in client.peers else await _leader(client, leader_id)
    if leader_id == transferee_id:
        return int(DLedgerResponseCode.SUCCESS), await _leads(client, transferee_id)
    term = await _term(client, leader_id) if term is None else term
    try:
        code = (await client.transfer_leadership(leader_id, transferee_id, term=term)).code
    except RemotingTimeoutError:  # DLedger's leader does not answer if it has stepped down meanwhile
        code = DLedgerResponseCode.TIMEOUT
    except RemotingError:
        code = DLedgerResponseCode.NETWORK_ERROR
    is_refused = code not in {
        DLedgerResponseCode.SUCCESS,
        DLedgerResponseCode.TIMEOUT,
        DLedgerResponseCode.NETWORK_ERROR,
    }
    return int(code), not is_refused and await _leads(client, transferee_id)


async def _leader(client: "DLedgerClient", named: str | None) -> str:
    found = await client.find_leader()
    if named in client.peers:  # another member named it
        return str(named)
    if named is not None:
        raise click.UsageError(f"--leader {named} is no member of the group: {', '.join(client.peers)} are.")
    if found is None:
        raise CliError(f"nobody leads the group {client.group}", hint="see rmqha dledger status")
    return found


async def _term(client: "DLedgerClient", leader_id: str) -> int:
    told = await client.metadata(leader_id)
    term = told.rmqha_status.term if told.rmqha_status is not None else await client.term_of(leader_id)
    if term is None:
        raise CliError(f"{leader_id} does not tell its term", hint="name it with --term")
    return term


async def _leads(client: "DLedgerClient", member_id: str) -> bool:
    """Whether it says so itself, soon."""
    import trio  # noqa: PLC0415 - not for --help

    from rmqha.errors import RmqhaError  # noqa: PLC0415

    if member_id not in client.peers:
        return False
    with trio.move_on_after(_TAKES_OVER_WITHIN_S):
        while True:
            try:
                if (await client.metadata(member_id)).leader_id == member_id:
                    return True
            except RmqhaError:
                return False
            await trio.sleep(_ASKS_AGAIN_AFTER_S)
    return False
