"""Ask before what cannot be taken back."""

import sys

import click


def confirm(question: str, *, yes: bool) -> None:
    """Go on only if somebody says yes.

    Raises:
        UsageError: nobody can be asked, and ``--yes`` was not given.
        Abort: the answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} There is no terminal to ask at: give --yes.")
    click.confirm(question, abort=True, err=True)
