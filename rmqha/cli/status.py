"""``rmqha status``: ask one broker how it is."""

import json
import time
from typing import TYPE_CHECKING, Any, Final

import click

from rmqha.cli.errors import CliError, UnreachableError
from rmqha.cli.options import SECONDS, brokers_option, span_option
from rmqha.cli.output import takes_unicode
from rmqha.exit_codes import EXIT_CRITICAL, EXIT_FAILED, EXIT_OK

if TYPE_CHECKING:
    from rmqha.cli.lag_limits import LagLimits

ASK_AGAIN_AFTER_S: Final = 0.2
"""The protocol has no way to be told, so ``--wait`` asks again."""
_ANSWER_S: Final = 5.0
_ANSWER_MIN_S: Final = 1.0
"""The last question of ``--wait``, too, gets so long: a busy broker is not taken for one that cannot be reached."""
_NO_STATUS: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What comes of reading facts that are none."""
_REASON_SIZE_MAX: Final = 200


@click.command(
    epilog="""\b
Examples:
  rmqha status
  rmqha status --broker 10.0.0.5:10911 --format json
  rmqha status -b 10.0.0.5:10911 -b 10.0.0.6:10911
  rmqha status --wait in-sync --timeout 60 && start-the-producers
  rmqha status --warn-lag 10s --crit-lag 1m

\b
Exit codes: 0 ok, 1 degraded or failed, 2 wrong usage, 3 unreachable. With --crit-lag 2 is failed, too: as monitoring
plugins have it, 0 is good, 1 a warning, 2 critical, 3 unknown. With --wait 0 is in sync and whole, whatever else is
degraded (it is told), and 1 that it was not in time: a damaged record, tables that are not saved, or a log that begins
later than the master's, are not whole.
A RocketMQ broker is asked the same way and tells less.
"""
)
@brokers_option("The broker's listenPort. Can be repeated.")
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--wait", type=click.Choice(["in-sync"]),
              help="Until the replicas are in sync and within the limits, or --timeout. A master knows how long its "
              "log is: better ask it. A slave knows whether it has topics, groups and offsets as well.")  # fmt: skip
@click.option("--timeout", "timeout_s", type=SECONDS, default=None, metavar="SECONDS",
              help="For the answer (5), or for --wait (60).")  # fmt: skip
@click.option("--warn-lag", "warn_s", callback=span_option, metavar="SPAN",
              help="Degraded, if a replica lacks something for longer: 500ms, 10s, 1m. A master tells it of its slaves "
              "(also of those that left), and a DLedger leader of its members.")  # fmt: skip
@click.option("--crit-lag", "crit_s", callback=span_option, metavar="SPAN", help="The same: failed.")
@click.pass_context
def status(
    ctx: click.Context,
    *,
    addresses: tuple[str, ...],
    output: str,
    wait: str | None,
    timeout_s: float | None,
    warn_s: float | None,
    crit_s: float | None,
) -> None:
    """Say how a broker and its replicas are: the verdict first, then why, then the figures.

    Of several brokers each is told (as a line of JSON with "address"), and the exit code is the worst of theirs. Of one
    that does not answer the verdict in JSON is "unreachable", of one that cannot be judged "unknown".
    """
    from rmqha.cli.lag_limits import LagLimits  # noqa: PLC0415 - not for --help

    if warn_s is not None and crit_s is not None and warn_s > crit_s:
        raise click.UsageError(f"--warn-lag {warn_s:g} s would never tell: --crit-lag {crit_s:g} s comes first")
    limits, codes = LagLimits(warn_s, crit_s), [EXIT_OK]
    exit_codes = {"ok": EXIT_OK, "failed": EXIT_FAILED if crit_s is None else EXIT_CRITICAL}
    for number, address in enumerate(addresses):
        named = {"address": address} if len(addresses) > 1 else {}
        try:
            facts, verdict, text = _asked(address, limits, wait=wait, timeout_s=timeout_s)
        except CliError as error:
            if output == "json":
                _echo_unknown(error, named)
            if len(addresses) == 1:
                raise
            error.show()
            codes.append(error.exit_code)
            continue
        if output == "json":
            judged = {"verdict": verdict.level, "summary": verdict.summary, "reasons": list(verdict.reasons)}
            told = named | judged | {"inSync": verdict.in_sync} | facts
            click.echo(json.dumps(told, ensure_ascii=not takes_unicode()))
        else:
            click.echo(text if number == 0 else f"\n{text}")
        codes.append(EXIT_OK if wait else exit_codes.get(verdict.level, EXIT_FAILED))
    if max(codes):
        ctx.exit(max(codes))


def _echo_unknown(error: CliError, named: dict[str, str]) -> None:
    """A line of JSON for a broker that has told nothing; stderr has what to do about it."""
    verdict = "unreachable" if isinstance(error, UnreachableError) else "unknown"
    judged = {"verdict": verdict, "summary": error.message, "reasons": [error.why] if error.why else []}
    click.echo(json.dumps(named | judged | {"inSync": False}, ensure_ascii=not takes_unicode()))


def _asked(
    address: str, limits: "LagLimits", *, wait: str | None, timeout_s: float | None
) -> tuple[dict[str, Any], Any, str]:
    """As :func:`_ask` and :func:`_wait_in_sync`."""
    if wait is None:
        return _ask(address, limits, timeout_s=timeout_s or _ANSWER_S)
    return _wait_in_sync(address, limits, timeout_s=timeout_s or 60.0)


def _ask(address: str, limits: "LagLimits", *, timeout_s: float) -> tuple[dict[str, Any], Any, str]:
    """The broker's facts, the verdict, and both as lines.

    Raises:
        UnreachableError: nobody answers.
        CliError: what it says is no broker's status.
    """
    from rmqha.cli.ask import runtime_table  # noqa: PLC0415 - the codec is not for --help
    from rmqha.cli.lag_limits import within_limits  # noqa: PLC0415
    from rmqha.cli.status_text import render_status  # noqa: PLC0415
    from rmqha.cli.verdict import judge, read_status  # noqa: PLC0415
    from rmqha.logs import escaped  # noqa: PLC0415

    table = runtime_table(address, timeout_s=timeout_s)
    try:
        facts = read_status(table)
        verdict = within_limits(judge(facts), facts, limits)
        return facts, verdict, render_status(facts, verdict)
    except _NO_STATUS as error:
        raise CliError(
            f"what the broker at {address} says of itself is no status",
            why=escaped(f"{type(error).__name__}: {error}"[:_REASON_SIZE_MAX]),
            hint="is it of a newer version than this command, or no broker at all?",
        ) from None


def _wait_in_sync(address: str, limits: "LagLimits", *, timeout_s: float) -> tuple[dict[str, Any], Any, str]:
    """Ask until the verdict says in sync; a broker that is just starting may be unreachable meanwhile.

    Raises:
        UnreachableError: nobody answered at the end.
        CliError: it was reachable, and not in sync in time, or never will be.
    """
    from rmqha.cli.pages import Page  # noqa: PLC0415
    from rmqha.logs import escaped  # noqa: PLC0415

    deadline = time.monotonic() + timeout_s
    while True:
        left_s = deadline - time.monotonic()
        try:
            facts, verdict, text = _ask(address, limits, timeout_s=max(min(left_s, _ANSWER_S), _ANSWER_MIN_S))
        except UnreachableError:
            if left_s <= ASK_AGAIN_AFTER_S:
                raise
        else:
            if verdict.in_sync:
                return facts, verdict, text
            why = escaped("; ".join(verdict.reasons) or verdict.summary)
            if facts.get("damaged_records"):
                raise CliError("its log is not whole, which no waiting mends", why=why, hint=f"see {Page.DAMAGED}")
            if left_s <= ASK_AGAIN_AFTER_S:
                raise CliError(f"not in sync within {timeout_s:g} s", why=why, hint="ask the other broker, too")
        time.sleep(ASK_AGAIN_AFTER_S)
