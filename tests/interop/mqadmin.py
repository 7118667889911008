"""RocketMQ's mqadmin: one command, and all that it printed. Its exit code says nothing: it prints what went wrong."""

from pathlib import Path
from typing import Final

import trio

from tests.e2e.processes import Child
from tests.interop.peers import JAVA_OPTIONS, LOGBACK, QUICK_START, VERSION, tools_libs

_TIMED_OUT: Final = ("RemotingTimeoutException", "RemotingTooMuchRequestException")
_TRIES: Final = 5


async def mqadmin(directory: Path, *arguments: str, version: str = VERSION) -> str:
    """Run it; what it printed, errors included. It waits for answers for 3 or 5 s: after that it is run again."""
    for _ in range(_TRIES):
        printed = await _run(directory, *arguments, version=version)
        if not any(error in printed for error in _TIMED_OUT):
            break
    return printed


async def _run(directory: Path, *arguments: str, version: str) -> str:
    home = directory / "mqadmin"
    (home / "conf").mkdir(parents=True, exist_ok=True)
    for name in ("logback_tools.xml", "rmq.tools.logback.xml"):
        (home / "conf" / name).write_text(LOGBACK)
    places = (f"-Drocketmq.home.dir={home}", f"-Duser.home={home}", "-Drocketmq.client.logUseSlf4j=false")
    main = ("-cp", f"{tools_libs(version)}/*", "org.apache.rocketmq.tools.command.MQAdminStartup", *arguments)
    child = Child(["java", "-Xmx128m", *QUICK_START, *JAVA_OPTIONS, *places, *main], log=home / "mqadmin.log")
    try:
        await child.wait_exit()
        return child.output()
    finally:
        child.reap()


async def mqadmin_until(directory: Path, *arguments: str, shows: str = "", hides: str | None = None) -> str:
    """Run it again until it prints ``shows``, and not ``hides``: what it asks about may take a moment."""
    printed = ""
    with trio.move_on_after(240):
        while True:
            printed = await mqadmin(directory, *arguments)
            if shows in printed and (hides is None or hides not in printed):
                return printed
            await trio.sleep(0.5)
    raise AssertionError(f"mqadmin {arguments} does not print {shows!r}, or prints {hides!r}: {printed}")
