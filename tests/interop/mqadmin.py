"""RocketMQ's mqadmin: one command, and all that it printed. Its exit code says nothing: it prints what went wrong."""

from pathlib import Path

import trio

from tests.e2e.processes import Child
from tests.interop.peers import JAVA_OPTIONS, LOGBACK, QUICK_START, VERSION, tools_libs


async def mqadmin(directory: Path, *arguments: str, version: str = VERSION) -> str:
    """Run it; what it printed, errors included."""
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


async def mqadmin_until(directory: Path, *arguments: str, shows: str) -> str:
    """Run it again until it prints ``shows``: what it asks about may take a moment."""
    with trio.fail_after(120):
        while shows not in (printed := await mqadmin(directory, *arguments)):  # noqa: ASYNC110 - other processes
            await trio.sleep(0.5)
    return printed
