"""``rmqha dledger``: DLedger groups and their stores."""

from typing import Final

import click

from rmqha.cli.lazy import LazyGroup

COMMANDS: Final = {
    "server": ("rmqha.cli.dledger_server:server", "Start a member of a group."),
    "start": ("rmqha.cli.dledger_server:server", "Another name of server."),
    "append": ("rmqha.cli.dledger_append:append", "Append entries to a group's log."),
    "get": ("rmqha.cli.dledger_get:get", "Read entries from a group's leader."),
    "status": ("rmqha.cli.dledger_status:status", "Say who leads a group, and how its members are."),
    "leadershipTransfer": ("rmqha.cli.dledger_transfer:leadership_transfer", "Hand leadership over to a member."),
    "transfer": ("rmqha.cli.dledger_transfer:leadership_transfer", "A short name of leadershipTransfer."),
    "dump": ("rmqha.cli.dledger_dump:dump", "Print the entries of a store as JSON lines."),
}


@click.group(
    cls=LazyGroup,
    commands_at=COMMANDS,
    epilog="""\b
Examples:
  rmqha dledger status -g g1 -p 'n0-10.0.0.1:20911;n1-10.0.0.2:20911;n2-10.0.0.3:20911'
  rmqha dledger append -g g1 -p n0-10.0.0.1:20911 -d Hello
  rmqha dledger transfer -g g1 -p n0-10.0.0.1:20911 -t n1
  rmqha dledger dump /data/dledger-n0 | head

Of --peers one member that answers is enough: it names the others. The commands work on groups of Java's, too; dump
reads the store of a running server.
""",
)
def dledger() -> None:
    """Ask a DLedger group (a Raft log), or look into a member's store: RocketMQ's of enableDLegerCommitLog, too."""
