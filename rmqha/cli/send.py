"""``rmqha send``: messages in, counts by SendStatus out."""

import json
import logging
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import click

from rmqha.cli.errors import CliError
from rmqha.cli.options import SECONDS, brokers_option
from rmqha.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED


def _properties(_ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    for value, (name, _, text) in zip(values, pairs, strict=True):
        if not name or not text:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE", param=param)
    return {name: text for name, _, text in pairs}


def _topic(_ctx: click.Context, param: click.Parameter, value: str) -> str:
    from rmqha.codec.limits import topic_problem  # noqa: PLC0415 - not for --help

    if problem := topic_problem(value):
        raise click.BadParameter(problem, param=param)
    return value


def _tag(_ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and (not value.strip() or "||" in value or value.strip() == "*"):
        raise click.BadParameter(f"{value!r} cannot be subscribed to: '||' parts tags, '*' is all", param=param)
    return value


@click.command(
    epilog="""\b
Examples:
  seq 1000 | rmqha send orders
  rmqha send orders --file orders.ndjson --tag new --key 4711
  rmqha send orders --count 100000 --size 1024 --window 1000
  rmqha send orders --count 10 --receipts receipts.jsonl --format json
  rmqha send orders --file orders.ndjson --retries 100 --timeout 60    goes on when its broker is restarted

\b
Exit codes: 0 all were answered SEND_OK, 1 some were not, 2 wrong usage, 3 unreachable,
130 interrupted.
"""
)
@click.argument("topic", callback=_topic)
@brokers_option("A master's listenPort, or a name server. Can be repeated: the topic's queues on all of them are used.")
@click.option("--file", "path", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="One message per line of this file, instead of stdin.")  # fmt: skip
@click.option("--count", type=click.IntRange(1), help="Send so many generated messages instead.")
@click.option("--size", type=click.IntRange(1, 4 << 20), default=1024, show_default=True,
              help="Bytes of a generated body.")  # fmt: skip
@click.option("--tag", callback=_tag, help="Tag of every message.")
@click.option("--key", "keys", multiple=True, help="Key of every message; can be repeated.")
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", callback=_properties,
              help="Further property of every message; can be repeated.")  # fmt: skip
@click.option("--no-wait", is_flag=True, help="Let the broker answer before flush and replication (WAIT=false).")
@click.option("--window", type=click.IntRange(1, 100_000), default=64, show_default=True,
              help="Unanswered messages at one time.")  # fmt: skip
@click.option("--timeout", "timeout_s", type=SECONDS, default=10.0, show_default=True,
              metavar="SECONDS", help="For one message's answer.")  # fmt: skip
@click.option("--retries", type=click.IntRange(0, 1000), default=0, show_default=True,
              help="Try a message again so often after an error that may pass, within --timeout: 16 bridge a restart "
              "of 6 s. It may then be stored twice, and behind later ones.")  # fmt: skip
@click.option("--receipts", type=click.File("w", encoding="utf-8", lazy=False),
              help="Write each answer to this file, as a JSON line.")  # fmt: skip
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def send(
    ctx: click.Context,
    /,
    *,
    path: Path | None,
    count: int | None,
    size: int,
    receipts: IO[str] | None,
    output: str,
    addresses: tuple[str, ...],
    no_wait: bool,
    **fields: Any,
) -> None:
    """Send messages to TOPIC: each line of stdin or of a file, or generated ones.

    Prints how many got each SendStatus, the p50 and p99 of the answers' times, and the rate. An error of one
    message is counted, and the next one is sent; when the broker is gone, sending ends.
    """
    import trio  # noqa: PLC0415 - not for --help

    from rmqha.cli.progress import progress  # noqa: PLC0415
    from rmqha.cli.send_messages import AnswerLog, Plan, send_all  # noqa: PLC0415
    from rmqha.cli.send_report import SendReport  # noqa: PLC0415
    from rmqha.errors import errors_in  # noqa: PLC0415

    if count is not None and path is not None:
        raise click.UsageError("--count and --file exclude each other.")
    logging.getLogger("rmqha.client").setLevel(logging.ERROR)  # what matters here is said in the command's own words
    report, started = SendReport(), time.monotonic()
    failure: CliError | None = None
    interrupted = False
    log = AnswerLog(fields["topic"], report, receipts)
    try:
        with ExitStack() as stack:
            log.advance = stack.enter_context(progress("sending", total=count))
            source = _open_source(stack, path, count=count, size=size)
            failure = trio.run(send_all, Plan(address=";".join(addresses), wait=not no_wait, **fields), source, log)
    except (KeyboardInterrupt, BaseExceptionGroup) as raised:
        errors_in(raised, KeyboardInterrupt)
        interrupted = True
        click.echo("Interrupted; so far:", err=True)
    elapsed_s = time.monotonic() - started
    if report.total:
        as_json = json.dumps(report.as_dict(elapsed_s=elapsed_s))
        click.echo(as_json if output == "json" else report.as_text(elapsed_s=elapsed_s))
    examples = [f"{status}: {text}" for status, text in log.examples.items()]
    for line in filter(None, [report.advice(addresses), *examples]):
        click.echo(line, err=True)
    incomplete = log.finish()
    if failure := failure or incomplete:
        raise failure
    if interrupted:
        ctx.exit(EXIT_INTERRUPTED)
    if not report.all_ok:
        ctx.exit(EXIT_FAILED)


def _open_source(
    stack: ExitStack, path: Path | None, *, count: int | None, size: int
) -> AsyncIterator[Iterable[bytes]]:
    from rmqha.cli.sources import all_of, generated, lines  # noqa: PLC0415

    if count is not None:
        return all_of(generated(count, size))
    if path is not None:
        return lines(stack.enter_context(path.open("rb")))
    if sys.stdin is None:
        raise click.UsageError("there is no standard input to read messages from: give --file or --count")
    if sys.stdin.isatty():
        click.echo("One message a line; end with ctrl-d.", err=True)
    return lines(sys.stdin.buffer)
