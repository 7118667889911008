"""``rmqha groups delete``."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from rmqha.cli.confirm import confirm
from rmqha.cli.errors import CliError
from rmqha.cli.options import cluster_options
from rmqha.exit_codes import EXIT_UNREACHABLE

if TYPE_CHECKING:
    from rmqha.cli.ask import BrokerConnection
    from rmqha.cli.named_brokers import Answers, NamedBroker


@dataclass(frozen=True)
class _Found:
    """A group at one broker.

    Attributes:
        is_known: the broker has heard of it; ``names`` are those of all groups that it has heard of.
        members: so many are connected.
        queues: in so many queues it has committed offsets.
        topics: of its own, for messages to be tried again and dead letters.
    """

    is_known: bool
    names: frozenset[str]
    members: int
    queues: int
    topics: tuple[str, ...]


@click.command(
    epilog="""\b
Examples:
  rmqha groups delete billing
  rmqha groups delete billing --yes --broker namesrv-host:9876
  rmqha groups delete billing --keep-offsets

\b
Exit codes: 0 deleted, 1 refused, or it is nowhere, 2 wrong usage, 3 a broker is unreachable, 130 not confirmed.
"""
)
@click.argument("group")
@cluster_options
@click.option("--keep-offsets", is_flag=True, help="How far it is stays: should it come again, it goes on there.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def delete(
    ctx: click.Context,
    group: str,
    *,
    addresses: tuple[str, ...],
    output: str,
    timeout_s: float,
    keep_offsets: bool,
    yes: bool,
) -> None:
    """Delete GROUP from each broker: what it is allowed, and how far it is.

    No message is deleted: its topics %RETRY%GROUP and %DLQ%GROUP stay. A group with members that are connected is
    not deleted, as they would make it again.
    """
    from rmqha.cli.named_brokers import ask_each, named_brokers  # noqa: PLC0415 - not for --help
    from rmqha.cli.output import echo_json  # noqa: PLC0415
    from rmqha.codec.codes import RequestCode  # noqa: PLC0415
    from rmqha.codec.group_headers import DeleteSubscriptionGroupRequestHeader  # noqa: PLC0415
    from rmqha.logs import escaped  # noqa: PLC0415

    brokers = named_brokers(addresses, timeout_s=timeout_s).masters()
    looked = ask_each(brokers, lambda connection, _: _look(connection, group), timeout_s=timeout_s)
    found = _checked(looked, group)
    confirm(_question(group, found, keep_offsets=keep_offsets), yes=yes)
    header = DeleteSubscriptionGroupRequestHeader(group, remove_offset=not keep_offsets)

    def remove(connection: "BrokerConnection", broker: "NamedBroker") -> None:
        connection.ask_for(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        offsets = 0 if keep_offsets else found[broker].queues
        if output == "json":
            echo_json({"broker": broker.name, "group": group, "offsetsDeleted": offsets})
        else:
            click.echo(f"{escaped(broker.name)}: {escaped(group)} is deleted, with its offsets in {offsets} queues")

    removed = ask_each(list(found), remove, timeout_s=timeout_s)
    if looked.is_partial or removed.is_partial:
        ctx.exit(EXIT_UNREACHABLE)


def _look(connection: "BrokerConnection", group: str) -> _Found:
    from rmqha.cli.broker_tables import all_consumed, group_configs, group_connections, topic_configs  # noqa: PLC0415

    known, offsets = group_configs(connection), all_consumed(connection)
    members = group_connections(connection, group)
    topics = topic_configs(connection)
    own = tuple(topic for topic in (f"%RETRY%{group}", f"%DLQ%{group}") if topic in topics)
    return _Found(
        is_known=group in known or group in offsets or bool(members),
        names=frozenset({*known, *offsets}),
        members=len(members["connectionSet"]) if members else 0,
        queues=sum(queue.is_committed for queue in offsets.get(group, ())),
        topics=own,
    )


def _checked(looked: "Answers[_Found]", group: str) -> "dict[NamedBroker, _Found]":
    """The brokers that know the group, which nobody uses.

    Raises:
        CliError: none does, or somebody is connected.
    """
    from rmqha.cli.nearest import near_hint  # noqa: PLC0415

    found = {broker: one for broker, one in looked.found if one.is_known}
    if not found:
        names = {name for _, one in looked.found for name in one.names}
        raise CliError(
            f"group {group} does not exist",
            why=f"not known on {', '.join(broker.name for broker, _ in looked.found)}",
            hint=near_hint(group, names, otherwise="'rmqha groups list' shows those that do"),
        )
    for broker, one in found.items():
        if one.members:
            raise CliError(
                f"group {group} is in use",
                why=f"{one.members} members are connected to {broker.name}, and would make it again",
                hint="stop them first; 'rmqha groups describe' shows who they are",
            )
    return found


def _question(group: str, found: "dict[NamedBroker, _Found]", *, keep_offsets: bool) -> str:
    from rmqha.logs import escaped  # noqa: PLC0415

    queues = sum(one.queues for one in found.values())
    offsets = f"its offsets in {queues} queues stay" if keep_offsets else f"with its offsets in {queues} queues"
    where = ", ".join(escaped(broker.name) for broker in found)
    topics = sorted({topic for one in found.values() for topic in one.topics})
    stay = f" Topics that stay: {', '.join(map(escaped, topics))}." if topics else ""
    return f"Delete group {escaped(group)} on {where}, {offsets}?{stay}"
