"""``rmqha groups reset``: a plan first, and the change if it is asked for."""

import time
from typing import TYPE_CHECKING, Any

import click

from rmqha.cli.errors import CliError
from rmqha.cli.options import cluster_options
from rmqha.exit_codes import EXIT_FAILED, EXIT_UNREACHABLE

if TYPE_CHECKING:
    from rmqha.cli.ask import BrokerConnection
    from rmqha.cli.named_brokers import NamedBroker
    from rmqha.cli.offset_reset import ResetPlan


def _place(_ctx: click.Context, param: click.Parameter, value: str) -> Any:
    from rmqha.cli.when import End, Last, Start, parse_place  # noqa: PLC0415 - not for --help

    if value == "earliest":
        return Start()
    if value == "latest":
        return End()
    try:
        place = parse_place(value, now_ms=time.time_ns() // 1_000_000)
    except ValueError:
        place = Last(0)
    if isinstance(place, Last):
        times = "@TIME (@2026-11-21T10:00, @-15m, @1795174284839)"
        wanted = f"earliest (or start), latest (or end), N (a queue offset), {times}"
        raise click.BadParameter(f"{value!r} is none of: {wanted}", param=param)
    return place


@click.command(
    epilog="""\b
Examples:
  rmqha groups reset billing --topic orders --to @-1h             shows what would be done
  rmqha groups reset billing --topic orders --to @-1h --execute
  rmqha groups reset billing --topic orders --to latest --execute

\b
--to takes: earliest, latest, @TIME (local time, milliseconds, or -15m), N (a queue offset, in each queue).
Exit codes: 0 planned or done, 1 refused, or there is no such topic or group, 2 wrong usage, 3 a broker is unreachable.
"""
)
@click.argument("group")
@cluster_options
@click.option("--topic", required=True, help="In whose queues.")
@click.option("--to", "place", required=True, metavar="PLACE", callback=_place, help="Where to go on, see below.")
@click.option("--execute", is_flag=True, help="Do it. Without, nothing is changed.")
@click.option("--new", "is_new", is_flag=True, help="No broker knows GROUP yet: it is to begin there.")
@click.pass_context
def reset(
    ctx: click.Context,
    group: str,
    *,
    addresses: tuple[str, ...],
    output: str,
    timeout_s: float,
    topic: str,
    place: Any,
    execute: bool,
    is_new: bool,
) -> None:
    """Have GROUP go on at another place in the queues of a topic, on each broker.

    Members that are connected are told by the broker, as mqadmin has it, and go on there within seconds. A group
    that nobody is connected of goes on there when it starts. Consumers of rmqha's own library are not connected
    in this sense: stop them first, or they commit where they are.
    """
    from rmqha.cli.named_brokers import ask_each, named_brokers  # noqa: PLC0415 - not for --help
    from rmqha.cli.offset_reset import plan_reset  # noqa: PLC0415
    from rmqha.cli.offset_reset import reset as carry_out  # noqa: PLC0415
    from rmqha.codec.limits import group_problem  # noqa: PLC0415

    if problem := group_problem(group):
        raise click.UsageError(problem)
    brokers = named_brokers(addresses, timeout_s=timeout_s).masters()

    def look(connection: "BrokerConnection", _broker: "NamedBroker") -> "ResetPlan | None":
        return plan_reset(connection, group, topic, place)

    looked = ask_each(brokers, look, timeout_s=timeout_s)
    plans = {broker: plan for broker, plan in looked.found if plan is not None}
    if not plans:
        raise CliError(
            f"topic {topic} does not exist",
            why=f"not on {', '.join(broker.name for broker, _ in looked.found)}",
            hint="'rmqha topics list' shows those that do",
        )
    is_known = any(plan.is_known for plan in plans.values())
    if not is_known:
        _tell_unknown(group, {name for plan in plans.values() for name in plan.groups}, execute=execute, is_new=is_new)
    is_partial = looked.is_partial
    if execute:

        def change(connection: "BrokerConnection", broker: "NamedBroker") -> None:
            carry_out(connection, group, topic, place, plans[broker])

        is_partial |= ask_each(list(plans), change, timeout_s=timeout_s).is_partial
    _tell({broker.name: plan for broker, plan in plans.items()}, group, topic, output=output, is_done=execute)
    if is_partial:
        ctx.exit(EXIT_UNREACHABLE)
    if not is_known and not is_new:
        ctx.exit(EXIT_FAILED)  # as --execute would


def _tell_unknown(group: str, known: "set[str]", *, execute: bool, is_new: bool) -> None:
    """No broker has heard of the group: say so, and go on only if nothing is changed, or it is meant.

    What would be done is shown, and the command fails all the same.

    Raises:
        CliError: else.
    """
    from rmqha.cli.nearest import near_hint  # noqa: PLC0415
    from rmqha.logs import escaped  # noqa: PLC0415

    what, why = f"group {escaped(group)} does not exist", "no broker has heard of it, and it has consumed nothing"
    hint = near_hint(group, known, otherwise="'rmqha groups list' shows those that do.")
    if execute and not is_new:
        raise CliError(what, why=why, hint=f"{hint} To have a new group begin there, give --new")
    if not is_new:
        click.echo(f"Note: {what}: {why}; {hint}", err=True)


def _tell(plans: "dict[str, ResetPlan]", group: str, topic: str, *, output: str, is_done: bool) -> None:
    from rmqha.cli.output import echo_json  # noqa: PLC0415
    from rmqha.cli.table import render_table  # noqa: PLC0415
    from rmqha.logs import escaped  # noqa: PLC0415

    rows = [
        (name, one.queue_id, one.current, one.wanted, one.wanted - (one.current or 0), one.end - one.wanted)
        for name, plan in plans.items()
        for one in plan.queues
    ]
    members = sum(plan.members for plan in plans.values())
    if output == "json":
        names = ("broker", "queueId", "current", "wanted", "change", "lag")
        queues = [dict(zip(names, row, strict=True)) for row in rows]
        echo_json({"group": group, "topic": topic, "executed": is_done, "members": members, "queues": queues})
        return
    click.echo(render_table(("BROKER", "QUEUE", "CURRENT", "NEW", "CHANGE", "LAG THEN"), rows))
    told = (
        f"{members} connected members are told" if members else "no member is connected: it goes on there at its start"
    )
    if is_done:
        click.echo(f"\nDone for group {escaped(group)}, topic {escaped(topic)}: {told}.")
    else:
        click.echo("\nNothing was changed: give --execute to do it.")
