"""``rmqha log``: look into a store on disk, and cut it."""

from typing import Final

import click

from rmqha.cli.lazy import LazyGroup

COMMANDS: Final = {
    "dump": ("rmqha.cli.log_dump:dump", "Print messages as JSON lines."),
    "cut": ("rmqha.cli.log_cut:cut", "Give up the end of a log."),
    "verify": ("rmqha.cli.log_verify:verify", "Check every byte of the log; name the first bad one."),
}


@click.group(
    cls=LazyGroup,
    commands_at=COMMANDS,
    epilog="""\b
Examples:
  rmqha log verify /data/s
  rmqha log dump /data/s --topic orders --key 4711 --body
  rmqha log dump /data/s --since @-1h | jq .msgId

dump and verify only read, take no lock, and work on the store of a running broker, of RocketMQ's too.
""",
)
def log() -> None:
    """Look into a store on disk: dump its messages, verify it; and cut it, where a person must decide."""
