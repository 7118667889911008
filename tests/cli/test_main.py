import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqha.cli import config as config_commands
from rmqha.cli.main import COMMANDS, run
from rmqha.errors import StoreLockedError

ROOT = Path(__file__).parents[2]

Output = pytest.CaptureFixture[str]


def test_help_names_every_command_with_examples_and_imports_none(capsys: Output) -> None:
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    for name, (_, text) in COMMANDS.items():
        assert f"  {name}  " in out
        assert text in out
    assert "Examples:" in out


def test_help_loads_nothing_heavy() -> None:
    """What keeps --help under 0.15 s on any machine is what it does not import."""
    heavy = ["trio", "structlog", "pyarrow", "numpy", "pyspark", "asyncio", "rmqha.config", "rmqha.codec"]
    code = (
        "import sys; from rmqha.cli.main import run; run(['--help']); "
        f"sys.exit(', '.join(m for m in {heavy!r} if m in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.parametrize("command", ["master", "slave", "namesrv", "config check", "config show", "completion"])
def test_every_commands_help_has_text(command: str, capsys: Output) -> None:
    assert run([*command.split(), "--help"]) == 0
    assert "Usage: rmqha " + command in capsys.readouterr().out


def test_a_mistyped_command_is_answered_with_the_nearest(capsys: Output) -> None:
    assert run(["stauts"]) == 2
    assert "Did you mean 'status'?" in capsys.readouterr().err


def test_version(capsys: Output) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("rmqha, version ")


def test_an_error_of_ours_is_one_line_and_no_traceback(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(**_: object) -> None:
        raise StoreLockedError("/data/m is used by another process")

    monkeypatch.setattr(config_commands.reference, "callback", locked)
    assert run(["config", "reference"]) == 1
    assert capsys.readouterr().err == "Error: /data/m is used by another process\n"


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(config_commands.reference, "callback", broken)
    with pytest.raises(ZeroDivisionError):
        run(["config", "reference"])


def test_a_reader_that_stops_early_brings_no_traceback() -> None:
    command = f"{sys.executable} -c 'from rmqha.cli.main import main; main()' config reference | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["config", "show"], ["config", "check", "conf/master.conf"], ["--version"]])
def test_a_full_disk_behind_the_output_is_one_line_and_no_traceback(arguments: list[str], unbuffered: str) -> None:
    done = _run(*arguments, stdout="/dev/full", unbuffered=unbuffered)
    assert (done.returncode, done.stderr) == (1, "Error: the output cannot be written: No space left on device\n")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_the_output_of_a_failed_command_leaves_its_exit_code(unbuffered: str) -> None:
    done = _run("config", "check", "conf/master.conf", "LICENSE", stdout="/dev/full", unbuffered=unbuffered)
    assert done.returncode in (1, 2)
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(("arguments", "code"), [(["config", "show", "--set", "x=1"], 2), (["config", "show"], 0)])
def test_a_full_disk_behind_stderr_leaves_the_exit_code(arguments: list[str], code: int, unbuffered: str) -> None:
    done = _run(*arguments, stderr="/dev/full", unbuffered=unbuffered)
    assert done.returncode == code


def _run(
    *arguments: str, unbuffered: str, stdout: str = "/dev/null", stderr: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the command as a process, as an ordinary machine would: output is buffered unless the caller says no."""
    with Path(stdout).open("w") as out, Path(stderr or os.devnull).open("w") as err:
        return subprocess.run(
            [sys.executable, "-m", "rmqha", *arguments],
            stdout=out,
            stderr=err if stderr else subprocess.PIPE,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            text=True,
            check=False,
            cwd=ROOT,
        )


def test_config_check_says_good_or_what_is_wrong(tmp_path: Path, capsys: Output) -> None:
    good, bad = tmp_path / "good.conf", tmp_path / "bad.conf"
    good.write_text("brokerName=a\nsendMessageThreadPoolNums=64\n")
    bad.write_text("brokerNmae=a\n")
    assert run(["config", "check", str(good)]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{good}: good, ASYNC_MASTER a on port 10911\n"
    assert "sendMessageThreadPoolNums" in captured.err
    assert run(["config", "check", str(good), str(bad)]) == 2
    captured = capsys.readouterr()
    assert f"{bad}:1: unknown key 'brokerNmae'; nearest known key: brokerName" in captured.err
    assert f"{bad}: cannot be used, problems: 1" in captured.out


def test_config_show_prints_a_file_that_can_be_used_again(tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("slaveTimeout=1234\n")
    assert run(["config", "show", str(path), "--set", "listenPort=1111"]) == 0
    shown = capsys.readouterr().out
    assert f"# {path}:1\nslaveTimeout=1234\n" in shown
    assert "# command line\nlistenPort=1111\n" in shown
    again = tmp_path / "again.conf"
    again.write_text(shown)
    assert run(["config", "check", str(again)]) == 0


def test_config_show_changed_leaves_the_defaults_out(tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("slaveTimeout=1234\n")
    assert run(["config", "show", str(path), "--changed", "--format", "json"]) == 0
    assert '"slaveTimeout": {\n    "value": "1234"' in capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_ask_this_program(shell: str, capsys: Output) -> None:
    assert run(["completion", shell]) == 0
    assert f"_RMQHA_COMPLETE={shell}_complete" in capsys.readouterr().out
