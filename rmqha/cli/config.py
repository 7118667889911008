"""``rmqha config``: what a broker.conf says, before a broker is started with it."""

import time
from pathlib import Path
from typing import Final

import click

from rmqha.cli.lazy import LazyGroup
from rmqha.cli.options import settings_option

COMMANDS: Final = {
    "check": ("rmqha.cli.config:check", "Say what is wrong with broker.conf and namesrv.conf files."),
    "show": ("rmqha.cli.config:show", "Print the whole configuration that comes out of a file."),
    "contexts": ("rmqha.cli.config:contexts", "Print the names that --context knows."),
    "reference": ("rmqha.cli.config:reference", "Print the reference of all keys (Markdown)."),
}


@click.group(
    cls=LazyGroup,
    commands_at=COMMANDS,
    epilog="""\b
Examples:
  rmqha config check /etc/rmqha/*.conf
  rmqha config check --kind namesrv /etc/rmqha/ns1.conf
  rmqha config show conf/master.conf --changed
  rmqha config show --format json
""",
)
def config() -> None:
    """Check or show configurations; print the names of brokers, and the reference of all keys."""


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--kind", type=click.Choice(["auto", "broker", "namesrv"]), default="auto", show_default=True,
              help="Whose files they are; auto: those called namesrv*.conf are a name server's.")  # fmt: skip
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True,
              help="json: an object for each file, with its problems and notes.")  # fmt: skip
@click.pass_context
def check(ctx: click.Context, files: tuple[Path, ...], kind: str, output: str) -> None:
    """Say what is wrong with broker.conf and namesrv.conf files; exit code 2 if anything is.

    Problems and notes go to stderr, one verdict for each file to stdout. With aclEnable the accounts in
    rocketmqHome/conf are read as well: all that is wrong with them is told at once, with its line. So are the files
    of certificates and keys that a start reads: run it as the broker's user, by the installation that will run it, as
    a library that a key needs is a problem, too, where it is missing. Of a member of a DLedger group it is a
    problem, too, if its store here is another member's.
    """
    from rmqha.cli.output import echo_json  # noqa: PLC0415
    from rmqha.errors import ConfigError  # noqa: PLC0415

    failed = False
    for path in files:
        is_name_server = kind == "namesrv" or (kind == "auto" and path.match("namesrv*.conf"))
        what, notes, problems = "", tuple[str, ...](), list[str]()
        try:
            what, notes = (_name_server if is_name_server else _broker)(path)
        except ConfigError as error:
            failed = True
            problems = [str(problem) for problem in error.problems]
        if output == "json":
            told = {"file": str(path), "good": not problems, "what": what or None}
            echo_json(told | {"problems": problems, "notes": list(notes)})
            continue
        for line in (*problems, *(f"note: {note}" for note in notes)):
            click.echo(line, err=True)
        click.echo(f"{path}: cannot be used, problems: {len(problems)}" if problems else f"{path}: good, {what}")
    if failed:
        ctx.exit(2)


def _broker(path: Path) -> tuple[str, tuple[str, ...]]:
    """What it is, and notes. Raises ConfigError."""
    from rmqha.cli.broker_conf import certificate_notes, certificate_problems, load_with_accounts  # noqa: PLC0415
    from rmqha.cli.doctor_store import check_member  # noqa: PLC0415
    from rmqha.errors import ConfigError  # noqa: PLC0415
    from rmqha.metrics.start import observe_broker  # noqa: PLC0415

    loaded, notes = load_with_accounts(path)
    observe_broker(loaded)
    if problems := certificate_problems(loaded):
        raise ConfigError(problems)
    for finding in check_member(loaded):
        raise ConfigError(f"{finding.what}. Next: {finding.next}")
    role = "DLedger member" if loaded.enable_dleger_commit_log else loaded.broker_role
    notes += certificate_notes(loaded, now_s=time.time())
    return f"{role} {loaded.broker_name} on port {loaded.listen_port}", notes


def _name_server(path: Path) -> tuple[str, tuple[str, ...]]:
    """As :func:`_broker`."""
    from rmqha.certificates import why_unusable  # noqa: PLC0415
    from rmqha.choices import TlsMode  # noqa: PLC0415
    from rmqha.config.load_namesrv import load_namesrv  # noqa: PLC0415
    from rmqha.errors import ConfigError  # noqa: PLC0415
    from rmqha.metrics.start import observe_name_server  # noqa: PLC0415
    from rmqha.namesrv.namesrv_controller import tls_options  # noqa: PLC0415

    loaded = load_namesrv(path)
    observe_name_server(loaded)
    if loaded.tls_mode is not TlsMode.DISABLED and (why := why_unusable(tls_options(loaded))):
        raise ConfigError(why)
    return f"name server on port {loaded.listen_port}", loaded.notes


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, callback=settings_option,
              help="As for rmqha master.")  # fmt: skip
@click.option("--changed", is_flag=True, help="Only what is not the default.")
@click.option("--format", "output", type=click.Choice(["properties", "json"]), default="properties")
def show(file: Path | None, settings: dict[str, str], *, changed: bool, output: str) -> None:
    """Print the whole configuration that comes out of FILE, or the defaults without one.

    The output is a broker.conf again; above each value that was set stands where.
    """
    from rmqha.config import load_config  # noqa: PLC0415
    from rmqha.config.reference import as_json, as_properties  # noqa: PLC0415

    loaded = load_config(file, settings)
    render = as_json if output == "json" else as_properties
    click.echo(render(loaded, changed=changed))
    for note in loaded.notes:
        click.echo(f"note: {note}", err=True)


@click.command()
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True,
              help="json: an object for each name.")  # fmt: skip
def contexts(output: str) -> None:
    """Print the names that --context knows, with the brokers' addresses.

    They are the operator's own, in contexts.toml: each is a table with one key, broker, whose value is an address or a
    list of them.
    """
    from rmqha.cli.contexts import all_contexts, context_file  # noqa: PLC0415
    from rmqha.cli.output import echo_json  # noqa: PLC0415

    known = all_contexts()
    for name, addresses in known.items():
        if output == "json":
            parts = ";".join(addresses).replace(",", ";").split(";")
            echo_json({"name": name, "brokers": [part.strip() for part in parts if part.strip()]})
        else:
            click.echo(f"{name}  {';'.join(addresses)}")
    if not known:
        click.echo(f"There are none: {context_file()}", err=True)


@click.command()
def reference() -> None:
    """Print the reference of all keys as Markdown: docs/configuration.md."""
    from rmqha.config.reference import reference_page  # noqa: PLC0415

    click.echo(reference_page(), nl=False)
