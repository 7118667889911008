"""``rmqha man``: a manual page for each command, of the text that ``--help`` shows."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from rmqha import __version__

_VERBATIM: Final = "\b"
"""A paragraph that begins with this line keeps its lines: click's mark."""
_WRITTEN: Final = {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"}
"""In roff; the backslash first, as what follows brings others."""


@click.command(
    epilog="""\b
Examples:
  rmqha man /usr/local/share/man/man1      then: man rmqha, man rmqha-topics-list
  rmqha man . && man ./rmqha-send.1
"""
)
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
def man(directory: Path) -> None:
    """Write a manual page for each command into DIRECTORY, which is made if it is not there.

    The pages have the text of --help. Pages of the same names are replaced; nothing else is touched.
    """
    from rmqha.cli.main import cli  # noqa: PLC0415 - the root imports this module when it is asked to

    directory.mkdir(parents=True, exist_ok=True)
    count = 0
    for context in contexts_of(cli, "rmqha"):
        (directory / f"{context.command_path.replace(' ', '-')}.1").write_text(page_of(context), encoding="utf-8")
        count += 1
    click.echo(f"{count} pages in {directory}")


def contexts_of(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[click.Context]:
    """A command and all below it, as they are when they are called."""
    context = click.Context(command, info_name=name, parent=parent, **command.context_settings)
    yield context
    if isinstance(command, click.Group):
        for sub in command.list_commands(context):
            below = command.get_command(context, sub)
            assert below is not None, f"{sub} is in the list of commands"
            yield from contexts_of(below, sub, context)


def page_of(context: click.Context) -> str:
    """The page of a command, in the macros of man(7)."""
    command, path = context.command, context.command_path
    name = path.replace(" ", "-")
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [
        f'.TH "{_escaped(name.upper())}" "1" "" "rmqha {__version__}" "rmqha"',
        ".SH NAME",
        rf"{_escaped(name)} \- {_escaped(command.get_short_help_str(limit=1000).rstrip('.'))}",
        ".SH SYNOPSIS",
        rf"\fB{_escaped(path)}\fR {_escaped(usage)}",
        ".SH DESCRIPTION",
        *_paragraphs(command.help or ""),
        *_options(context),
        *_commands(context),
    ]
    if command.epilog:
        lines += [".SH NOTES", *_paragraphs(command.epilog)]
    lines += _see_also(context)
    return "\n".join(lines) + "\n"


def _options(context: click.Context) -> list[str]:
    given = [one for one in context.command.get_params(context) if isinstance(one, click.Option)]
    options = [record for one in given if (record := one.get_help_record(context)) is not None]
    lines = [".SH OPTIONS"] if options else []
    for names, text in options:
        lines += [".TP", rf"\fB{_escaped(names)}\fR", *_text(" ".join(text.split()))]
    return lines


def _commands(context: click.Context) -> list[str]:
    command = context.command
    if not isinstance(command, click.Group):
        return []
    lines = [".SH COMMANDS"]
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None, f"{name} is in the list of commands"
        lines += [".TP", rf"\fB{_escaped(name)}\fR", *_text(below.get_short_help_str(limit=1000))]
    return lines


def _see_also(context: click.Context) -> list[str]:
    if context.parent is None:
        return []
    return [".SH SEE ALSO", rf"\fB{_escaped(context.parent.command_path.replace(' ', '-'))}\fR(1)"]


def _paragraphs(text: str) -> Iterator[str]:
    """Filled as the terminal is wide, or as they stand."""
    for paragraph in re.split(r"\n(?:[ ]*\n)+", text.replace(f"\n{_VERBATIM}\n", f"\n\n{_VERBATIM}\n").strip("\n ")):
        first, _, rest = paragraph.partition("\n")
        yield ".PP"
        if first.strip() == _VERBATIM:
            yield from (".nf", *(line for row in rest.split("\n") for line in _text(row)), ".fi")
        else:
            yield from _text(" ".join(paragraph.split()))


def _text(line: str) -> list[str]:
    """A line of text, which is no request even if it begins like one; an empty one is a space, as in the help."""
    escaped = _escaped(line)
    return [rf"\&{escaped}" if escaped.startswith((".", "'")) or not escaped else escaped]


def _escaped(text: str) -> str:
    r"""Each character as itself: in roff a backslash begins an escape, and ``-`` alone is a hyphen."""
    for character, written in _WRITTEN.items():
        text = text.replace(character, written)
    return text
