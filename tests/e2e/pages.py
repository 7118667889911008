"""A page's commands, run by a shell as they stand there, and a stand-in for systemctl that runs brokers of a test."""

import re
import shlex
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import trio

from tests.e2e.processes import CHECKOUT, Broker, RmqhaBroker

_SYSTEMCTL = """#!{python}
import socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect({address!r})
    asked.sendall(" ".join(sys.argv[1:]).encode())
    asked.shutdown(socket.SHUT_WR)
    answer = b"".join(iter(lambda: asked.recv(4096), b"")).decode()
sys.exit(None if answer == "done" else "systemctl: " + answer)
"""


def commands_of(page: str, section: str) -> list[str]:
    """The blocks of shell commands below a heading, in order."""
    body = (CHECKOUT / "docs" / page).read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```sh\n(.*?)^```$", body, re.MULTILINE | re.DOTALL)
    assert blocks, f"{page} has no commands below {section!r}"
    return blocks


class InstalledBroker(RmqhaBroker):
    """One that systemd would run: by ``program``, with the file that stands there once it was written."""

    program: Path

    def prepare(self) -> None:
        """Write the file before the first start: what a page's commands change in it stays."""
        if not self.conf_file.exists():
            super().prepare()

    @property
    def conf_file(self) -> Path:
        """``master.conf`` for ``rmqha@master``."""
        return self.directory.parent / "conf" / f"{self.directory.name}.conf"

    def argv(self) -> list[str]:
        """As the unit has it."""
        return [str(self.program), "broker", "-c", str(self.conf_file), "--log-format", "json"]


class Shell:
    """Runs a page's blocks. Its ``systemctl`` starts, stops and reloads the brokers of a test by their units' names."""

    def __init__(self, directory: Path, brokers: Mapping[str, Broker], variables: Mapping[str, object]) -> None:
        self._brokers = brokers
        self._socket = directory / "systemctl.socket"
        programs = directory / "bin"
        programs.mkdir()
        self.rmqha = programs / "rmqha"
        write_program(self.rmqha, f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m rmqha "$@"\n')
        text = _SYSTEMCTL.format(python=sys.executable, address=str(self._socket))
        write_program(programs / "systemctl", text)
        path = f"{programs}:{Path(sys.executable).parent}:/usr/bin:/bin"
        self._env = {"PATH": path, "LANG": "C.UTF-8", "HOME": str(directory), "PYTHONPATH": str(CHECKOUT)}
        self._env |= {name: str(value) for name, value in variables.items()}
        self._directory = directory

    async def serve(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Do what ``systemctl`` is asked for, until cancelled."""
        listening = trio.socket.socket(trio.socket.AF_UNIX)
        await listening.bind(str(self._socket))
        listening.listen()
        with listening:
            task_status.started()
            while True:
                asking, _ = await listening.accept()
                with asking:
                    asked = b""
                    while piece := await asking.recv(4096):
                        asked += piece
                    await asking.send((await self._do(*asked.decode().split())).encode())

    async def _do(self, action: str, *words: str) -> str:
        """Of ``--no-block`` nothing waits here but who asks next."""
        unit = words[-1]
        broker = self._brokers[unit]
        if action == "reload":
            broker.running.signal(signal.SIGHUP)
            return "done"
        if action in {"stop", "restart"} and broker.child is not None and (code := await broker.stop()) != 0:
            return f"{unit} ended with {code}"
        if action in {"start", "restart"}:
            await broker.start()
        return "done"

    async def run(self, block: str, **more: object) -> str:
        """Run a block as it stands, up to the first command that fails, which fails the test; its output.

        Args:
            block: shell commands.
            more: values of further names that it uses.
        """
        env = self._env | {name: str(value) for name, value in more.items()}
        done = await trio.run_process(
            ["bash", "-eux", "-o", "pipefail", "-c", block],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            cwd=self._directory,
            env=env,
        )
        output = done.stdout.decode() + done.stderr.decode()
        assert done.returncode == 0, output
        return output


def write_program(path: Path, text: str) -> None:
    """A script that can be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
