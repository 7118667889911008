"""``rmqha groups``: how far groups of consumers are, setting them back or forth, and deleting them."""

from typing import Final

import click

from rmqha.cli.lazy import LazyGroup

COMMANDS: Final = {
    "list": ("rmqha.cli.groups_list:list_groups", "List the groups, with their lag."),
    "describe": ("rmqha.cli.groups_describe:describe", "Show a group: its members, and its lag in each queue."),
    "reset": ("rmqha.cli.groups_reset:reset", "Have a group go on at another place."),
    "delete": ("rmqha.cli.groups_delete:delete", "Delete a group, with how far it is."),
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
  rmqha groups delete billing
""",
)
def groups() -> None:
    """List and show groups of consumers, set them back or forth, and delete them."""
