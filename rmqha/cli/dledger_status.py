"""``rmqha dledger status``: ask every member of a group how it is."""

import time
from typing import TYPE_CHECKING, Any, Final

import click

from rmqha.cli.dledger_options import GroupUnreachableError, ask_group, group_options
from rmqha.cli.errors import CliError
from rmqha.cli.options import SECONDS
from rmqha.exit_codes import EXIT_FAILED

if TYPE_CHECKING:
    from rmqha.cli.verdict import Verdict
    from rmqha.codec.dledger_wire import MemberStatus, MetadataResponse
    from rmqha.dledger.dledger_client import DLedgerClient

_ASK_AGAIN_AFTER_S: Final = 0.2


@click.command(
    epilog="""\b
Examples:
  rmqha dledger status -p 'n0-10.0.0.1:20911;n1-10.0.0.2:20911;n2-10.0.0.3:20911'
  rmqha dledger status --group g1 --format json | jq -r .leader
  rmqha dledger status --group g1 --wait in-sync && restart-the-next-member

\b
Exit codes: 0 the group takes appends, 1 it does not, or not in time what --wait waits for, 2 wrong usage, 3 no member
can be reached.
"""
)
@group_options
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--wait", type=click.Choice(["in-sync"]),
              help="Until all members answer, can write and lack little, or --timeout.")  # fmt: skip
@click.option("--timeout", "timeout_s", type=SECONDS, default=60.0, show_default=True,
              metavar="SECONDS", help="For --wait.")  # fmt: skip
@click.pass_context
def status(
    ctx: click.Context,
    /,
    *,
    group: str,
    peers: dict[str, str],
    output: str,
    wait: str | None,
    timeout_s: float,
) -> None:
    """Say who leads a group, and how its members are.

    Members of Java's tell who leads, and in which term; how far their logs go they do not tell.
    """
    from rmqha.cli.dledger_health import leader_of, render_group  # noqa: PLC0415 - not for --help
    from rmqha.cli.dledger_lines import as_json  # noqa: PLC0415

    if wait is None:
        members, verdict = _ask(group, peers)
    else:
        members, verdict = _wait_in_sync(group, peers, timeout_s=timeout_s)
    if output == "json":
        leader = leader_of(members) or {"id": None, "term": None}
        facts = {"group": group, "leader": leader["id"], "leaderId": leader["id"], "term": leader["term"]}
        judged = {"verdict": verdict.level, "summary": verdict.summary, "reasons": list(verdict.reasons)}
        click.echo(as_json(judged | facts | {"members": members}))
    else:
        click.echo(render_group(members, verdict))
    if verdict.level == "failed":
        ctx.exit(EXIT_FAILED)


def _ask(group: str, peers: dict[str, str]) -> tuple[list[dict[str, Any]], "Verdict"]:
    """The facts of all members, and what they come to. Raises GroupUnreachableError: none answers."""
    from rmqha.cli.dledger_health import judge_group  # noqa: PLC0415 - not for --help

    members = ask_group(group, peers, ask_members)
    if not any(member["alive"] for member in members):
        raise GroupUnreachableError(group, "; ".join(str(member["error"]) for member in members))
    return members, judge_group(group, members)


def _wait_in_sync(group: str, peers: dict[str, str], *, timeout_s: float) -> tuple[list[dict[str, Any]], "Verdict"]:
    """Ask until all is well; members that start may be unreachable meanwhile.

    Raises:
        GroupUnreachableError: no member answered at the end.
        CliError: some did, and not all was well in time.
    """
    from rmqha.logs import escaped  # noqa: PLC0415 - not for --help

    deadline = time.monotonic() + timeout_s
    while True:
        try:
            members, verdict = _ask(group, peers)
        except GroupUnreachableError:
            if time.monotonic() >= deadline:
                raise
        else:
            if verdict.in_sync:
                return members, verdict
            if time.monotonic() >= deadline:
                why = escaped("; ".join(verdict.reasons) or verdict.summary)
                raise CliError(f"the group {group} is not in sync within {timeout_s:g} s", why=why)
        time.sleep(_ASK_AGAIN_AFTER_S)


async def ask_members(client: "DLedgerClient") -> list[dict[str, Any]]:
    """The facts of all members (see :mod:`rmqha.cli.dledger_health`): of those given, and those that they name."""
    import trio  # noqa: PLC0415 - not for --help

    facts: dict[str, dict[str, Any]] = {}

    async def ask(member_id: str) -> None:
        facts[member_id] = await _facts(client, member_id)

    while unasked := [member_id for member_id in client.peers if member_id not in facts]:
        async with trio.open_nursery() as nursery:
            for member_id in unasked:
                nursery.start_soon(ask, member_id)
    return [facts[member_id] for member_id in client.peers]


async def _facts(client: "DLedgerClient", member_id: str) -> dict[str, Any]:
    from rmqha.cli.dledger_lines import code_name  # noqa: PLC0415
    from rmqha.errors import RmqhaError  # noqa: PLC0415

    error, told, term = None, None, None
    try:
        told = await client.metadata(member_id)
        term = None if told.rmqha_status is not None else await client.term_of(member_id)
    except RmqhaError as raised:
        error = str(raised)
    named = {"id": member_id, "address": client.peers[member_id], "alive": told is not None}
    if told is not None and told.code != 200:
        error = f"it answers {code_name(told.code)}: it is of another group, or has another id"
        told = None
    addresses = None if told is None or not told.peers else dict(sorted(told.peers.items()))
    peers = None if addresses is None else [*addresses]
    return named | {"error": error, "peers": peers, "addresses": addresses} | _told(member_id, told, term)


def _told(member_id: str, answer: "MetadataResponse | None", term: int | None) -> dict[str, Any]:
    status: MemberStatus | None = None if answer is None else answer.rmqha_status
    if answer is not None and status is not None:
        return {
            "role": status.role,
            "leaderId": answer.leader_id,
            "term": status.term,
            "beginIndex": status.begin_index,
            "endIndex": status.end_index,
            "committedIndex": status.committed_index,
            "flushedIndex": status.flushed_index,
            "transferee": status.transferee,
            "writeError": status.write_error,
            "version": status.version,
            "leaderForS": status.leader_for_s,
            "uncommittedForS": status.uncommitted_for_s,
            "deletedEarlyS": status.deleted_early_s,
            "formerMembers": status.former_members,
            "notToLead": status.not_to_lead,
            "rivals": status.rivals,
            "damage": status.damage,
        }
    leader_id = None if answer is None else answer.leader_id
    role = None if answer is None else {None: "CANDIDATE", member_id: "LEADER"}.get(leader_id, "FOLLOWER")
    indexes = ("beginIndex", "endIndex", "committedIndex", "flushedIndex")
    others = ("transferee", "writeError", "version", "leaderForS", "uncommittedForS", "deletedEarlyS", "formerMembers")
    nothing = dict.fromkeys((*indexes, *others, "notToLead", "rivals", "damage"))
    return {"role": role, "leaderId": leader_id, "term": term} | nothing
