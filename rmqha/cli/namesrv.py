"""``rmqha namesrv``: one process, one name server."""

import sys
from pathlib import Path

import click

from rmqha.cli.options import listen_option, settings_option

_LOG_FORMATS = ["auto", "console", "json"]
_LOG_LEVELS = ["debug", "info", "warning", "error"]


@click.command(
    epilog="""\b
Examples:
  rmqha namesrv                                         # on 127.0.0.1:9876
  rmqha namesrv --listen 10.0.0.5:9876 --set allowInsecure=true
  rmqha namesrv -c namesrv.conf --set kvConfigPath=/data/kvConfig.json

Brokers and clients of rmqha and RocketMQ name it as namesrvAddr; several are named with ';' between them, and know
nothing of each other. A broker that stops is forgotten at once, one that is silent after 120 s. All keys are in
docs/configuration.md. Logs go to stderr.

\b
Exit codes: 0 stopped in order (SIGTERM, ctrl-c, its terminal closed), 1 could not start, 2 wrong usage,
130 stopped at once. SIGHUP to one without a terminal has TLS certificates read again.
"""
)
@click.option(
    "-c", "--config", "path", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A namesrv.conf with RocketMQ's keys.",
)  # fmt: skip
@click.option("--listen", metavar="[HOST:]PORT", callback=listen_option, help="For brokers and clients.")
@click.option(
    "--set", "settings", metavar="KEY=VALUE", multiple=True, callback=settings_option,
    help="Any key of namesrv.conf; wins over the file. Can be repeated.",
)  # fmt: skip
@click.option("--log-format", type=click.Choice(_LOG_FORMATS), default="auto", show_default=True)
@click.option("--log-level", type=click.Choice(_LOG_LEVELS), default="info", show_default=True)
def namesrv(
    *, path: Path | None, listen: tuple[str, str] | None, settings: dict[str, str], log_format: str, log_level: str
) -> None:
    """Start a name server: brokers register with it, and clients find them there."""
    from rmqha.config.load_namesrv import load_namesrv  # noqa: PLC0415 - not for --help
    from rmqha.logs import setup_logging  # noqa: PLC0415
    from rmqha.metrics.start import observe_name_server  # noqa: PLC0415
    from rmqha.namesrv.main import run_name_server  # noqa: PLC0415

    place: dict[str, str] = {}
    if listen is not None:
        host, port = listen
        place = {"listenPort": port} | ({"bindAddress": host} if host else {})
    config = load_namesrv(path, place | settings)
    observe = observe_name_server(config)
    setup_logging(log_format=log_format, level=log_level)
    sys.exit(run_name_server(config, observe=observe))
