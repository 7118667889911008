"""``rmqha log verify``: is a store as it must be, as far as its own bytes can tell, and if not, where first."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from rmqha.cli.output import takes_unicode
from rmqha.exit_codes import EXIT_FAILED

if TYPE_CHECKING:
    from rmqha.store.log_verify import LogVerification, Problem
    from rmqha.store.queue_verify import QueueVerification


@click.command(
    epilog="""\b
Examples:
  rmqha log verify /data/s
  rmqha log verify /data/s --format json
  rmqha log verify /backup/commitlog --no-queues

\b
Exit codes: 0 everything is good, 1 something is not, 2 wrong usage.
"""
)
@click.argument("store")
@click.option(
    "--queues/--no-queues", default=None, help="Compare the consume queues with the log. [default: if there are any]"
)
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def verify(ctx: click.Context, store: str, *, queues: bool | None, output: str) -> None:
    """Check every record of STORE: sizes, places, topics, bodies, blanks, file names, queues. Only reads.

    A record's CRC covers its body. Of the rest, damage shows where lengths no longer add up, or where a queue says
    something else (tag, queue offset); in times, hosts, flags, keys and other properties it does not: to know that two
    copies are the same, compare their files.

    Works on stores of RocketMQ, of running brokers, and on copies. Bad places go to stdout, the first bad one
    first. Bytes at the very end that are no record are a bad place only when no broker is running on the store,
    as one that runs may be writing them.
    """
    from rmqha.cli.progress import progress  # noqa: PLC0415
    from rmqha.cli.store_place import (  # noqa: PLC0415
        commit_log_directory,
        deleted_queues,
        has_queues,
        is_in_use,
        member_directory,
        queue_directory,
    )
    from rmqha.store.known_end import known_end  # noqa: PLC0415
    from rmqha.store.log_verify import Problem, left_by_crash_from, verify_log  # noqa: PLC0415
    from rmqha.store.os_disk import OsDisk  # noqa: PLC0415
    from rmqha.store.queue_verify import verify_queues  # noqa: PLC0415

    directory = commit_log_directory(store)
    disk = OsDisk()
    in_use = is_in_use(store)
    known = known_end(disk, store, checkpoint_only=True)
    torn_from = None if in_use else left_by_crash_from(disk, store)
    with progress("verifying", unit="segments") as advance:
        found = verify_log(disk, directory, torn_from=torn_from, on_segment=lambda _: advance(1))
    if queues is None:
        queues = has_queues(store)
    member = member_directory(store)
    in_queues = None
    if queues:
        goes_on, deleted = member is not None, deleted_queues(disk, store)
        in_queues = verify_queues(disk, directory, queue_directory(store), goes_on=goes_on, deleted=deleted)
    if member is not None:
        click.echo(
            f"Note: only the old commitlog is checked; its group's entries: 'rmqha dledger dump {member}'", err=True
        )
    problems = [*found.problems, *(in_queues.problems if in_queues else ())]
    if known.offset > found.end_offset and member is None:
        reason = f"the log ends here, but {known.who} up to {known.offset}: a segment is missing, or was cut"
        problems.insert(len(found.problems), Problem(directory, 0, found.end_offset, reason))
    if found.tail is not None and not _is_unwritten(found.tail) and not in_use:
        problems.append(found.tail)
    render = _as_json if output == "json" else _as_text
    click.echo(render(found, in_queues, problems))
    if problems:
        ctx.exit(EXIT_FAILED)


def _is_unwritten(tail: "Problem") -> bool:
    """Zeros behind the end are what a segment made in advance is full of."""
    return tail.reason.startswith("zeros")


def _as_text(found: "LogVerification", queues: "QueueVerification | None", problems: "list[Problem]") -> str:
    lines = [f"bad: {problem}" for problem in problems]
    if queues is not None:
        lines.append(
            f"queues: {queues.queues:,}, units that agree: {queues.units:,}, not dispatched: {queues.behind:,}"
        )
    else:
        lines.append("queues: not compared")
    lines.append(
        f"{'bad' if problems else 'good'}: {found.records:,} records and {found.blanks:,} blanks in "
        f"{found.segments:,} files, offsets {found.min_offset:,} to {found.end_offset:,}"
    )
    if found.tail is not None and found.tail not in problems and not _is_unwritten(found.tail):
        lines.append(f"end: {found.tail}")
    return "\n".join(lines)


def _as_json(found: "LogVerification", queues: "QueueVerification | None", problems: "list[Problem]") -> str:
    document: dict[str, Any] = asdict(found) | {
        "good": not problems,
        "problems": [asdict(problem) for problem in problems],
    }
    if queues is not None:
        document["queues"] = {"queues": queues.queues, "units": queues.units, "behind": queues.behind}
    return json.dumps(document, ensure_ascii=not takes_unicode())
