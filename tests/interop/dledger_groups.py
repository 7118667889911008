"""Groups whose members are DLedger's own servers, rmqha's, or both."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

from tests.e2e.commands import rmqha
from tests.e2e.processes import Child, free_ports, give_back
from tests.interop.peers import JAVA_OPTIONS, rocketmq_libs

HERE = Path(__file__).parent
NAME = "g"
DATA_SIZE = 65536
_LOGBACK = """<configuration><appender name="out" class="ch.qos.logback.core.ConsoleAppender">
<encoder><pattern>%d{HH:mm:ss.SSS} %-5p %c{0} %m%n</pattern></encoder></appender>
<root level="INFO"><appender-ref ref="out"/></root></configuration>
"""
JAVA, OURS = "java", "rmqha"


def java_argv(source: str, *arguments: object, directory: Path) -> list[str]:
    """DLedger's classes, driven by a program of ours; its log goes to stdout."""
    (directory / "logback.xml").write_text(_LOGBACK)
    classes = f"{directory}:{rocketmq_libs()}/*"
    return ["java", "-Xmx256m", *JAVA_OPTIONS, "-cp", classes, str(HERE / source), *map(str, arguments)]


class Group:
    """Members n0, n1, ... of these kinds, in directories below one."""

    def __init__(self, directory: Path, kinds: Sequence[str], *, heart_beat_ms: int = 300) -> None:
        self.directory = directory
        self.kinds = {f"n{number}": kind for number, kind in enumerate(kinds)}
        self._ports = {member_id: free_ports() for member_id in self.kinds}
        self.peers = ";".join(f"{member_id}-127.0.0.1:{ports.listen}" for member_id, ports in self._ports.items())
        self._heart_beat_ms = heart_beat_ms
        self.children: dict[str, Child] = {}

    def start(self, *ids: str) -> None:
        """Start these members, or all; does not wait for them."""
        for member_id in ids or self.kinds:
            argv = self._java_argv(member_id) if self.kinds[member_id] == JAVA else self._our_argv(member_id)
            self.children[member_id] = Child(argv, log=self.directory / f"{member_id}.log")

    def _java_argv(self, member_id: str) -> list[str]:
        arguments = (NAME, member_id, self.peers, self.directory, self._heart_beat_ms, DATA_SIZE)
        return java_argv("Member.java", *arguments, directory=self.directory)

    def _our_argv(self, member_id: str) -> list[str]:
        settings = {
            "heartBeatTimeIntervalMs": self._heart_beat_ms,
            "mappedFileSizeForEntryData": DATA_SIZE,
            "mappedFileSizeForEntryIndex": 32 * 1024,
            "diskSpaceRatioToCheckExpired": 0.99,
            "diskSpaceRatioToForceClean": 0.99,
        }
        options = ["-g", NAME, "-i", member_id, "-p", self.peers, "-s", str(self.directory)]
        sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        return [sys.executable, "-m", "rmqha", "dledger", "server", *options, *sets]

    def ids(self, kind: str) -> list[str]:
        """The members of a kind."""
        return [member_id for member_id, its_kind in self.kinds.items() if its_kind == kind]

    async def command(self, command: str, *arguments: object) -> tuple[int, list[dict[str, Any]], str]:
        """Exit code, lines and errors of ``rmqha dledger COMMAND`` asked of this group."""
        code, out, err = await rmqha("dledger", command, "-g", NAME, "-p", self.peers, *map(str, arguments))
        return code, [json.loads(line) for line in out.splitlines() if line.startswith("{")], err

    async def healthy(self, *, at_least: int | None = None, not_led_by: str = "") -> dict[str, Any]:
        """Its status, once somebody leads, and so many members, or all, answer."""
        needed = len(self.kinds) if at_least is None else at_least
        with trio.fail_after(120):
            while True:
                code, lines, _ = await self.command("status", "--format", "json")
                alive = sum(member["alive"] for member in lines[0]["members"]) if lines else 0
                if code == 0 and alive >= needed and lines[0]["leader"] != not_led_by:
                    return lines[0]
                await trio.sleep(0.1)

    async def dump(self, member_id: str) -> list[dict[str, Any]]:
        """What its files hold."""
        code, out, err = await rmqha("dledger", "dump", str(self.directory / f"dledger-{member_id}"))
        assert code == 0, err
        return [json.loads(line) for line in out.splitlines()]

    async def stop(self) -> None:
        """All members, in order."""
        for child in self.children.values():
            await child.stop()

    def close(self) -> None:
        for child in self.children.values():
            child.reap()
        for ports in self._ports.values():
            give_back(ports)


@contextmanager
def group_of(directory: Path, *kinds: str) -> Iterator[Group]:
    """A group that was not started yet; its processes end with the block."""
    group = Group(directory, kinds)
    try:
        yield group
    finally:
        group.close()
