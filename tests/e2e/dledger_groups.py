"""Groups of ``rmqha dledger server`` processes, and the commands that ask them."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import trio

from tests.e2e.commands import rmqha
from tests.e2e.processes import Child, ProcessFailedError, free_ports, give_back

NAME = "g"
DATA_SIZE, INDEX_SIZE = 65536, 32 * 1024
HEART_BEAT_MS = 1000
"""Who is not heard of for three of them is given up: a busy machine is to depose no leader in the midst of a test."""
AnyGroup = TypeVar("AnyGroup", bound="Group")


class Group:
    """Members n0, n1, ..., in directories below one."""

    def __init__(self, directory: Path, size: int = 3) -> None:
        self.directory = directory
        self._ports = {f"n{number}": free_ports() for number in range(size)}
        self.peers = ";".join(f"{member_id}-127.0.0.1:{ports.listen}" for member_id, ports in self._ports.items())
        self.children: dict[str, Child] = {}
        self.prefix: Sequence[str] = ()

    @property
    def ids(self) -> list[str]:
        """Of its members."""
        return list(self._ports)

    def start(self, *ids: str) -> None:
        """Start these members, or all; does not wait for them."""
        for member_id in ids or self.ids:
            self.children[member_id] = self._launch(member_id)

    def _launch(self, member_id: str) -> Child:
        return Child([*self.prefix, *self.argv(member_id)], log=self.directory / f"{member_id}.log")

    def argv(self, member_id: str) -> list[str]:
        """The command line of a member."""
        settings = {
            "heartBeatTimeIntervalMs": HEART_BEAT_MS,
            "mappedFileSizeForEntryData": DATA_SIZE,
            "mappedFileSizeForEntryIndex": INDEX_SIZE,
            "diskSpaceRatioToCheckExpired": 0.99,
            "diskSpaceRatioToForceClean": 0.99,
        }
        options = ["-g", NAME, "-i", member_id, "-p", self.peers, "-s", str(self.directory)]
        sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        return [sys.executable, "-m", "rmqha", "dledger", "server", *options, *sets]

    async def command(self, command: str, *arguments: object) -> tuple[int, list[dict[str, Any]], str]:
        """Exit code, lines and errors of ``rmqha dledger COMMAND`` asked of this group."""
        code, out, err = await rmqha("dledger", command, "-g", NAME, "-p", self.peers, *map(str, arguments))
        return code, [json.loads(line) for line in out.splitlines() if line.startswith("{")], err

    async def healthy(self, *, at_least: int | None = None, not_led_by: str = "") -> dict[str, Any]:
        """Its status, once somebody leads, and so many members, or all, answer."""
        needed = len(self.ids) if at_least is None else at_least
        with trio.move_on_after(120):
            while True:
                code, lines, _ = await self.command("status", "--format", "json")
                alive = sum(member["alive"] for member in lines[0]["members"]) if lines else 0
                if code == 0 and alive >= needed and lines[0]["leader"] != not_led_by:
                    return lines[0]
                await trio.sleep(0.1)
        _, text, _ = await rmqha("dledger", "status", "-g", NAME, "-p", self.peers)
        ends = (f"== {member_id}\n{child.output()[-3000:]}" for member_id, child in self.children.items())
        raise ProcessFailedError("\n".join([f"still not led by another than {not_led_by!r}:\n{text}", *ends]))

    async def wait_verdict(self, verdict: str) -> dict[str, Any]:
        """Its status, once that is the verdict."""
        with trio.fail_after(120):
            while True:
                _, lines, _ = await self.command("status", "--format", "json")
                if lines and lines[0]["verdict"] == verdict:
                    return lines[0]
                await trio.sleep(0.1)

    async def at_rest(self) -> None:
        """Return when all is well with all of them, and each knows that the same entries are committed, and has them.

        What was appended with success a majority has, and the others may still lack it.
        """
        with trio.fail_after(120):
            while True:
                members = (await self.wait_verdict("ok"))["members"]
                if len({member[key] for member in members for key in ("endIndex", "committedIndex")}) == 1:
                    return

    async def append(self, *, count: int, text: str) -> list[int]:
        """Append it so often; the indexes. All must succeed."""
        code, lines, err = await self.command("append", "-d", text, "-c", count)
        assert (code, {line["code"] for line in lines}) == (0, {200}), err + str(lines)
        return [line["index"] for line in lines]

    async def dump(self, member_id: str) -> list[dict[str, Any]]:
        """What its files hold."""
        code, out, err = await rmqha("dledger", "dump", str(self.directory / f"dledger-{member_id}"))
        assert code == 0, err
        return [json.loads(line) for line in out.splitlines()]

    async def stop(self) -> list[int]:
        """End all, who leads last: nobody need be elected meanwhile. Their exit codes."""
        _, lines, _ = await self.command("status", "--format", "json")
        leader = lines[0]["leader"] if lines else None
        in_order = sorted(self.children, key=lambda member_id: member_id == leader)
        return [await self.children[member_id].stop() for member_id in in_order]

    def close(self) -> None:
        for child in self.children.values():
            child.reap()
        for ports in self._ports.values():
            give_back(ports)


@contextmanager
def running(group: AnyGroup) -> Iterator[AnyGroup]:
    """Its processes end with the block; the block starts them."""
    try:
        yield group
    finally:
        group.close()
