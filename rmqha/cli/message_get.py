"""``rmqha message get``."""

from typing import TYPE_CHECKING, Final

import click

from rmqha.cli.errors import CliError
from rmqha.cli.options import cluster_options, time_option
from rmqha.exit_codes import EXIT_UNREACHABLE

if TYPE_CHECKING:
    from rmqha.cli.ask import BrokerConnection
    from rmqha.cli.named_brokers import NamedBroker
    from rmqha.client import MessageExt

_ANY_TIME_MS: Final = (0, (1 << 63) - 1)


@click.command(
    epilog="""\b
Examples:
  rmqha message get 7F00000100002A9F0000000000000000              offsetMsgId, as a send's answer has it
  rmqha message get 7F000001000018B4AAC2136F5E5A0000 -t orders    msgId: needs the topic
  rmqha message get --key 4711 -t orders --since -1h --format json
  rmqha message get -t orders --since 2026-11-21T10:00 -n 3       the first of that time
  rmqha message get --offset 1048576

\b
Exit codes: 0 found, 1 not found, or refused, 2 wrong usage, 3 a broker is unreachable.
"""
)
@click.argument("msg_id", metavar="[ID]", required=False)
@cluster_options
@click.option("-t", "--topic", help="In which topic to look for a key, a producer's id, or a time.")
@click.option("--key", help="A word of the message's keys.")
@click.option("--offset", type=click.IntRange(0), help="Physical offset of the message in the log.")
@click.option(
    "--since", callback=time_option, metavar="TIME", help="First store time, such as -15m; with a key, or alone."
)
@click.option("--until", callback=time_option, metavar="TIME", help="Last store time.")
@click.option("-n", "--limit", type=click.IntRange(1, 64), default=64, show_default=True,
              help="So many at most of each broker: by key the newest, by time the first.")  # fmt: skip
@click.pass_context
def get(
    ctx: click.Context,
    msg_id: str | None,
    *,
    addresses: tuple[str, ...],
    output: str,
    timeout_s: float,
    topic: str | None,
    key: str | None,
    offset: int | None,
    since: int | None,
    until: int | None,
    limit: int,
) -> None:
    """Show a message: by ID, which is its place (offsetMsgId) or its producer's (msgId), by key, by offset, or by time.

    A slave can be asked as well. To look by place takes an administrator's account, where there are accounts.
    """
    from rmqha.cli.message_search import by_id, by_key, by_offset, by_time  # noqa: PLC0415 - not for --help
    from rmqha.cli.named_brokers import ask_each, named_brokers  # noqa: PLC0415

    ways = sum(one is not None for one in (msg_id, key, offset))
    is_by_time = not ways and since is not None
    if ways != 1 and not is_by_time:
        raise click.UsageError("Give one of ID, --key and --offset, or a time by --since.")
    if (key is not None or is_by_time) and topic is None:
        raise click.UsageError("A key or a time is looked for in a topic: give --topic.")
    between_ms = (_ANY_TIME_MS[0] if since is None else since, _ANY_TIME_MS[1] if until is None else until)

    def ask(connection: "BrokerConnection", broker: "NamedBroker") -> "tuple[list[MessageExt], str]":
        if offset is not None:
            return by_offset(connection, offset, broker_name=broker.name)
        if key is not None:
            return by_key(connection, topic or "", key, broker_name=broker.name, limit=limit, between_ms=between_ms)
        if is_by_time:
            return by_time(connection, topic or "", broker_name=broker.name, limit=limit, between_ms=between_ms)
        return by_id(connection, msg_id or "", topic, broker_name=broker.name)

    answers = ask_each(
        named_brokers(addresses, timeout_s=timeout_s, may_be_away=True).brokers, ask, timeout_s=timeout_s
    )
    found = {one.offset_msg_id: one for _, (messages, _) in answers.found for one in messages}
    if not found:
        reasons = "; ".join(f"{broker.name}: {reason}" for broker, (_, reason) in answers.found)
        hint = "a msgId is its producer's, and found with --topic" if msg_id is not None and topic is None else ""
        raise CliError("no such message is found", why=reasons, hint=hint)
    _print(list(found.values()), output)
    if answers.is_partial:
        ctx.exit(EXIT_UNREACHABLE)


def _print(messages: "list[MessageExt]", output: str) -> None:
    from rmqha.cli.message_lines import fact_lines, json_line  # noqa: PLC0415

    if output == "json":
        for message in messages:
            click.echo(json_line(message))
    else:
        click.echo("\n\n".join(map(fact_lines, messages)))
