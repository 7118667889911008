"""``rmqha topics``: what topics there are, and changing them."""

from typing import Final

import click

from rmqha.cli.lazy import LazyGroup

COMMANDS: Final = {
    "list": ("rmqha.cli.topics_list:list_topics", "List the topics."),
    "describe": ("rmqha.cli.topics_describe:describe", "Show a topic: its queues, their ends, who consumes it."),
    "create": ("rmqha.cli.topics_change:create", "Make a topic."),
    "update": ("rmqha.cli.topics_change:update", "Change a topic's queues or permission."),
    "delete": ("rmqha.cli.topics_delete:delete", "Delete a topic with its messages."),
}


@click.group(
    cls=LazyGroup,
    commands_at=COMMANDS,
    epilog="""\b
Examples:
  rmqha topics list
  rmqha topics describe orders --broker namesrv-host:9876
  rmqha topics create orders --queues 16
  rmqha topics update orders --perm r
  rmqha topics delete orders --yes

A topic is changed on each broker that is named, or that a named name server knows as a master.
""",
)
def topics() -> None:
    """List, show, make, change and delete topics."""
