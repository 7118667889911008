"""Groups whose members are DLedger's own servers, rmqha's, or both."""

from collections.abc import Sequence
from pathlib import Path

import trio

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

    async def wait_same(self, last: int) -> None:
        """All have this entry, and the same before it; a Java member does not say what it has."""
        with trio.fail_after(120):
            while True:
                first, *others = [await self.dump(member_id) for member_id in self.ids]
                if first[-1].get("index", -1) >= last and all(other == first for other in others):
                    return
                await trio.sleep(0.2)
