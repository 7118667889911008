"""``rmqha replay``: the batch job from the command line."""

from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import click

from rmqha.cli.errors import CliError
from rmqha.cli.options import addresses_option, time_option
from rmqha.cli.output import describe_os_error, flush_output, give_up_buffers
from rmqha.cli.progress import progress
from rmqha.errors import ConfigError

_PRUNED_MAX = 0.95
"""Of the bytes asked for. Splits that are read as a whole read some of them twice."""

if TYPE_CHECKING:
    from rmqha.spark.confirmed import Masters
    from rmqha.spark.replay import Progress, ReplayOptions, ReplayReport


@click.command(
    epilog="""\b
Examples:
  rmqha replay /data/s --out /lake/orders --topic orders
  rmqha replay /data/s --out /lake/all                  # again: only what is new
  rmqha replay /data/s --out /tmp/day --since @2026-11-20 --until @2026-11-21 --decompress
  rmqha replay /backup/s --out s3://lake/all --on-corrupt skip
  rmqha replay /data/s --out /lake/all --confirmed-by 10.0.0.1   # nothing that a failover may cut
  rmqha replay /data/dledger-n0 --out /lake/all         # of a DLedger member: what is committed
  rmqha replay /data/s --out /lake/all --master spark://10.0.0.7:7077

\b
Exit codes: 0 done, 1 the log is damaged or the job failed (nothing was written, unless it says that the run is
committed), 2 wrong usage.
"""
)
@click.argument("store")
@click.option("--out", required=True, metavar="DIR", help="Where to write; a later run goes on there.")
@click.option("--topic", "topics", multiple=True, help="Only this topic; can be repeated.")
@click.option("--topic-pattern", metavar="REGEX", help="Only topics that match as a whole.")
@click.option("--queue", "queues", type=click.IntRange(0), multiple=True, help="Only this queue id; can be repeated.")
@click.option("--tag", "tags", multiple=True, help="Only this tag; can be repeated.")
@click.option("--key", "keys", multiple=True, help="Only messages with this key, or with this UNIQ_KEY.")
@click.option("--since", callback=time_option, metavar="TIME", help="First store time: 2026-11-21T10:00, ms, -15m.")
@click.option("--until", callback=time_option, metavar="TIME", help="Store time before which to end.")
@click.option("--from-offset", type=click.IntRange(0), help="First physical offset; for the first run only.")
@click.option("--to-offset", type=click.IntRange(0), help="Physical offset before which to end; the log must reach it.")
@click.option(
    "--confirmed-by",
    "masters",
    metavar="HOST[:PORT]",
    multiple=True,
    callback=addresses_option,
    help="Only what replicas hold, as the store's master at this address says; of several, whichever is master.",
)
@click.option("--system-topics", is_flag=True, help="Also scheduled, half, retry and dead-letter topics.")
@click.option(
    "--include-deleted", is_flag=True, help="Also messages whose topic was deleted, while the log holds them."
)
@click.option("--full-scan", is_flag=True, help="Read all of the log, not only what consume queues name as --topic's.")
@click.option("--columns", metavar="A,B,...", help="Only these columns, see docs/replay.md.")
@click.option("--decompress", is_flag=True, help="Write bodies inflated.")
@click.option("--format", "output_format", type=click.Choice(["parquet", "json"]), default="parquet", show_default=True)
@click.option(
    "--on-corrupt",
    type=click.Choice(["fail", "skip", "stop"]),
    default="fail",
    show_default=True,
    help="Damage: write nothing, leave the damaged records out, or end before the first.",
)
@click.option("--no-crc", is_flag=True, help="Do not check the bodies' CRCs.")
@click.option("--allow-gap", is_flag=True, help="Go on although files were deleted before they were replayed.")
@click.option("--broker-name", default="broker", show_default=True, help="Value of the column brokerName.")
@click.option("--master", metavar="URL", help="Spark's master: local[4], spark://HOST:7077, ...  [default: local[*]]")
def replay(store: str, out: str, **options: Any) -> None:
    """Write the messages of STORE to DIR: Parquet or JSON lines, a directory a topic, and a manifest.

    STORE is a store's directory, its commitlog directory, or a DLedger member's, live or copied, or a URI (s3://,
    hdfs://, ...). A further run into the same DIR continues exactly where the last one ended. Spark runs it: on all
    cores of this machine, or where --master or spark-submit says.
    """
    try:
        import pyarrow  # noqa: PLC0415 - an extra
        import pyspark  # noqa: F401, PLC0415
    except ImportError as error:
        hint = "pip install 'rmqha[spark]'; rmqha log dump needs none of it"
        raise CliError("replay needs PySpark, pyarrow and numpy", why=str(error), hint=hint) from None
    from rmqha.spark.replay import UnplacedFilesError  # noqa: PLC0415
    from rmqha.spark.replay import replay as run  # noqa: PLC0415

    try:
        with ExitStack() as stack:
            report = run(_options(store, out, **options), _bar(stack))
    except ConfigError as error:
        raise click.UsageError(str(error), click.get_current_context()) from None
    except UnplacedFilesError as error:
        if error.report is not None:
            _show(error.report)
        raise
    except (OSError, pyarrow.ArrowException) as error:
        hint = "repair that and run the same again: it goes on where the last complete run ended"
        raise CliError(f"the replay failed: {error}", hint=hint) from error
    try:
        _show(report)
        flush_output()
    except OSError as error:  # what was written stays: the exit code tells of that
        give_up_buffers()
        with suppress(OSError):
            click.echo(f"The replay is done, up to offset {report.end}; {describe_os_error(error)}", err=True)


def _options(store: str, out: str, **options: Any) -> "ReplayOptions":
    from rmqha.spark import OnCorrupt, ReadOptions  # noqa: PLC0415
    from rmqha.spark.replay import OutputFormat, ReplayOptions  # noqa: PLC0415

    read = ReadOptions(
        columns=tuple(name.strip() for name in options["columns"].split(",")) if options["columns"] else None,
        topics=options["topics"] or None,
        topic_pattern=options["topic_pattern"],
        queues=options["queues"] or None,
        keys=options["keys"] or None,
        tags=options["tags"] or None,
        starting_offset=options["from_offset"],
        ending_offset=options["to_offset"],
        starting_timestamp_ms=options["since"],
        ending_timestamp_ms=options["until"],
        include_system_topics=options["system_topics"],
        include_deleted=options["include_deleted"],
        use_consume_queues=not options["full_scan"],
        check_crc=not options["no_crc"],
        on_corrupt=OnCorrupt(options["on_corrupt"]),
        decompress=options["decompress"],
        broker_name=options["broker_name"],
    )
    return ReplayOptions(
        store,
        out,
        read,
        format=OutputFormat(options["output_format"]),
        master=options["master"],
        allow_gap=options["allow_gap"],
        masters=_masters(options["masters"]),
    )


def _masters(addresses: tuple[str, ...]) -> "Masters | None":
    """With the environment's credentials and certificates, as for all commands."""
    from rmqha.cli.credentials import client_credentials  # noqa: PLC0415 - for those who ask
    from rmqha.cli.tls import secured_socket  # noqa: PLC0415
    from rmqha.spark.confirmed import Masters  # noqa: PLC0415

    return Masters(addresses, credentials=client_credentials, secure=secured_socket) if addresses else None


def _bar(stack: ExitStack) -> Callable[["Progress"], None]:
    """A bar on stderr that appears with the first report, which knows the total."""
    shown: list[Callable[..., None]] = []
    done = 0

    def on_progress(now: "Progress") -> None:
        nonlocal done
        if not shown:
            shown.append(stack.enter_context(progress("Replay", total=now.total_bytes >> 20, unit="MiB")))
        shown[0]((now.done_bytes >> 20) - done, f"MiB, {now.doing}")
        done = now.done_bytes >> 20

    return on_progress


def _warn_unmatched(report: "ReplayReport") -> None:
    """A topic's name that is mistyped is no error: it may come later. But it is said."""
    from rmqha.cli.nearest import near_names  # noqa: PLC0415
    from rmqha.logs import escaped  # noqa: PLC0415

    for topic in report.unmatched:
        near = ", ".join(map(escaped, near_names(topic, report.topics_met)))
        meant = f": is one of these meant? {near}" if near else ""
        where = f"no message of [{report.begin}, {report.end}) is of it"
        click.echo(f"Warning: --topic {escaped(topic)}: {where}{meant}", err=True)
    if report.is_first and report.records and not (report.messages or report.unmatched or report.deleted):
        click.echo(f"Warning: none of {report.records:,} records is a message that was asked for", err=True)


def _show(report: "ReplayReport") -> None:
    """The totals by topic on stdout; what needs attention on stderr."""
    if report.manifest is None:
        click.echo(f"Nothing new before offset {report.end}.")
    else:
        width = min(40, max([len("topic"), *map(len, report.topics)]))
        click.echo(f"{'topic':<{width}}  {'messages':>12}  {'body bytes':>16}")
        for topic, totals in sorted(report.topics.items()):
            click.echo(f"{topic:<{width}}  {totals.messages:>12,}  {totals.body_bytes:>16,}")
        click.echo(
            f"{report.messages:,} messages of [{report.begin}, {report.end}), {report.records:,} records read, "
            f"{len(report.files)} files by Spark on {report.master}"
        )
        if report.bytes_read < report.bytes_asked_for * _PRUNED_MAX:
            click.echo(
                f"{report.bytes_read:,} bytes read of {report.bytes_asked_for:,}: the others hold other topics, by the "
                "consume queues"
            )
        click.echo(f"Manifest: {report.manifest}")
    _warn_unmatched(report)
    if report.deleted:
        click.echo(
            f"{report.deleted:,} messages of deleted topics are left out: --include-deleted takes them as well",
            err=True,
        )
    if report.system:
        told = f"{report.system:,} messages of the broker's own topics, retry and dead-letter topics among them, are"
        click.echo(f"{told} left out: --system-topics takes them as well", err=True)
    for damage in report.corrupt:
        click.echo(f"Left out: [{damage.start}, {damage.end}) {damage.reason}", err=True)
    if report.not_inflated:
        click.echo(
            f"{report.not_inflated:,} bodies could not be decompressed and are as stored (sysFlag & 1)", err=True
        )
    if report.unfinished:
        click.echo(f"Reading ended at offset {report.end}: {report.unfinished}", err=True)
