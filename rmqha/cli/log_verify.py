"""``rmqha log verify``: is a store as it must be, as far as its own bytes can tell, and if not, where first."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqha.cli.output import takes_unicode
from rmqha.errors import StoreReadError
from rmqha.exit_codes import EXIT_FAILED

if TYPE_CHECKING:
    from rmqha.cli.verified import Verified
    from rmqha.dledger.ledger_verify import LedgerVerification


@click.command(
    epilog="""\b
Examples:
  rmqha log verify /data/s
  rmqha log verify -c /etc/rmqha/master.conf
  rmqha log verify /data/s --format json
  rmqha log verify /backup/commitlog --no-queues
  rmqha log verify /data/n0/dledger-n0

\b
Exit codes: 0 everything is good, 1 something is not, 2 wrong usage, there is no log, or this user may not read it.
"""
)
@click.argument("store", required=False)
@click.option("-c", "--config", "path", type=click.Path(path_type=Path),
              help="The broker.conf that says where the store is, and its logs; instead of STORE.")  # fmt: skip
@click.option(
    "--queues/--no-queues", default=None, help="Compare the consume queues with the log. [default: if there are any]"
)
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def verify(ctx: click.Context, store: str | None, *, path: Path | None, queues: bool | None, output: str) -> None:
    """Check every record of STORE: sizes, places, topics, bodies, blanks, file names, queues. Only reads.

    Of a member of a DLedger group the entries are checked, too, and the messages in them; the index of the entries is
    not. STORE may be its directory dledger-ID, without queues.

    A record's CRC covers its body. Of the rest, damage shows where lengths no longer add up, or where a queue says
    something else (tag, queue offset); in times, hosts, flags, keys and other properties it does not: to know that two
    copies are the same, compare their files.

    Works on stores of RocketMQ, of running brokers, and on copies. Bad places go to stdout, the first bad one
    first. Bytes at the very end that are no record are a bad place only when no broker is running on the store,
    as one that runs may be writing them.
    """
    from rmqha.cli.log_places import not_readable, places_of_config, places_of_store  # noqa: PLC0415 - not for --help
    from rmqha.cli.store_place import member_directory  # noqa: PLC0415
    from rmqha.cli.verified import verify_logs  # noqa: PLC0415

    if (store is None) == (path is None):
        raise click.UsageError("name a STORE, or its broker.conf with --config: one of them")
    root = store or f"the store of {path}"
    try:
        places = places_of_config(path) if path is not None else places_of_store(str(store))
        root = places.root
        verified = verify_logs(places, queues=queues)
    except (StoreReadError, PermissionError) as error:
        raise not_readable(error, root) from error
    if not places.member and (member := member_directory(places.root)):
        click.echo(f"Note: only the old commitlog is checked; its group's entries: {Path(member).parent}", err=True)
    render = _as_json if output == "json" else _as_text
    click.echo(render(verified))
    if verified.problems:
        ctx.exit(EXIT_FAILED)


def _as_text(found: "Verified") -> str:
    lines = [f"bad: {problem}" for problem in found.problems]
    queues, entries, log = found.queues, found.entries, found.log
    if queues is not None:
        lines.append(
            f"queues: {queues.queues:,}, units that agree: {queues.units:,}, not dispatched: {queues.behind:,}"
        )
    else:
        lines.append("queues: not compared")
    if entries is not None:
        lines.append(f"entries: {entries.records:,} in {entries.segments:,} files, {_indexes(entries)}")
    lines.append(
        f"{'bad' if found.problems else 'good'}: {log.records:,} records and {log.blanks:,} blanks in "
        f"{log.segments:,} files, offsets {log.min_offset:,} to {log.end_offset:,}"
    )
    return "\n".join([*lines, *(f"end: {end}" for end in found.ends)])


def _indexes(entries: "LedgerVerification") -> str:
    if entries.begin_index < 0:
        return "none"
    return f"indexes {entries.begin_index:,} to {entries.end_index:,}"


def _as_json(found: "Verified") -> str:
    log, entries, queues = found.log, found.entries, found.queues
    document: dict[str, Any] = {name: value for name, value in asdict(log).items() if not name.endswith("_index")}
    document |= {"good": not found.problems, "problems": [asdict(problem) for problem in found.problems]}
    if entries is not None:
        indexes = {"begin_index": entries.begin_index, "end_index": entries.end_index}
        document["entries"] = {"entries": entries.records, "files": entries.segments} | indexes
    if queues is not None:
        document["queues"] = {"queues": queues.queues, "units": queues.units, "behind": queues.behind}
    return json.dumps(document, ensure_ascii=not takes_unicode())
