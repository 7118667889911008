"""``rmqha tail``: the messages of a topic, and those to come."""

import logging
import time
from typing import Any, Final

import click

from rmqha.cli.options import brokers_option, words_option
from rmqha.exit_codes import EXIT_INTERRUPTED

_LAST: Final = 10


def _place(_ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    from rmqha.cli.when import parse_place  # noqa: PLC0415 - not for --help

    if value is None:
        return None
    try:
        return parse_place(value, now_ms=time.time_ns() // 1_000_000)
    except ValueError as error:
        raise click.BadParameter(str(error), param=param) from None


def _format(_ctx: click.Context, param: click.Parameter, value: str) -> Any:
    """What makes a line of a message."""
    from rmqha.cli.message_format import parse_format  # noqa: PLC0415
    from rmqha.cli.message_lines import json_line, text_line  # noqa: PLC0415

    if value in ("text", "json"):
        line = json_line if value == "json" else text_line
        return lambda message: f"{line(message)}\n"
    if "%" not in value:
        raise click.BadParameter(f"{value!r} is neither text nor json, nor has it a %", param=param)
    try:
        return parse_format(value)
    except ValueError as error:
        raise click.BadParameter(str(error), param=param) from None


@click.command(
    epilog="""\b
Examples:
  rmqha tail orders                         the last ten
  rmqha tail orders -n 3                    the last three
  rmqha tail orders -n 3 -f                 those, and what comes
  rmqha tail orders --from start -n 100
  rmqha tail orders --from end -f
  rmqha tail orders --from @-15m --tag new
  rmqha tail orders --from @2026-11-21T10:00 --broker slave-host:10921 --format json | jq .msgId
  rmqha tail orders --format '%t %p %o %k %s\\n'

\b
--format takes: text (bodies), json (one object a line, with everything), or a text in which, as with kcat,
  %t topic  %p queue  %o queue offset  %k keys  %s body  %S its bytes  %T store time, ms  %h properties
  %a tag  %i msgId  %b brokerName  %P physical offset  %% a percent sign; \\n \\t \\r \\\\ \\xHH
\b
--from takes: start, end, -N (the last N), N (a queue offset), @TIME (local time, milliseconds, or -15m).
Exit codes: 0 read to the end, 1 failed, 2 wrong usage, 3 unreachable.
"""
)
@click.argument("topic")
@brokers_option(
    "Whom to read, by listenPort. Can be repeated: of a master and its slaves the first that answers is read."
)
@click.option("--from", "start", metavar="PLACE", callback=_place,
              help="Where to begin, see below.  [default: -10; with -n N: -N]")  # fmt: skip
@click.option("-f", "--follow", is_flag=True, help="Go on with the messages to come.")
@click.option("--queue", "queue_ids", type=click.IntRange(0), multiple=True, help="Only this queue; can be repeated.")
@click.option("--tag", "tags", multiple=True, callback=words_option,
              help="Only messages with this tag; can be repeated.")  # fmt: skip
@click.option("-n", "--limit", type=click.IntRange(1),
              help="The last so many messages, and with -f what comes; with --from: end after so many.")  # fmt: skip
@click.option("--format", "output", metavar="FORMAT", default="text", show_default=True, callback=_format,
              help="text, json, or a format with %, see below.")  # fmt: skip
@click.pass_context
def tail(
    ctx: click.Context, /, addresses: tuple[str, ...], start: Any, limit: int | None, *, follow: bool, **options: Any
) -> None:
    """Print the messages of TOPIC, without being a consumer of any group: nothing is marked as consumed.

    Messages of one queue come in order, those of different queues as they arrive; with --from -N all are in
    the order of the log. The broker that is named is read, a slave too.
    """
    import trio  # noqa: PLC0415

    from rmqha.cli.stored import wait_stored_is_seen  # noqa: PLC0415
    from rmqha.cli.tail_messages import TailPlan, tail_messages  # noqa: PLC0415
    from rmqha.cli.when import Last  # noqa: PLC0415
    from rmqha.errors import errors_in  # noqa: PLC0415

    if start is None:
        start, limit = Last(limit or _LAST), None
    plan = TailPlan(address=";".join(addresses), start=start, limit=limit, follow=follow, **options)

    logging.getLogger("rmqha.client").setLevel(logging.ERROR)  # what matters here is said in the command's own words
    wait_stored_is_seen(addresses, options["topic"])
    failure = None
    interrupted = False
    try:
        failure = trio.run(tail_messages, plan)
    except (KeyboardInterrupt, BaseExceptionGroup) as raised:
        errors_in(raised, KeyboardInterrupt)
        interrupted = True
    if failure is not None:
        raise failure
    if interrupted:
        ctx.exit(EXIT_INTERRUPTED)
