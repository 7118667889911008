"""``rmqha groups describe``."""

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from rmqha.cli.errors import CliError
from rmqha.cli.options import cluster_options
from rmqha.exit_codes import EXIT_UNREACHABLE

if TYPE_CHECKING:
    from rmqha.cli.ask import BrokerConnection
    from rmqha.cli.broker_tables import ConsumedQueue
    from rmqha.cli.named_brokers import NamedBroker

    Described = tuple[bool, dict[str, Any], dict[str, Any] | None, list[ConsumedQueue], "_GivenUp"]


class _GivenUp(NamedTuple):
    """Messages that come again, and those that do not any more."""

    retry_lag: int
    dead_letters: int


_SETTINGS: Final[tuple[str, ...]] = (
    "consumeEnable",
    "consumeBroadcastEnable",
    "consumeFromMinEnable",
    "retryQueueNums",
    "retryMaxTimes",
    "brokerId",
    "whichBrokerWhenConsumeSlowly",
    "notifyConsumerIdsChangedEnable",
)
"""What a group is allowed, and how it retries, in RocketMQ's names; one that a broker does not tell is left out."""


@click.command(
    epilog="""\b
Examples:
  rmqha groups describe billing
  rmqha groups describe billing --topic orders --format json | jq .lag

\b
Exit codes: 0 found, 1 no broker knows it, 2 wrong usage, 3 a broker is unreachable.
"""
)
@click.argument("group")
@cluster_options
@click.option("--topic", help="Only this topic.")
@click.pass_context
def describe(
    ctx: click.Context, group: str, *, addresses: tuple[str, ...], output: str, timeout_s: float, topic: str | None
) -> None:
    """Show GROUP: its settings and the members that are connected, by broker, and how far it is in each queue.

    While members are connected, topics that they do not subscribe to are left out. Of a topic of which nothing is
    committed, all messages that are there count as its lag. What was given up (dead letters) is in %DLQ%GROUP.
    """
    from rmqha.cli.broker_tables import consumed, group_configs, group_connections  # noqa: PLC0415 - not for --help
    from rmqha.cli.named_brokers import ask_each, named_brokers  # noqa: PLC0415
    from rmqha.cli.output import echo_json  # noqa: PLC0415

    def ask(connection: "BrokerConnection", _broker: "NamedBroker") -> "Described":
        queues = consumed(connection, group, topic)  # of a topic that is named, for any group
        config = group_configs(connection).get(group)
        is_known = config is not None or any(queue.consumed or not queue.is_committed for queue in queues)
        settings = {name: config[name] for name in _SETTINGS if name in config} if config else {}
        shown = queues if is_known or topic is None else []
        return is_known, settings, group_connections(connection, group), shown, _given_up(connection, group)

    answers = ask_each(
        named_brokers(addresses, timeout_s=timeout_s, may_be_away=True).leading, ask, timeout_s=timeout_s
    )
    if not any(is_known or members or queues for _, (is_known, _, members, queues, _) in answers.found):
        raise CliError(
            f"group {group} does not exist",
            why=f"{', '.join(broker.name for broker, _ in answers.found)}: not known, and nothing consumed",
            hint="'rmqha groups list' shows those that do",
        )
    members = [
        {"broker": broker.name} | {str(name): value for name, value in member.items()}
        for broker, (_, _, found, _, _) in answers.found
        if found
        for member in found["connectionSet"]
    ]
    queues = [(broker.name, queue) for broker, (_, _, _, of_broker, _) in answers.found for queue in of_broker]
    settings = {broker.name: told for broker, (_, told, _, _, _) in answers.found if told}
    given_up = _GivenUp(*map(sum, zip(*(one for _, (_, _, _, _, one) in answers.found), strict=True)))
    if output == "json":
        more = {"settings": settings, "retryLag": given_up.retry_lag, "deadLetters": given_up.dead_letters}
        echo_json(_document(group, members, queues) | more)
    else:
        click.echo("\n".join([*_summary(group, members, queues, given_up), *_tables(settings, members, queues)]))
    if answers.is_partial:
        ctx.exit(EXIT_UNREACHABLE)


def _given_up(connection: "BrokerConnection", group: str) -> _GivenUp:
    from rmqha.cli.broker_tables import consumed, topic_stats  # noqa: PLC0415 - not for --help

    retry = f"%RETRY%{group}"
    places = {queue.queue_id: queue.consumed for queue in consumed(connection, group, retry)}
    return _GivenUp(
        sum(
            max(queue.end - max(queue.first, places.get(queue.queue_id, 0)), 0)
            for queue in topic_stats(connection, retry)
        ),
        sum(queue.end - queue.first for queue in topic_stats(connection, f"%DLQ%{group}")),
    )


def _document(group: str, members: list[dict[str, Any]], queues: "list[tuple[str, ConsumedQueue]]") -> Any:
    return {
        "group": group,
        "lag": sum(queue.lag for _, queue in queues),
        "members": members,
        "queues": [
            {
                "topic": queue.topic,
                "broker": name,
                "queueId": queue.queue_id,
                "consumed": queue.consumed,
                "committed": queue.is_committed,
                "end": queue.end,
                "lag": queue.lag,
                "consumedStoreTimestamp": queue.consumed_stored_ms,
            }
            for name, queue in queues
        ],
    }


def _settings_table(settings: dict[str, dict[str, Any]]) -> str:
    """A line for each setting, a column for each broker: where they differ is seen."""
    from rmqha.cli.table import render_table  # noqa: PLC0415 - not for --help

    rows = [
        (name, *(_setting_text(told.get(name)) for told in settings.values()))
        for name in _SETTINGS
        if any(name in told for told in settings.values())
    ]
    return render_table(("SETTING", *settings), rows)


def _setting_text(value: object) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _summary(
    group: str, members: list[dict[str, Any]], queues: "list[tuple[str, ConsumedQueue]]", given_up: _GivenUp
) -> list[str]:
    """Lines."""
    from rmqha.logs import escaped  # noqa: PLC0415 - not for --help

    lag = sum(queue.lag for _, queue in queues)
    lines = [
        f"group {escaped(group)}, members connected: {len(members)}, lag: {lag:,} messages",
        f"to be tried again: {given_up.retry_lag:,} messages in %RETRY%{escaped(group)}",
        f"given up (dead letters): {given_up.dead_letters:,} messages in %DLQ%{escaped(group)}",
    ]
    if topics := sorted({queue.topic for _, queue in queues if not queue.is_committed}):
        lines.append(f"nothing is committed of {escaped(', '.join(topics))}: all messages that are there count as lag")
    if not queues:
        lines.append("no place of it is known here, and so no lag: docs/operations.md, 'A group that falls behind'")
    return lines


def _tables(
    settings: dict[str, dict[str, Any]], members: list[dict[str, Any]], queues: "list[tuple[str, ConsumedQueue]]"
) -> list[str]:
    """Those that have a line, an empty line before each."""
    from rmqha.cli.table import render_table, time_text  # noqa: PLC0415 - not for --help

    parts = []
    if settings:
        parts.append(_settings_table(settings))
    if members:
        columns = ("clientId", "clientAddr", "language", "broker")
        rows = [[member.get(column) for column in columns] for member in members]
        parts.append(render_table(("CLIENT", "ADDRESS", "LANGUAGE", "BROKER"), rows))
    if queues:
        parts.append(
            render_table(
                ("TOPIC", "BROKER", "QUEUE", "CONSUMED", "END", "LAG", "LAST CONSUMED WAS STORED"),
                [
                    (
                        queue.topic,
                        name,
                        queue.queue_id,
                        queue.consumed if queue.is_committed else None,
                        queue.end,
                        queue.lag,
                        time_text(queue.consumed_stored_ms),
                    )
                    for name, queue in queues
                ],
            )
        )
    return [f"\n{part}" for part in parts]
