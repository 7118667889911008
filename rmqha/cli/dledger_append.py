"""``rmqha dledger append``: entries in, a line for each answer out."""

import sys
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import repeat
from typing import TYPE_CHECKING

import click

from rmqha.cli.dledger_options import ask_group, group_options
from rmqha.exit_codes import EXIT_FAILED

if TYPE_CHECKING:
    from rmqha.codec.dledger_wire import AppendEntryResponse
    from rmqha.dledger.dledger_client import DLedgerClient

_STDIN = "-"


@click.command(
    epilog="""\b
Examples:
  rmqha dledger append -p 'n0-10.0.0.1:20911;n1-10.0.0.2:20911;n2-10.0.0.3:20911' -d Hello
  seq 1000 | rmqha dledger append --group g1 --data -

\b
Exit codes: 0 all are appended (code 200), 1 some are not, 2 wrong usage, 3 no member can be reached.
"""
)
@group_options
@click.option("-d", "--data", default="Hello", show_default=True,
              help="The entry's body; - appends each line of stdin that is not empty.")  # fmt: skip
@click.option("-c", "--count", type=click.IntRange(1), default=1, show_default=True, help="Append it so many times.")
@click.pass_context
def append(ctx: click.Context, /, *, group: str, peers: dict[str, str], data: str, count: int) -> None:
    """Append entries to a group's log, one after another.

    Prints a JSON line for each: code, index, term, pos, leaderId. With any code but 200 the entry is not known to be
    appended; with 300, 302, 501 and 502 it may be there all the same. 301: nobody leads. 400: another group is meant
    (--group). 'rmqha dledger status' says more.
    """
    from rmqha.cli.dledger_lines import append_line, as_json  # noqa: PLC0415 - not for --help

    if data == _STDIN and count != 1:
        raise click.UsageError("--count is for a body given by --data: of stdin each line is appended once.")
    codes = set()

    def print_answer(answer: "AppendEntryResponse") -> None:
        codes.add(int(answer.code))
        click.echo(as_json(append_line(answer)))

    ask_group(group, peers, lambda client: append_all(client, _bodies(data, count), print_answer))
    if codes - {200}:
        ctx.exit(EXIT_FAILED)


def _bodies(data: str, count: int) -> AsyncIterator[Iterable[bytes]]:
    from rmqha.cli.sources import all_of, lines  # noqa: PLC0415

    if data == _STDIN:
        return lines(sys.stdin.buffer)
    return all_of(repeat(data.encode(errors="surrogateescape"), count))


async def append_all(
    client: "DLedgerClient",
    source: AsyncIterator[Iterable[bytes]],
    on_answer: "Callable[[AppendEntryResponse], None]",
) -> None:
    """Append one after another, whatever becomes of them; ends early only if no member can be reached."""
    async for bodies in source:
        for body in bodies:
            on_answer(await client.append(body))
