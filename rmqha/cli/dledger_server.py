"""``rmqha dledger server``: one process, one member of a DLedger group."""

import sys

import click

from rmqha.cli.dledger_options import group_options
from rmqha.cli.options import settings_option

_LOG_FORMATS = ["auto", "console", "json"]
_LOG_LEVELS = ["debug", "info", "warning", "error"]


@click.command(
    epilog="""\b
Examples:
  rmqha dledger server                                  # a group of one, on localhost:20911
  P='n0-127.0.0.1:20911;n1-127.0.0.1:20912;n2-127.0.0.1:20913'
  rmqha dledger server -i n0 -p "$P" -s /data
  rmqha dledger server -i n1 -p "$P" -s /data --set heartBeatTimeIntervalMs=500

The member listens on its own entry of --peers only, and accepts once it has recovered its store. Members may be Java's
DLedger 0.3.1.2: mappedFileSizeForEntryData has to be the same on all. Logs go to stderr.

\b
Exit codes: 0 stopped in order (SIGTERM, ctrl-c, its terminal closed), 1 could not start, 2 wrong usage,
4 its disk failed, 130 stopped at once.
"""
)
@click.option("-i", "--id", "self_id", metavar="ID", default="n0", show_default=True, help="Which of --peers this is.")
@group_options
@click.option(
    "-s", "--store-base-dir", "--store", "store_base_dir", metavar="DIR", default="/tmp/dledgerstore",  # noqa: S108
    show_default=True, help="The store is DIR/dledger-ID.",
)  # fmt: skip
@click.option(
    "--set", "settings", metavar="KEY=VALUE", multiple=True, callback=settings_option,
    help="An option of DLedgerConfig, or dledgerAck=flushed|written. Can be repeated.",
)  # fmt: skip
@click.option("--log-format", type=click.Choice(_LOG_FORMATS), default="auto", show_default=True)
@click.option("--log-level", type=click.Choice(_LOG_LEVELS), default="info", show_default=True)
def server(
    *,
    self_id: str,
    group: str,
    peers: dict[str, str],
    store_base_dir: str,
    settings: dict[str, str],
    log_format: str,
    log_level: str,
) -> None:
    """Start a member of a DLedger group: it votes, leads or follows, and keeps the group's log."""
    from rmqha.broker.dledger.dledger_options import server_options  # noqa: PLC0415 - not for --help
    from rmqha.config.dledger_peers import check_name  # noqa: PLC0415
    from rmqha.config.load_dledger import load_dledger_settings  # noqa: PLC0415
    from rmqha.dledger.main import run_server  # noqa: PLC0415
    from rmqha.logs import setup_logging  # noqa: PLC0415

    try:
        check_name(group)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--group") from None
    if self_id not in peers:
        raise click.BadParameter(f"--peers has no member {self_id!r}, but {', '.join(peers)}", param_hint="--id")
    options = server_options(
        load_dledger_settings(settings), group, self_id, peers=peers, store_base_dir=store_base_dir
    )
    setup_logging(log_format=log_format, level=log_level)
    sys.exit(run_server(options))
