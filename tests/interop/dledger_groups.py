"""Groups whose members are DLedger's own servers, rmqha's, or both."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trio

from rmqha.dledger.dledger_exception import DLedgerResponseCode
from tests.e2e.dledger_groups import DATA_SIZE, HEART_BEAT_MS, INDEX_SIZE, NAME, Group
from tests.interop.peers import JAVA_OPTIONS, QUICK_START, compiled, rocketmq_libs

JAVA, OURS = "java", "rmqha"
_LOGBACK = """<configuration><appender name="out" class="ch.qos.logback.core.ConsoleAppender">
<encoder><pattern>%d{HH:mm:ss.SSS} %-5p %c{0} %m%n</pattern></encoder></appender>
<root level="INFO"><appender-ref ref="out"/></root></configuration>
"""


def java_argv(
    source: str, *arguments: object, directory: Path, libs: Path | None = None, jvm: Sequence[str] = QUICK_START
) -> list[str]:
    """RocketMQ's and DLedger's classes, driven by a program of ours; its log goes to stdout."""
    libs = libs or rocketmq_libs()
    (directory / "logback.xml").write_text(_LOGBACK)
    classes = f"{directory}:{compiled(source, libs)}:{libs}/*"
    return ["java", "-Xmx256m", *jvm, *JAVA_OPTIONS, "-cp", classes, Path(source).stem, *map(str, arguments)]


class MixedGroup(Group):
    """Members of these kinds."""

    def __init__(self, directory: Path, kinds: Sequence[str]) -> None:
        super().__init__(directory, len(kinds))
        self._kinds = dict(zip(self.ids, kinds, strict=True))

    def argv(self, member_id: str) -> list[str]:
        """The command line of a member."""
        if self._kinds[member_id] == OURS:
            return super().argv(member_id)
        arguments = (NAME, member_id, self.peers, self.directory, HEART_BEAT_MS, DATA_SIZE, INDEX_SIZE)
        return java_argv("Member.java", *arguments, directory=self.directory)

    async def append(self, *, count: int, text: str) -> list[int]:
        """As of a group of ours alone. A leader of Java's gives followers 2.5 s; what they lack then is tried again."""
        if JAVA not in self._kinds.values():
            return await super().append(count=count, text=text)
        indexes: list[int] = []
        with trio.fail_after(240):
            while missing := count - len(indexes):
                _, lines, _ = await self.command("append", "-d", text, "-c", missing)
                indexes += [line["index"] for line in lines if line["code"] == DLedgerResponseCode.SUCCESS]
        return indexes

    async def wait_same(self, last: int) -> None:
        """All have this entry, and the same before it; a Java member does not say what it has."""
        with trio.fail_after(240):
            while True:
                first, *others = [await self.held(member_id) for member_id in self.ids]
                if last in {line.get("index") for line in first} and all(other == first for other in others):
                    return
                await trio.sleep(0.2)

    async def held(self, member_id: str) -> list[dict[str, Any]]:
        """As :meth:`dump`, also of a member that has got nothing so far."""
        has_files = (self.directory / f"dledger-{member_id}" / "data").is_dir()
        return await self.dump(member_id) if has_files else []
