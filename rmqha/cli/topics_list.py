"""``rmqha topics list``."""

from typing import TYPE_CHECKING

import click

from rmqha.cli.options import cluster_options
from rmqha.exit_codes import EXIT_UNREACHABLE

if TYPE_CHECKING:
    from rmqha.broker.tables.topic_config import TopicConfig
    from rmqha.cli.ask import BrokerConnection
    from rmqha.cli.named_brokers import NamedBroker


@click.command(
    name="list",
    epilog="""\b
Examples:
  rmqha topics list
  rmqha topics list --all --format json | jq -r .topic
""",
)
@cluster_options
@click.option("--all", "with_all", is_flag=True, help="Also RocketMQ's own topics, and those of groups (retry, DLQ).")
@click.pass_context
def list_topics(
    ctx: click.Context, *, addresses: tuple[str, ...], output: str, timeout_s: float, with_all: bool
) -> None:
    """List the topics of each broker, with their queues and permissions."""
    from rmqha.cli.broker_tables import system_topics, topic_configs  # noqa: PLC0415 - not for --help
    from rmqha.cli.named_brokers import ask_each, named_brokers  # noqa: PLC0415
    from rmqha.cli.output import echo_json  # noqa: PLC0415
    from rmqha.cli.table import render_table  # noqa: PLC0415
    from rmqha.cli.topic_text import is_of_a_group, perm_text  # noqa: PLC0415

    def ask(connection: "BrokerConnection", _broker: "NamedBroker") -> "list[TopicConfig]":
        topics, hidden = topic_configs(connection), set[str]() if with_all else system_topics(connection)
        return [one for name, one in topics.items() if with_all or not (name in hidden or is_of_a_group(name))]

    answers = ask_each(
        named_brokers(addresses, timeout_s=timeout_s, may_be_away=True).leading, ask, timeout_s=timeout_s
    )
    rows = sorted(
        (one.topic_name, broker.name, one.write_queue_nums, one.read_queue_nums, perm_text(one.perm))
        for broker, topics in answers.found
        for one in topics
    )
    if output == "json":
        for row in rows:
            echo_json(dict(zip(("topic", "broker", "writeQueues", "readQueues", "perm"), row, strict=True)))
    else:
        click.echo(render_table(("TOPIC", "BROKER", "WRITE QUEUES", "READ QUEUES", "PERM"), rows))
    if answers.is_partial:
        ctx.exit(EXIT_UNREACHABLE)
