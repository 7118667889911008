"""``rmqha groups list``."""

from typing import TYPE_CHECKING, Final

import click

from rmqha.cli.options import cluster_options
from rmqha.exit_codes import EXIT_UNREACHABLE

if TYPE_CHECKING:
    from rmqha.cli.ask import BrokerConnection
    from rmqha.cli.broker_tables import ConsumedQueue
    from rmqha.cli.named_brokers import NamedBroker

    Row = tuple[str, str, int, int, int, list[str]]

_BUILT_IN: Final = ("TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS", "CID_RMQ_SYS_")
"""How the names of RocketMQ's own groups begin."""
_NAMES: Final = ("group", "broker", "members", "topics", "lag", "notCommitted")
_COLUMNS: Final = ("GROUP", "BROKER", "MEMBERS", "TOPICS", "LAG", "NOTHING COMMITTED OF")
_NAMED_MAX: Final = 3
"""Topics of a line."""


@click.command(
    name="list",
    epilog="""\b
Examples:
  rmqha groups list
  rmqha groups list --format json | jq -c 'select(.lag > 1000)'
""",
)
@cluster_options
@click.option("--all", "with_all", is_flag=True, help="Also RocketMQ's own groups.")
@click.pass_context
def list_groups(
    ctx: click.Context, *, addresses: tuple[str, ...], output: str, timeout_s: float, with_all: bool
) -> None:
    """List the groups of each broker: members that are connected, topics that they consume, and their lag.

    The lag is counted in messages, those to be tried again among them. Of a topic that a group consumes and has
    committed nothing of, all messages that are there count.
    """
    from rmqha.cli.broker_tables import all_consumed, group_configs, group_connections  # noqa: PLC0415
    from rmqha.cli.named_brokers import ask_each, named_brokers  # noqa: PLC0415 - not for --help
    from rmqha.cli.output import echo_json  # noqa: PLC0415
    from rmqha.cli.table import render_table  # noqa: PLC0415

    def ask(connection: "BrokerConnection", broker: "NamedBroker") -> "list[Row]":
        consumed = all_consumed(connection)
        names = sorted({*group_configs(connection), *consumed})
        rows = []
        for group in names if with_all else [name for name in names if not name.startswith(_BUILT_IN)]:
            found = group_connections(connection, group)
            members = len(found["connectionSet"]) if found else 0
            rows.append((group, broker.name, members, *_topics_and_lag(consumed.get(group, []))))
        return rows

    answers = ask_each(
        named_brokers(addresses, timeout_s=timeout_s, may_be_away=True).leading, ask, timeout_s=timeout_s
    )
    rows = sorted(row for _, of_broker in answers.found for row in of_broker)
    if output == "json":
        for row in rows:
            echo_json(dict(zip(_NAMES, row, strict=True)))
    else:
        click.echo(render_table(_COLUMNS, [(*row, _named(topics)) for *row, topics in rows]))
    if answers.is_partial:
        ctx.exit(EXIT_UNREACHABLE)


def _topics_and_lag(queues: "list[ConsumedQueue]") -> tuple[int, int, list[str]]:
    """And the topics of which nothing is committed."""
    not_committed = sorted({queue.topic for queue in queues if not queue.is_committed})
    return len({queue.topic for queue in queues}), sum(queue.lag for queue in queues), not_committed


def _named(topics: list[str]) -> str:
    more = f", and {len(topics) - _NAMED_MAX} more" if len(topics) > _NAMED_MAX else ""
    return ", ".join(topics[:_NAMED_MAX]) + more
