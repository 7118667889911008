"""Options that several commands share."""

import time
from collections.abc import Callable
from math import isnan
from typing import Any, TypeVar

import click
from click.core import ParameterSource

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_BROKER = "127.0.0.1:10911"
_SECONDS_MAX = 1e8
"""Three years: as good as no limit, and no more than a socket takes."""


class Seconds(click.FloatRange):
    """A time in seconds; a longer one than anybody waits is the longest there is."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """As every type of click's."""
        seconds = float(super().convert(value, param, ctx))
        if isnan(seconds):
            self.fail(f"{value} is no time", param, ctx)
        return min(seconds, _SECONDS_MAX)


SECONDS = Seconds(0.001)
_CONTEXT = "rmqha.context"


def words_option(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Read a repeated option of words, none of which is empty."""
    if not all(values):
        raise click.BadParameter("is empty, as an unset variable is: leave it out to read all")
    return values


def addresses_option(_ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Read a repeated option of addresses, of which each may be a list; the port is 10911 where none is given."""
    from rmqha.config.kinds import split_address  # noqa: PLC0415 - not for --help

    parts = [part.strip() for value in values for part in value.replace(",", ";").split(";")]
    addresses = [part if ":" in part else f"{part}:10911" for part in parts if part]
    try:
        for address in addresses:
            split_address(address)
    except ValueError as error:
        raise click.BadParameter(str(error), param=param) from None
    if values and not addresses:
        raise click.BadParameter("no address is given", param=param)
    return tuple(dict.fromkeys(addresses))


def _context(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.meta[_CONTEXT] = (value, ctx.get_parameter_source(str(param.name)))


def _brokers(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """The command line counts before the environment, and the default last."""
    name, context_from = ctx.meta.get(_CONTEXT, (None, None))
    given = ctx.get_parameter_source(str(param.name))
    if given is ParameterSource.COMMANDLINE and context_from is ParameterSource.COMMANDLINE:
        raise click.UsageError("--broker and --context exclude each other.")
    if given is context_from is ParameterSource.ENVIRONMENT:
        raise click.UsageError(
            "RMQHA_BROKER and RMQHA_CONTEXT are both set, and exclude each other: unset one, or give --broker or "
            "--context."
        )
    if name is not None and (given is ParameterSource.DEFAULT or context_from is ParameterSource.COMMANDLINE):
        from rmqha.cli.contexts import addresses_of  # noqa: PLC0415 - not for --help

        try:
            return addresses_option(ctx, param, addresses_of(name))
        except click.BadParameter as error:
            raise click.UsageError(f"the context {name}: {error.message}") from None
    return addresses_option(ctx, param, values)


def brokers_option(told: str) -> Callable[[F], F]:
    """Add ``--broker HOST[:PORT]``, once or more often; arrives as the argument ``addresses``, with ports, not empty.

    ``--context NAME`` stands for addresses that a file has.

    Args:
        told: what the help says about it.
    """
    add_context = click.option(
        "--context", metavar="NAME", envvar="RMQHA_CONTEXT", show_envvar=True, is_eager=True, expose_value=False,
        callback=_context, help="The brokers that contexts.toml has by this name: 'rmqha config contexts'.",
    )  # fmt: skip
    add_broker = click.option(
        "-b", "--broker", "addresses", metavar="HOST[:PORT]", multiple=True, default=[DEFAULT_BROKER],
        envvar="RMQHA_BROKER", show_default=True, show_envvar=True, callback=_brokers, help=told,
    )  # fmt: skip
    return lambda command: add_broker(add_context(command))


def cluster_options(command: F) -> F:
    """Add ``--broker``, ``--format`` and ``--timeout``: ``addresses``, ``output`` (text or json), ``timeout_s``."""
    told = "A broker's listenPort, or a name server's, which stands for all masters that it knows. Can be repeated."
    add_format = click.option(
        "--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True,
        help="json: an object for each row.",
    )  # fmt: skip
    add_timeout = click.option(
        "--timeout", "timeout_s", type=SECONDS, default=5.0, show_default=True, metavar="SECONDS",
        help="For each answer.",
    )  # fmt: skip
    return brokers_option(told)(add_format(add_timeout(command)))


def time_option(_ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Read an option that is a time (``2026-11-21T10:00``, milliseconds, ``-15m``) as milliseconds since the epoch."""
    from rmqha.cli.when import parse_time  # noqa: PLC0415

    if value is None:
        return None
    try:
        return parse_time(value.removeprefix("@"), now_ms=time.time_ns() // 1_000_000)
    except ValueError as error:
        raise click.BadParameter(str(error), param=param) from None


def span_option(_ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Read an option that is a span of time (``500ms``, ``10s``, ``1m``) as seconds."""
    from rmqha.cli.when import parse_span  # noqa: PLC0415

    if value is None:
        return None
    try:
        return parse_span(value)
    except ValueError as error:
        raise click.BadParameter(str(error), param=param) from None


def listen_option(_ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, str] | None:
    """Split an option ``[host:]port``; port 0 asks the system for a free one."""
    if value is None:
        return None
    host, _, port = value.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise click.BadParameter(f"{value!r} is neither PORT nor HOST:PORT", param=param)
    return host, port


def settings_option(_ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Read the repeated option ``--set KEY=VALUE``; the last one of a key wins."""
    settings: dict[str, str] = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{value!r} is not KEY=VALUE", param=param)
        settings[key.strip()] = text
    return settings
