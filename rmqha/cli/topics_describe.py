"""``rmqha topics describe``."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from rmqha.cli.errors import CliError
from rmqha.cli.options import cluster_options
from rmqha.exit_codes import EXIT_UNREACHABLE

if TYPE_CHECKING:
    from rmqha.broker.tables.topic_config import TopicConfig
    from rmqha.cli.ask import BrokerConnection
    from rmqha.cli.broker_tables import QueueStats
    from rmqha.cli.named_brokers import NamedBroker

    Described = tuple[TopicConfig | None, list[QueueStats], list[str]]


@click.command(
    epilog="""\b
Examples:
  rmqha topics describe orders
  rmqha topics describe orders --format json | jq .queues

\b
Exit codes: 0 found, 1 no broker has it, 2 wrong usage, 3 a broker is unreachable.
"""
)
@click.argument("topic")
@cluster_options
@click.pass_context
def describe(ctx: click.Context, topic: str, *, addresses: tuple[str, ...], output: str, timeout_s: float) -> None:
    """Show TOPIC: its queues on each broker, where they begin and end, and the groups that consume it."""
    from rmqha.cli.broker_tables import groups_of_topic, topic_configs, topic_stats  # noqa: PLC0415 - not for --help
    from rmqha.cli.named_brokers import ask_each, named_brokers  # noqa: PLC0415
    from rmqha.cli.output import echo_json  # noqa: PLC0415

    def ask(connection: "BrokerConnection", _broker: "NamedBroker") -> "Described":
        config = topic_configs(connection).get(topic)
        if config is None:
            return None, [], []
        return config, topic_stats(connection, topic), groups_of_topic(connection, topic)

    answers = ask_each(
        named_brokers(addresses, timeout_s=timeout_s, may_be_away=True).leading, ask, timeout_s=timeout_s
    )
    found = {
        broker.name: (config, queues, groups)
        for broker, (config, queues, groups) in answers.found
        if config is not None
    }
    if not found:
        raise CliError(
            f"topic {topic} does not exist",
            why=f"not on {', '.join(broker.name for broker, _ in answers.found)}",
            hint="'rmqha topics list' shows those that do; 'rmqha topics create' makes one",
        )
    groups = sorted({group for _, _, of_broker in found.values() for group in of_broker})
    if output == "json":
        echo_json(_document(topic, found, groups))
    else:
        click.echo(_text(topic, found, groups))
    if answers.is_partial:
        ctx.exit(EXIT_UNREACHABLE)


def _document(
    topic: str, found: "dict[str, tuple[TopicConfig, list[QueueStats], list[str]]]", groups: list[str]
) -> Any:
    return {
        "topic": topic,
        "brokers": [{"broker": name} | config.to_json() for name, (config, _, _) in found.items()],
        "queues": [{"broker": name} | asdict(queue) for name, (_, queues, _) in found.items() for queue in queues],
        "groups": groups,
    }


def _text(topic: str, found: "dict[str, tuple[TopicConfig, list[QueueStats], list[str]]]", groups: list[str]) -> str:
    from rmqha.cli.table import render_table, time_text  # noqa: PLC0415
    from rmqha.cli.topic_text import perm_text  # noqa: PLC0415
    from rmqha.logs import escaped  # noqa: PLC0415

    brokers = render_table(
        ("BROKER", "WRITE QUEUES", "READ QUEUES", "PERM", "MESSAGES"),
        [
            (
                name,
                config.write_queue_nums,
                config.read_queue_nums,
                perm_text(config.perm),
                sum(queue.end - queue.first for queue in queues),
            )
            for name, (config, queues, _) in found.items()
        ],
    )
    queues = render_table(
        ("BROKER", "QUEUE", "FIRST", "END", "MESSAGES", "LAST STORED"),
        [
            (name, one.queue_id, one.first, one.end, one.end - one.first, time_text(one.last_stored_ms))
            for name, (_, queues, _) in found.items()
            for one in queues
        ],
    )
    consumed_by = ", ".join(map(escaped, groups)) or "no group"
    return f"topic {escaped(topic)}, consumed by {consumed_by}\n\n{brokers}\n\n{queues}"
