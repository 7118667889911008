"""``rmqha dashboard``: a page in the browser that shows brokers, and changes nothing."""

import sys
from typing import Final

import click
from click.core import ParameterSource

from rmqha.cli.options import Seconds, addresses_option, brokers_option, listen_option, span_option

_HOST: Final = "127.0.0.1"


def _name_servers(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """The port is 9876 where none is given."""
    parts = [part.strip() for value in values for part in value.replace(",", ";").split(";")]
    return addresses_option(ctx, param, tuple(part if ":" in part else f"{part}:9876" for part in parts if part))


@click.command(
    epilog="""\b
Examples:
  rmqha dashboard
  rmqha dashboard --broker 10.0.0.5:10911 --broker 10.0.0.6:10911
  rmqha dashboard --namesrv 10.0.0.4:9876 --listen 8091
  RMQHA_CREDENTIALS=tools.yml rmqha dashboard --context prod

The page is at http://127.0.0.1:8090 until ctrl-c, and is read-only. It has no password, and shows messages: leave it on
loopback, and reach it from elsewhere by 'ssh -L 8090:127.0.0.1:8090 HOST'. It needs the extra [web].

\b
Exit codes: 0 stopped (SIGTERM, ctrl-c), 1 could not start, 2 wrong usage or no [web], 130 stopped at once.
"""
)
@brokers_option("A broker's listenPort, or a name server's, which stands for all that it knows. Can be repeated.")
@click.option(
    "--namesrv", "name_servers", metavar="HOST[:PORT]", multiple=True, callback=_name_servers,
    help="A name server: all brokers that it knows, slaves too. Can be repeated.",
)  # fmt: skip
@click.option(
    "--listen", metavar="[HOST:]PORT", default=f"{_HOST}:8090", show_default=True, callback=listen_option,
    help="Where the page is. Who reaches an address that is not loopback sees what is in your messages.",
)  # fmt: skip
@click.option(
    "--name", "names", metavar="NAME", multiple=True,
    help="A name by which browsers reach it: IP addresses and localhost need none. Can be repeated.",
)  # fmt: skip
@click.option(
    "--interval", "interval_s", default="5s", show_default=True, callback=span_option, metavar="SPAN",
    help="Between two questions to a broker: 2s to 1m.",
)  # fmt: skip
@click.option(
    "--timeout", "timeout_s", type=Seconds(0.1, 60), default=3.0, show_default=True, metavar="SECONDS",
    help="For each answer of a broker.",
)  # fmt: skip
@click.option("--no-groups", is_flag=True, help="Leave the groups' lag out: a broker looks at all their queues for it.")
@click.pass_context
def dashboard(
    ctx: click.Context,
    *,
    addresses: tuple[str, ...],
    name_servers: tuple[str, ...],
    listen: tuple[str, str],
    names: tuple[str, ...],
    interval_s: float,
    timeout_s: float,
    no_groups: bool,
) -> None:
    """Show brokers in the browser: who follows whom, lag and why, the last hour, topics, groups, a message.

    What the page knows of the last hour is what this process has asked for since its start.
    """
    from rmqha.cli.credentials import client_credentials  # noqa: PLC0415 - not for --help
    from rmqha.errors import ConfigError  # noqa: PLC0415
    from rmqha.logs import setup_logging  # noqa: PLC0415

    try:
        from rmqha.dashboard.server import Options, run_dashboard  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(f"rmqha dashboard needs h11 ({error}): pip install 'rmqha[web]'") from None
    if not 2 <= interval_s <= 60:
        raise click.BadParameter("it is 2s to 1m", param_hint="--interval")
    if name_servers and ctx.get_parameter_source("addresses") is ParameterSource.DEFAULT:
        addresses = ()
    client_credentials()  # what is wrong with them is told now
    setup_logging(log_format="auto", level="info")
    host, port = listen
    options = Options(
        addresses=(*addresses, *name_servers), host=host or _HOST, port=int(port), names=names, interval_s=interval_s,
        timeout_s=timeout_s, with_groups=not no_groups,
    )  # fmt: skip
    sys.exit(run_dashboard(options))
