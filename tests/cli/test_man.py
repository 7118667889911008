"""`rmqha man`: a page for each command, with all that its help says, which groff takes without a complaint."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from rmqha.cli.main import COMMANDS, cli
from rmqha.cli.man import contexts_of, page_of


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made by a process of its own: click keeps what the first call of a command said of ``--help``."""
    directory = tmp_path_factory.mktemp("man") / "man1"
    command = [sys.executable, "-m", "rmqha", "man", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"{len(list(directory.iterdir()))} pages in {directory}" in done.stdout
    return directory


def test_each_command_has_a_page(pages: Path) -> None:
    names = {path.name for path in pages.iterdir()}
    assert {f"rmqha-{name}.1" for name in COMMANDS} | {"rmqha.1", "rmqha-topics-list.1"} <= names
    commands = [context.command_path for context in contexts_of(cli, "rmqha")]
    assert names == {f"{path.replace(' ', '-')}.1" for path in commands}
    for path in commands:
        help_ = CliRunner().invoke(cli, [*path.split()[1:], "--help"])
        assert help_.exit_code == 0, path


def test_a_page_has_all_options_and_the_examples(pages: Path) -> None:
    for context in contexts_of(cli, "rmqha"):
        page = (pages / f"{context.command_path.replace(' ', '-')}.1").read_text().replace(r"\-", "-")
        for parameter in context.command.get_params(context):
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert all(name in page for name in parameter.opts), (context.command_path, parameter.opts)
        assert ("Examples:" in page) == ("Examples:" in (context.command.epilog or ""))
        assert r"\fB-h, --help\fR" in page
        assert "\b" not in page


def test_it_is_shown_without_a_complaint(pages: Path) -> None:
    if (groff := shutil.which("groff")) is None:
        pytest.skip("there is no groff")
    for path in sorted(pages.iterdir()):
        arguments = [groff, "-ww", "-man", "-Tutf8", "-rLL=78n", str(path)]
        shown = subprocess.run(arguments, check=False, capture_output=True, text=True, env={"LC_ALL": "C.UTF-8"})
        assert (shown.returncode, shown.stderr) == (0, ""), path.name
        text = re.sub(r"\x1b\[[\d;]*m|.\x08", "", shown.stdout)
        assert path.name.removesuffix(".1") in text
        assert "SYNOPSIS" in text


def test_what_looks_like_a_request_or_an_escape_is_text() -> None:
    @click.command(help="First.\n\n\b\n.so /etc/passwd\n'br a\\nb\n\n.TH again", epilog=".SH no")
    def command() -> None: ...

    page = page_of(click.Context(command, info_name="it"))
    assert "\n\\&.so /etc/passwd\n\\(aqbr a\\enb\n" in page
    assert "\n\\&.TH again\n" in page
    assert "\n\\&.SH no\n" in page
