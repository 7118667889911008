"""``rmqha dledger dump``: the entries of a DLedger store, one JSON object a line."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqha.cli.errors import CliError

if TYPE_CHECKING:
    from rmqha.dledger.ledger_reader import LedgerReader

_SETTLES_S = 0.02
"""An entry that a running server is writing is whole after less."""


@click.command(
    epilog="""\b
Examples:
  rmqha dledger dump /data/dledger-n0 | head
  rmqha dledger dump /data/dledger-n0 --index 4711 --limit 1 --body
  rmqha dledger dump /data/dledger-n0 --data-store-path /disk1/data,/disk2/data

\b
Exit codes: 0 read to the end, 1 the log is corrupt at some place, or has no such index; 2 wrong usage.
"""
)
@click.argument("directory", metavar="DIR")
@click.option("-i", "--index", "start_index", type=click.IntRange(0), help="Begin with this entry.")
@click.option("-n", "--limit", type=click.IntRange(1), help="End after so many entries.")
@click.option("--body", "with_body", is_flag=True, help="Add the body as text, or as base64 if it is not UTF-8.")
@click.option(
    "--data-store-path", metavar="PATHS", help="Where the data files are, if not in DIR/data; a comma between several."
)
def dump(
    directory: str, *, start_index: int | None, limit: int | None, with_body: bool, data_store_path: str | None
) -> None:
    """Print the entries of DIR as JSON lines, in the order of the log.

    DIR is the directory dledger-ID of a member, or the one above if there is but one. The keys are: index term pos
    size magic channel chainCrc bodyCrc bodyLength bodySha256. The unused rest of a file is a line with blank pos size.

    The log ends where DLedger would find its end at its next start: entries that a follower of Java's has cut, and
    that nothing was written over, show again, as they do in DLedger. Whether an entry is committed, no file says.
    """
    from rmqha.cli.dledger_lines import as_json, record_line  # noqa: PLC0415 - not for --help

    reader = _reader(_ledger_directory(directory), data_store_path)
    begin = start_index or 0
    printed = 0
    for record in reader.records(begin):
        line = record_line(record, with_body=with_body)
        sys.stdout.write(as_json(line) + "\n")
        printed += "blank" not in line
        if printed == limit:
            return
    if start_index is not None and not printed:
        raise CliError(
            f"there is no entry of index {start_index} in {directory}", why=f"the last is {reader.end_index}"
        )
    if reader.leftover:
        click.echo(f"Note: the log ends before bytes that do not continue it: {reader.leftover}", err=True)


def _reader(root: Path, data_store_path: str | None) -> "LedgerReader":
    from rmqha.codec.dledger_properties import CHECK_POINT_FILE  # noqa: PLC0415
    from rmqha.dledger.ledger_reader import LedgerReader, read_checkpoint  # noqa: PLC0415
    from rmqha.store.os_disk import OsDisk  # noqa: PLC0415

    paths = [path for path in (data_store_path or str(root / "data")).split(",") if path]
    for path in paths:
        if not Path(path).is_dir():
            raise CliError(f"there is no directory {path}", hint="name those of dataStorePath with --data-store-path")
    disk = OsDisk()
    checkpoint = read_checkpoint(disk, str(root / CHECK_POINT_FILE))
    return LedgerReader(disk, paths, checkpoint=checkpoint, wait=lambda: time.sleep(_SETTLES_S))


def _ledger_directory(path: str) -> Path:
    """The directory of one member."""
    directory = Path(path)
    if not directory.is_dir():
        raise CliError(f"{path} is no directory", hint="name a member's directory dledger-ID, or the one above")
    members = sorted(entry for entry in directory.glob("dledger-*") if entry.is_dir())
    if len(members) > 1:
        raise CliError(f"there are {len(members)} members in {path}", hint=f"name one, such as {members[0]}")
    return members[0] if members else directory
