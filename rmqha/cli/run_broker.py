"""``rmqha broker``, ``rmqha master`` and ``rmqha slave``: one process, one broker."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from rmqha.cli.options import listen_option, settings_option
from rmqha.errors import ConfigError

if TYPE_CHECKING:
    from rmqha.config import BrokerConfig

_LOG_FORMATS: Final = ["auto", "console", "json"]
_LOG_LEVELS: Final = ["debug", "info", "warning", "error"]
_NOT_TOLD: Final = ("0.0.0.0", "::", "", "localhost")  # noqa: S104 - recognised here, not bound
"""Addresses to listen on that clients cannot be told."""

_MASTER_EPILOG: Final = """\b
Examples:
  rmqha master -c conf/master.conf
  rmqha master --store /data/m --set brokerRole=SYNC_MASTER --set flushDiskType=SYNC_FLUSH
  rmqha master --listen 10.0.0.5:10911 --ha-listen 10.0.0.5:10912 --set allowInsecure=true

SIGTERM, ctrl-c or the end of its terminal (without nohup) ends it after the answers that are still due; a second one
ends it at once.

\b
Exit codes: 0 stopped in order, 1 could not start or had to stop, 2 wrong configuration,
4 its disk or its queues failed, 130 stopped at once.
"""

_SLAVE_EPILOG: Final = """\b
Examples:
  rmqha slave -c conf/slave.conf
  rmqha slave --ha-master 127.0.0.1:10912 --store /data/s --listen 127.0.0.1:10921

Without a file, --store is ~/store-slave and --listen is 127.0.0.1:10921, so that a master on the same
machine keeps its own. SIGTERM, ctrl-c or the end of its terminal (without nohup) ends it; a second one
ends it at once.

\b
Exit codes: 0 stopped in order, 1 could not start or had to stop, 2 wrong configuration,
4 its disk or its queues failed, 5 it could not follow its master any more, 130 stopped at once.
"""

_BROKER_EPILOG: Final = """\b
Examples:
  rmqha broker -c conf/broker.conf
  rmqha broker -c conf/dledger-n0.conf

What the file does not say about its role is a master. With enableDLegerCommitLog=true the broker is a member of a
DLedger group: master while it leads, and else a slave. SIGTERM, ctrl-c or the end of its terminal (without nohup) ends
it; a second one ends it at once.

\b
Exit codes: 0 stopped in order, 1 could not start or had to stop, 2 wrong configuration,
4 its disk or its queues failed, 5 it could not follow its master any more, 130 stopped at once.
"""


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """Add what master and slave have in common."""
    conf_type = click.Path(exists=True, dir_okay=False, path_type=Path)
    options = (
        click.option("-c", "--config", "path", type=conf_type, help="A broker.conf with RocketMQ's keys."),
        click.option("--store", help="Directory of the store (storePathRootDir)."),
        click.option("--listen", metavar="[HOST:]PORT", callback=listen_option, help="For clients."),
        click.option("--ha-listen", metavar="[HOST:]PORT", callback=listen_option, help="For slaves."),
        click.option(
            "--set", "settings", metavar="KEY=VALUE", multiple=True, callback=settings_option,
            help="Any key of broker.conf; wins over the file. Can be repeated.",
        ),
        click.option("--log-format", type=click.Choice(_LOG_FORMATS), default="auto", show_default=True),
        click.option("--log-level", type=click.Choice(_LOG_LEVELS), default="info", show_default=True),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@click.command(epilog=_BROKER_EPILOG)
@_options
def broker(**options: Any) -> None:
    """Start the broker that a file describes: a master, a slave, or a member of a DLedger group.

    Configured by -c FILE, and by options, which win. Logs go to stderr.
    """
    _run(build_config("broker", **_without_logging(options)), options)


@click.command(epilog=_MASTER_EPILOG)
@_options
def master(**options: Any) -> None:
    """Start a master: it takes messages, replicates them to slaves, and serves consumers.

    Configured by -c FILE, by options, or by both (options win). Logs go to stderr.
    """
    _run(build_config("master", **_without_logging(options)), options)


@click.command(epilog=_SLAVE_EPILOG)
@click.option("--ha-master", metavar="HOST:PORT", help="The HA port to copy from (haMasterAddress).")
@_options
def slave(**options: Any) -> None:
    """Start a slave: it copies a master's log, acknowledges what it has on disk, and serves consumers.

    Configured by -c FILE, by options, or by both (options win). Logs go to stderr.
    """
    _run(build_config("slave", **_without_logging(options)), options)


def _without_logging(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in ("log_format", "log_level")}


def build_config(
    command: str,
    *,
    path: Path | None,
    store: str | None = None,
    listen: tuple[str, str] | None = None,
    ha_listen: tuple[str, str] | None = None,
    ha_master: str | None = None,
    settings: dict[str, str] | None = None,
) -> "BrokerConfig":
    """Return the configuration that the options and the file give ``command`` ("broker", "master" or "slave").

    Raises:
        ConfigError: something in them is wrong, or the file is for the other command.
    """
    from rmqha.config import load_config  # noqa: PLC0415 - not for --help

    overrides: dict[str, str] = {}
    defaults: dict[str, str] = {}
    if command == "slave":
        defaults["brokerRole"] = "SLAVE"
        if path is None:
            defaults |= {"listenPort": "10921", "storePathRootDir": "~/store-slave"}
    for place, bind, port, advertised in (
        (listen, "bindAddress", "listenPort", "brokerIP1"),
        (ha_listen, "haBindAddress", "haListenPort", "brokerIP2"),
    ):
        if place is not None:
            overrides[port] = place[1]
            if place[0]:
                overrides[bind] = place[0]
            if place[0] not in _NOT_TOLD:
                defaults[advertised] = place[0]
    if store is not None:
        overrides |= {"storePathRootDir": store, "storePathCommitLog": ""}
    if ha_master is not None:
        overrides["haMasterAddress"] = ha_master
    config = load_config(path, overrides | (settings or {}), defaults=defaults)
    if command == "broker":
        return config
    if config.enable_dleger_commit_log:
        where = config.origins["enableDLegerCommitLog"]
        raise ConfigError(
            f"'rmqha {command}' was given enableDLegerCommitLog=true ({where}): the group elects who is master; use "
            "'rmqha broker'"
        )
    if config.is_slave != (command == "slave"):
        where = config.origins.get("brokerRole", "the default")
        other = "slave" if config.is_slave else "master"
        raise ConfigError(f"'rmqha {command}' was given brokerRole={config.broker_role} ({where}); use 'rmqha {other}'")
    return config


def _run(config: "BrokerConfig", options: dict[str, Any]) -> None:
    from rmqha.broker.main import run_broker  # noqa: PLC0415 - trio and the store: not for --help
    from rmqha.logs import setup_logging  # noqa: PLC0415
    from rmqha.metrics.start import observe_broker  # noqa: PLC0415

    observe = observe_broker(config)
    setup_logging(log_format=options["log_format"], level=options["log_level"])
    sys.exit(run_broker(config, observe=observe))
