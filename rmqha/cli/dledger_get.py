"""``rmqha dledger get``: committed entries, as the leader answers."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from rmqha.cli.dledger_options import ask_group, group_options
from rmqha.cli.errors import CliError

if TYPE_CHECKING:
    from rmqha.codec.dledger_entry import DLedgerEntry
    from rmqha.dledger.dledger_client import DLedgerClient

_HINTS: Final = {
    301: "nobody leads: see rmqha dledger status",
    404: "nobody leads, or not for sure: see rmqha dledger status",
    410: "the group has committed no such entry",
    419: "it is deleted: the log begins later",
}


@click.command(
    epilog="""\b
Examples:
  rmqha dledger get -p 'n0-10.0.0.1:20911;n1-10.0.0.2:20911;n2-10.0.0.3:20911' --index 4711
  rmqha dledger get --group g1 --index 0 --count 100 | jq -r .body

\b
Exit codes: 0 all are printed, 1 one cannot be read, 2 wrong usage, 3 no member can be reached.
"""
)
@group_options
@click.option("-i", "--index", type=click.IntRange(0), default=0, show_default=True, help="The first entry's.")
@click.option("-c", "--count", type=click.IntRange(1), default=1, show_default=True, help="Read so many.")
def get(group: str, peers: dict[str, str], index: int, count: int) -> None:
    """Read entries from the leader of a group.

    Prints each as a JSON line: what rmqha dledger dump prints, and its body as text, or as base64 if it is not UTF-8.
    A leader of Java's also answers what is not committed yet; one of rmqha's does not.
    """
    from rmqha.cli.dledger_lines import as_json, entry_line  # noqa: PLC0415 - not for --help

    def print_entry(entry: "DLedgerEntry") -> None:
        click.echo(as_json(entry_line(entry)))

    ask_group(group, peers, lambda client: get_entries(client, range(index, index + count), print_entry))


async def get_entries(client: "DLedgerClient", indexes: range, on_entry: "Callable[[DLedgerEntry], None]") -> None:
    """Read them one after another.

    Raises:
        CliError: one cannot be read.
    """
    from rmqha.cli.dledger_lines import code_name  # noqa: PLC0415

    for index in indexes:
        answer = await client.get(index)
        if not answer.entries:
            why, hint = code_name(answer.code), _HINTS.get(answer.code, "")
            raise CliError(f"entry {index} of the group {client.group} cannot be read", why=why, hint=hint)
        on_entry(answer.entries[0])
