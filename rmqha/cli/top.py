"""``rmqha top``: rates and lag, refreshed."""

import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from rmqha.cli.options import cluster_options, span_option
from rmqha.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_UNREACHABLE

if TYPE_CHECKING:
    from rmqha.cli.top_samples import Sample

_CLEAR: Final = "\033[H\033[2J"
_GROUPS_SHOWN: Final = 10


@click.command(
    epilog="""\b
Examples:
  rmqha top
  rmqha top --broker namesrv-host:9876 --interval 5s
  rmqha top --count 1 --format json | jq .consumerLag
  rmqha top --interval 1m --no-groups >> top.log

\b
Exit codes: 0 shown --count times, 1 a broker refused at last, 2 wrong usage, 3 one was unreachable, 130 interrupted.
"""
)
@cluster_options
@click.option("--interval", "interval_s", default="2s", show_default=True, callback=span_option, metavar="SPAN",
              help="Between two refreshes: 500ms, 2s, 1m.")  # fmt: skip
@click.option("--count", type=click.IntRange(1), help="End after so many refreshes.")
@click.option("--no-groups", is_flag=True, help="Leave the groups' lag out: a broker looks at all their queues for it.")
@click.pass_context
def top(
    ctx: click.Context,
    *,
    addresses: tuple[str, ...],
    output: str,
    timeout_s: float,
    interval_s: float,
    count: int | None,
    no_groups: bool,
) -> None:
    """Show for each broker what is put and got, how far its slaves are behind, and how far its consumers are.

    On a terminal the screen is refreshed; otherwise each refresh is a line for each broker. Messages per second and
    the P99 of the answers to puts are those of the last ten seconds (a RocketMQ broker tells the P99 of its last whole
    minute), bytes per second those since the last refresh. UNDER-REPL: of the replicas that there were, or that a send
    needs, so many hold the log. A slave that is gone counts, and is shown with when it was last seen.
    """
    from rmqha.cli.named_brokers import named_brokers  # noqa: PLC0415 - not for --help
    from rmqha.cli.top_samples import take_samples  # noqa: PLC0415

    brokers = named_brokers(addresses, timeout_s=timeout_s, may_be_away=True).brokers
    show = _show_json if output == "json" else _show_screen if sys.stdout.isatty() else _show_lines
    samples: dict[str, Sample] = {}
    number = 0
    try:
        while count is None or number < count:
            if number:
                time.sleep(interval_s)
            samples = take_samples(brokers, samples, with_groups=not no_groups, timeout_s=timeout_s)
            show(list(samples.values()), number)
            sys.stdout.flush()
            number += 1
    except KeyboardInterrupt:
        ctx.exit(EXIT_INTERRUPTED)
    if any(sample.trouble and not sample.is_refused for sample in samples.values()):
        ctx.exit(EXIT_UNREACHABLE)
    if any(sample.is_refused for sample in samples.values()):
        ctx.exit(EXIT_FAILED)


def _show_json(samples: "list[Sample]", _number: int) -> None:
    from rmqha.cli.output import echo_json  # noqa: PLC0415

    for sample in samples:
        echo_json(sample.as_json())


def _show_lines(samples: "list[Sample]", number: int) -> None:
    from rmqha.cli.top_samples import COLUMNS  # noqa: PLC0415

    if number == 0:
        click.echo(_aligned(["TIME", *COLUMNS]))
    now = time.strftime("%H:%M:%S")
    for sample in samples:
        click.echo("  ".join([_aligned([now, *sample.cells()]), *_remarks(sample)]))


def _remarks(sample: "Sample") -> list[str]:
    from rmqha.logs import escaped  # noqa: PLC0415

    return [escaped(remark) for remark in sample.remarks]


def _aligned(cells: list[str]) -> str:
    """Columns as wide as in all other lines, whose cells are not known yet."""
    widths = (8, 20, 12, 9, 9, 10, 8, 10, 10, 11, 13)
    sides = (str.ljust, str.ljust, str.ljust, *[str.rjust] * 8)
    return "  ".join(side(cell, width) for cell, width, side in zip(cells, widths, sides, strict=True)).rstrip()


def _show_screen(samples: "list[Sample]", _number: int) -> None:
    from rmqha.cli.table import render_table  # noqa: PLC0415
    from rmqha.cli.top_samples import COLUMNS  # noqa: PLC0415
    from rmqha.logs import escaped  # noqa: PLC0415

    lags: dict[str, int] = {}
    for sample in samples:
        for group, lag in sample.group_lags.items():
            lags[group] = lags.get(group, 0) + lag
    behind = sorted(lags.items(), key=lambda entry: (-entry[1], entry[0]))[:_GROUPS_SHOWN]
    parts: list[Any] = [time.strftime("%Y-%m-%d %H:%M:%S"), render_table(COLUMNS, [one.cells() for one in samples])]
    remarks = [f"{escaped(sample.broker.name)}: {remark}" for sample in samples for remark in _remarks(sample)]
    parts += ["\n".join(remarks)] if remarks else []
    if behind:
        parts.append(render_table(("GROUP", "LAG"), behind))
    click.echo(_CLEAR + "\n\n".join(parts))
