"""``rmqha topics create`` and ``update``: one request, which makes a topic or changes it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from rmqha.cli.errors import CliError
from rmqha.cli.options import cluster_options
from rmqha.exit_codes import EXIT_UNREACHABLE

if TYPE_CHECKING:
    from rmqha.broker.tables.topic_config import TopicConfig
    from rmqha.cli.ask import BrokerConnection
    from rmqha.cli.named_brokers import NamedBroker

    Wanted = Callable[[TopicConfig | None, str], TopicConfig]
"""Of what a broker knows of a topic, and the broker's name, what the topic is to be."""

_QUEUES: Final = click.IntRange(1, 65_536)
_PERMS: Final = click.Choice(["rw", "r", "w"])


@click.command(
    epilog="""\b
Examples:
  rmqha topics create orders
  rmqha topics create orders --queues 16 --broker namesrv-host:9876

\b
Exit codes: 0 made on each broker, 1 refused, or it is there already, 2 wrong usage, 3 a broker is unreachable.
"""
)
@click.argument("topic")
@cluster_options
@click.option("--queues", type=_QUEUES, default=8, show_default=True, help="On each broker.")
@click.option("--perm", type=_PERMS, default="rw", show_default=True, help="r: read, w: write.")
@click.pass_context
def create(
    ctx: click.Context, topic: str, *, addresses: tuple[str, ...], output: str, timeout_s: float, queues: int, perm: str
) -> None:
    """Make TOPIC on each broker, durably. It must not be there yet."""

    def wanted(known: "TopicConfig | None", broker: str) -> "TopicConfig":
        from rmqha.broker.tables.topic_config import TopicConfig  # noqa: PLC0415 - not for --help
        from rmqha.cli.topic_text import PERMS  # noqa: PLC0415

        if known is not None:
            raise CliError(
                f"topic {topic} exists on {broker} already",
                why=_numbers(known),
                hint="'rmqha topics update' changes it; name only the brokers that do not have it to make it there",
            )
        return TopicConfig(topic, queues, queues, PERMS[perm])

    _change(ctx, topic, wanted, addresses=addresses, output=output, timeout_s=timeout_s)


@click.command(
    epilog="""\b
Examples:
  rmqha topics update orders --queues 16
  rmqha topics update orders --perm r          producers leave, consumers read what is left
  rmqha topics update orders --write-queues 4  before fewer queues are read: let them be consumed

\b
Exit codes: 0 changed on each broker, 1 refused, or it is not there, 2 wrong usage, 3 a broker is unreachable.
"""
)
@click.argument("topic")
@cluster_options
@click.option("--queues", type=_QUEUES, help="To write and to read, on each broker.")
@click.option("--write-queues", type=_QUEUES, help="To write.")
@click.option("--read-queues", type=_QUEUES, help="To read: messages in queues beyond it are seen no more.")
@click.option("--perm", type=_PERMS, help="r: read, w: write.")
@click.pass_context
def update(
    ctx: click.Context,
    topic: str,
    *,
    addresses: tuple[str, ...],
    output: str,
    timeout_s: float,
    queues: int | None,
    write_queues: int | None,
    read_queues: int | None,
    perm: str | None,
) -> None:
    """Change TOPIC on each broker, durably; what is not named stays as it is."""
    if queues is None and write_queues is None and read_queues is None and perm is None:
        raise click.UsageError("Nothing is to be changed: give --queues, --write-queues, --read-queues or --perm.")

    def wanted(known: "TopicConfig | None", broker: str) -> "TopicConfig":
        from dataclasses import replace  # noqa: PLC0415

        from rmqha.cli.topic_text import PERMS  # noqa: PLC0415 - not for --help

        if known is None:
            raise CliError(f"topic {topic} does not exist on {broker}", hint=f"'rmqha topics create {topic}' makes it")
        return replace(
            known,
            read_queue_nums=read_queues or queues or known.read_queue_nums,
            write_queue_nums=write_queues or queues or known.write_queue_nums,
            perm=PERMS[perm] if perm is not None else known.perm,
        )

    _change(ctx, topic, wanted, addresses=addresses, output=output, timeout_s=timeout_s)


def _change(
    ctx: click.Context, topic: str, wanted: "Wanted", *, addresses: tuple[str, ...], output: str, timeout_s: float
) -> None:
    """Look at all brokers before the first one is changed."""
    from rmqha.cli.broker_tables import topic_configs  # noqa: PLC0415 - not for --help
    from rmqha.cli.named_brokers import ask_each, named_brokers  # noqa: PLC0415
    from rmqha.cli.output import echo_json  # noqa: PLC0415
    from rmqha.codec.limits import topic_problem  # noqa: PLC0415
    from rmqha.logs import escaped  # noqa: PLC0415

    if problem := topic_problem(topic):
        raise click.UsageError(problem)
    brokers = named_brokers(addresses, timeout_s=timeout_s).masters()

    def look(connection: "BrokerConnection", broker: "NamedBroker") -> "TopicConfig":
        return wanted(topic_configs(connection).get(topic), broker.name)

    looked = ask_each(brokers, look, timeout_s=timeout_s)
    configs = dict(looked.found)

    def change(connection: "BrokerConnection", broker: "NamedBroker") -> None:
        config = configs[broker]
        _send(connection, config)
        if output == "json":
            echo_json({"broker": broker.name} | config.to_json())
        else:
            click.echo(f"{escaped(broker.name)}: {topic} has {_numbers(config)}")

    changed = ask_each(list(configs), change, timeout_s=timeout_s)
    if looked.is_partial or changed.is_partial:
        ctx.exit(EXIT_UNREACHABLE)


def _send(connection: "BrokerConnection", config: "TopicConfig") -> None:
    """RocketMQ insists on a defaultTopic, and reads it no further."""
    from rmqha.codec.admin_headers import CreateTopicRequestHeader  # noqa: PLC0415
    from rmqha.codec.codes import RequestCode  # noqa: PLC0415
    from rmqha.codec.route import AUTO_CREATE_TOPIC_KEY_TOPIC  # noqa: PLC0415

    header = CreateTopicRequestHeader(
        config.topic_name,
        config.read_queue_nums,
        config.write_queue_nums,
        config.perm,
        config.topic_filter_type,
        config.topic_sys_flag,
    )
    ordered = "true" if config.order else "false"
    connection.ask_for(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        header,
        more={"defaultTopic": AUTO_CREATE_TOPIC_KEY_TOPIC, "order": ordered},
    )


def _numbers(config: "TopicConfig") -> str:
    from rmqha.cli.topic_text import perm_text  # noqa: PLC0415

    return f"{config.write_queue_nums} queues to write, {config.read_queue_nums} to read, {perm_text(config.perm)}"
