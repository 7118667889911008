"""``rmqha completion``: the script that makes a shell complete commands and options."""

import click
from click.shell_completion import get_completion_class


@click.command(
    epilog="""\b
Examples:
  rmqha completion bash > /etc/bash_completion.d/rmqha
  rmqha completion zsh  > ~/.zfunc/_rmqha
  rmqha completion fish > ~/.config/fish/completions/rmqha.fish
"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL."""
    from rmqha.cli.main import cli  # noqa: PLC0415 - the root imports this module when it is asked to

    found = get_completion_class(shell)
    assert found is not None, "click knows the three shells of the Choice"
    click.echo(found(cli, {}, "rmqha", "_RMQHA_COMPLETE").source())
