"""``rmqha topics delete``."""

from typing import TYPE_CHECKING

import click

from rmqha.cli.confirm import confirm
from rmqha.cli.errors import CliError
from rmqha.cli.options import cluster_options
from rmqha.exit_codes import EXIT_UNREACHABLE

if TYPE_CHECKING:
    from rmqha.cli.ask import BrokerConnection
    from rmqha.cli.named_brokers import NamedBroker


@click.command(
    epilog="""\b
Examples:
  rmqha topics delete orders
  rmqha topics delete orders --yes --broker namesrv-host:9876

\b
Exit codes: 0 deleted, 1 refused, or it is nowhere, 2 wrong usage, 3 a broker is unreachable, 130 not confirmed.
"""
)
@click.argument("topic")
@cluster_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def delete(
    ctx: click.Context, topic: str, *, addresses: tuple[str, ...], output: str, timeout_s: float, yes: bool
) -> None:
    """Delete TOPIC with its messages from each broker, and from the name servers that are named.

    Nobody can read its messages any more. A producer that goes on makes it again, if autoCreateTopicEnable is on.
    Delayed messages that wait for it are not among those counted; they are left out when they are due.
    """
    from rmqha.cli.broker_tables import groups_of_topic, topic_configs, topic_stats  # noqa: PLC0415 - not for --help
    from rmqha.cli.named_brokers import ask_each, named_brokers  # noqa: PLC0415
    from rmqha.cli.output import echo_json  # noqa: PLC0415
    from rmqha.codec.admin_headers import TopicRequestHeader  # noqa: PLC0415
    from rmqha.codec.codes import RequestCode  # noqa: PLC0415
    from rmqha.logs import escaped  # noqa: PLC0415

    named = named_brokers(addresses, timeout_s=timeout_s)
    brokers = named.masters()

    def look(connection: "BrokerConnection", _broker: "NamedBroker") -> tuple[int, list[str]] | None:
        if topic not in topic_configs(connection):
            return None
        messages = sum(queue.end - queue.first for queue in topic_stats(connection, topic))
        return messages, groups_of_topic(connection, topic)

    looked = ask_each(brokers, look, timeout_s=timeout_s)
    found = {broker: told for broker, told in looked.found if told is not None}
    if not found:
        raise CliError(
            f"topic {topic} does not exist",
            why=f"not on {', '.join(broker.name for broker, _ in looked.found)}",
            hint="'rmqha topics list' shows those that do",
        )
    messages = sum(count for count, _ in found.values())
    groups = sorted({group for _, of_broker in found.values() for group in of_broker})
    where = ", ".join(escaped(broker.name) for broker in found)
    consumed = f" Groups that consume it: {', '.join(map(escaped, groups))}." if groups else ""
    confirm(f"Delete topic {topic} with {messages:,} messages on {where}?{consumed}", yes=yes)

    def remove(connection: "BrokerConnection", broker: "NamedBroker") -> None:
        connection.ask_for(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader(topic))
        if output == "json":
            echo_json({"broker": broker.name, "topic": topic, "messages": found[broker][0]})
        else:
            click.echo(f"{escaped(broker.name)}: {topic} is deleted, with {found[broker][0]:,} messages")

    removed = ask_each(list(found), remove, timeout_s=timeout_s)
    for address in named.name_servers:
        _forget_at(address, topic, timeout_s=timeout_s)
    if looked.is_partial or removed.is_partial:
        ctx.exit(EXIT_UNREACHABLE)


def _forget_at(name_server: str, topic: str, *, timeout_s: float) -> None:
    """Else it tells clients of the topic until the brokers register again: up to 30 s."""
    from rmqha.cli.ask import BrokerConnection  # noqa: PLC0415
    from rmqha.codec.admin_headers import TopicRequestHeader  # noqa: PLC0415
    from rmqha.codec.codes import RequestCode  # noqa: PLC0415

    with BrokerConnection(name_server, timeout_s=timeout_s) as connection:
        connection.ask_for(RequestCode.DELETE_TOPIC_IN_NAMESRV, TopicRequestHeader(topic))
