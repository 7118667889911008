"""The command ``rmqha``: names, one-line helps, and the one place where errors become words and exit codes."""

import sys
from contextlib import suppress
from typing import Final

import click

from rmqha import __version__
from rmqha.cli.errors import CliError
from rmqha.cli.lazy import LazyGroup
from rmqha.cli.output import describe_os_error, escape_the_unwritable, flush_output, give_up_buffers
from rmqha.errors import ConfigError, RmqhaError
from rmqha.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE

COMMANDS: Final = {
    "broker": (
        "rmqha.cli.run_broker:broker",
        "Start what a file describes: master, slave, or DLedger member.",
    ),
    "master": ("rmqha.cli.run_broker:master", "Start a master: take messages, replicate them to slaves."),
    "slave": ("rmqha.cli.run_broker:slave", "Start a slave: copy a master's log, serve consumers."),
    "namesrv": ("rmqha.cli.namesrv:namesrv", "Start a name server: brokers register, clients find them."),
    "send": ("rmqha.cli.send:send", "Send messages: lines of stdin, a file, or generated ones."),
    "tail": ("rmqha.cli.tail:tail", "Print the messages of a topic, and follow it."),
    "status": ("rmqha.cli.status:status", "Say how a broker and its replicas are."),
    "doctor": ("rmqha.cli.doctor:doctor", "Look for what usually goes wrong here and among peers."),
    "promote": ("rmqha.cli.promote:promote", "Make a slave's configuration a master's."),
    "top": ("rmqha.cli.top:top", "Show rates and lag, again and again."),
    "dashboard": ("rmqha.dashboard.command:dashboard", "Show brokers in the browser; read-only."),
    "topics": ("rmqha.cli.topics:topics", "List, show, make, change and delete topics."),
    "groups": ("rmqha.cli.groups:groups", "List, show, set back and delete groups of consumers."),
    "message": ("rmqha.cli.message:message", "Find a message by its id, its key or its place."),
    "log": ("rmqha.cli.log:log", "Look into a store on disk: dump its messages, verify it."),
    "dledger": ("rmqha.cli.dledger:dledger", "Ask a DLedger group (a Raft log); look into a member's store."),
    "replay": ("rmqha.cli.replay:replay", "Replay a store with Spark into Parquet or JSON."),
    "config": ("rmqha.cli.config:config", "Check or show configurations; print the reference of all keys."),
    "completion": ("rmqha.cli.completion:completion", "Print the completion script for a shell."),
    "man": ("rmqha.cli.man:man", "Write a manual page for each command."),
}

EPILOG: Final = """\b
Examples:
  rmqha master --store /data/m --set brokerRole=SYNC_MASTER
  rmqha slave  --store /data/s --ha-master 127.0.0.1:10912
  seq 1000 | rmqha send orders
  rmqha tail orders --from start
  rmqha status
  rmqha log verify /data/s
  rmqha replay /data/s --out /lake/orders

\b
Environment of the commands that ask a broker:
  RMQHA_BROKER, RMQHA_CONTEXT          which one, as --broker and --context; not both
  RMQHA_TLS_TRUST                      TLS: the authority's file (PEM)
  RMQHA_TLS_CERT, RMQHA_TLS_KEY        TLS: your own, where the broker asks for them
  RMQHA_CREDENTIALS                    your account: a file like mqadmin's tools.yml
  RMQHA_ACCESS_KEY, RMQHA_SECRET_KEY   or the account itself

\b
Exit codes: 0 good, 1 degraded or failed, 2 wrong usage or configuration,
3 broker unreachable, 130 interrupted. A broker has more: rmqha master --help.
"""


@click.group(
    cls=LazyGroup,
    commands_at=COMMANDS,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="rmqha")
def cli() -> None:
    """A master/slave HA commitlog server, compatible with Apache RocketMQ 4.9 on disk and wire."""


def main() -> None:
    """Run the command line; never returns."""
    escape_the_unwritable()
    try:
        sys.exit(run(sys.argv[1:]))
    finally:
        give_up_buffers()


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; every error of ours is told in words, a bug keeps its traceback."""
    try:
        code = cli.main(args=arguments, prog_name="rmqha", standalone_mode=False)
        flush_output()
    except (click.ClickException, click.Abort, RmqhaError, OSError) as error:
        with suppress(OSError):  # stderr is full as well: the exit code is all that is left to tell it
            _show(error)
        return _exit_code(error)
    return code if isinstance(code, int) else EXIT_OK


def _show(error: Exception) -> None:
    match error:
        case click.ClickException():
            error.show()
        case click.Abort():
            click.echo("Interrupted.", err=True)
        case ConfigError():
            for problem in error.problems:
                click.echo(f"{click.style('Error:', fg='red')} {problem}", err=True)
            click.echo("Next:  every key is described by 'rmqha config reference'", err=True)
        case BrokenPipeError():
            pass  # the reader of the output has seen enough
        case OSError():
            CliError(describe_os_error(error)).show()
        case _:
            CliError(str(error)).show()


def _exit_code(error: Exception) -> int:
    match error:
        case click.ClickException():
            return error.exit_code
        case click.Abort():
            return EXIT_INTERRUPTED
        case ConfigError():
            return EXIT_USAGE
    return EXIT_FAILED
