"""``rmqha config``: what a broker.conf says, before a broker is started with it."""

from pathlib import Path
from typing import Final

import click

from rmqha.cli.lazy import LazyGroup
from rmqha.cli.options import settings_option

COMMANDS: Final = {
    "check": ("rmqha.cli.config:check", "Say what is wrong with broker.conf files."),
    "show": ("rmqha.cli.config:show", "Print the whole configuration that comes out of a file."),
    "reference": ("rmqha.cli.config:reference", "Print the reference of all keys (Markdown)."),
}


@click.group(
    cls=LazyGroup,
    commands_at=COMMANDS,
    epilog="""\b
Examples:
  rmqha config check /etc/rmqha/*.conf
  rmqha config show conf/master.conf --changed
  rmqha config show --format json
""",
)
def config() -> None:
    """Check or show a broker.conf; print the reference of all keys."""


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.pass_context
def check(ctx: click.Context, files: tuple[Path, ...]) -> None:
    """Say what is wrong with broker.conf files; exit code 2 if anything is.

    Problems and notes go to stderr, one verdict for each file to stdout. With aclEnable the accounts in
    rocketmqHome/conf are read as well.
    """
    from rmqha.cli.broker_conf import load_with_accounts  # noqa: PLC0415
    from rmqha.errors import ConfigError  # noqa: PLC0415

    failed = False
    for path in files:
        try:
            loaded, notes = load_with_accounts(path)
        except ConfigError as error:
            failed = True
            for problem in error.problems:
                click.echo(problem, err=True)
            click.echo(f"{path}: cannot be used, problems: {len(error.problems)}")
        else:
            for note in notes:
                click.echo(f"note: {note}", err=True)
            role = "DLedger member" if loaded.enable_dleger_commit_log else loaded.broker_role
            click.echo(f"{path}: good, {role} {loaded.broker_name} on port {loaded.listen_port}")
    if failed:
        ctx.exit(2)


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
def reference() -> None:
    """Print the reference of all keys as Markdown: docs/configuration.md."""
    from rmqha.config.reference import reference_page  # noqa: PLC0415

    click.echo(reference_page(), nl=False)
