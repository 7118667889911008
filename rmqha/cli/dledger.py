"""``rmqha dledger``: DLedger groups and their stores."""

from typing import Final

import click

from rmqha.cli.lazy import LazyGroup

COMMANDS: Final = {
    "dump": ("rmqha.cli.dledger_dump:dump", "Print the entries of a store as JSON lines."),
}


@click.group(
    cls=LazyGroup,
    commands_at=COMMANDS,
    epilog="""\b
Examples:
  rmqha dledger dump /data/dledger-n0 | head
  rmqha dledger dump /data/dledger-n0 --index 4711 --limit 1 --body

dump only reads, takes no lock, and works on the store of a running server, of RocketMQ's too.
""",
)
def dledger() -> None:
    """Look into the store of a DLedger member: a Raft log, RocketMQ's of enableDLegerCommitLog, too."""
