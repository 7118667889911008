"""``rmqha groups``: how far groups of consumers are, and setting them back or forth."""

from typing import Final

import click

from rmqha.cli.lazy import LazyGroup

COMMANDS: Final = {
    "list": ("rmqha.cli.groups_list:list_groups", "List the groups, with their lag."),
    "describe": ("rmqha.cli.groups_describe:describe", "Show a group: its members, and its lag in each queue."),
    "reset": ("rmqha.cli.groups_reset:reset", "Have a group go on at another place."),
}


@click.group(
    cls=LazyGroup,
    commands_at=COMMANDS,
    epilog="""\b
Examples:
  rmqha groups list
  rmqha groups describe billing --broker namesrv-host:9876
  rmqha groups reset billing --topic orders --to @-1h
  rmqha groups reset billing --topic orders --to @-1h --execute
""",
)
def groups() -> None:
    """List and show groups of consumers, and set them back or forth."""
