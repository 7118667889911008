"""``rmqha message``: single messages of running brokers."""

from typing import Final

import click

from rmqha.cli.lazy import LazyGroup

COMMANDS: Final = {
    "get": ("rmqha.cli.message_get:get", "Show a message: by its id, its key, its time, or its place in the log.")
}


@click.group(
    cls=LazyGroup,
    commands_at=COMMANDS,
    epilog="""\b
Examples:
  rmqha message get 7F00000100002A9F0000000000000000
  rmqha message get --topic orders --key 4711

'rmqha log dump' looks into the store of a broker that does not run.
""",
)
def message() -> None:
    """Find a message by its id, its key, its time or its place."""
