"""A headless Chromium, driven over a pipe by the DevTools protocol: one page, and all that it complains about."""

import base64
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--remote-debugging-pipe",
)  # fmt: skip
_WITH_PIPES = "import os, sys; r, w, *a = sys.argv[1:]; os.dup2(int(r), 3); os.dup2(int(w), 4); os.execvp(a[0], a)"
"""It reads from descriptor 3 and writes to 4. The copies are made in this order: 3 and 4 may be in use until then."""
PATIENCE_S = 120
SIZE = (1240, 900)


def chromium() -> str | None:
    """Where it is; None: nowhere."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Page:
    """The one page of a browser.

    Attributes:
        complaints: errors and warnings of the console, exceptions, what the policy refused.
        requested: the URLs that the page asked for.
    """

    def __init__(self, send: Any) -> None:
        self._send = send
        self._numbers = itertools.count(1)
        self._answers: dict[int, Any] = {}
        self._arrived: dict[int, trio.Event] = {}
        self._session: str | None = None
        self.complaints: list[str] = []
        self.requested: list[str] = []

    def on_message(self, message: dict[str, Any]) -> None:
        if "id" in message:
            self._answers[message["id"]] = message
            self._arrived[message["id"]].set()
            return
        method, told = message["method"], message["params"]
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(told["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(f"{told['type']}: {json.dumps(told['args'])[:500]}")
        elif method == "Log.entryAdded":
            self.complaints.append(f"{told['entry']['text']} {told['entry'].get('url', '')}"[:500])
        elif method == "Network.requestWillBeSent":
            self.requested.append(told["request"]["url"])

    async def call(self, method: str, **parameters: Any) -> Any:
        """A command of the protocol."""
        number = next(self._numbers)
        request: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            request["sessionId"] = self._session
        self._arrived[number] = trio.Event()
        await self._send(json.dumps(request).encode() + b"\0")
        with trio.fail_after(PATIENCE_S):
            await self._arrived[number].wait()
        del self._arrived[number]
        answer = self._answers.pop(number)
        assert "error" not in answer, (method, answer)
        return answer["result"]

    async def attach(self) -> None:
        """Make the page."""
        target = (await self.call("Target.createTarget", url="about:blank"))["targetId"]
        self._session = (await self.call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        width, height = SIZE
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page, as JSON has it."""
        told = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    async def wait(self, expression: str) -> None:
        """Until it is true."""
        with trio.move_on_after(PATIENCE_S):
            while True:
                if await self.evaluate(f"!!({expression})"):
                    return
                await trio.sleep(0.05)
        body = await self.evaluate("document.body.innerText.slice(0, 3000)")
        raise AssertionError(f"{expression} never held; the page shows:\n{body}\ncomplaints: {self.complaints}")

    async def open(self, url: str, *, scheme: str = "light") -> None:
        """Go there, and wait until something is shown."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        await self.call("Emulation.setEmulatedMedia", features=[feature])
        await self.leave()
        await self.call("Page.navigate", url=url)
        await self.wait("document.body && document.body.dataset.shown !== undefined")

    async def leave(self) -> None:
        """Go where nothing is asked for: a page whose server has ended would complain at its next look, whenever."""
        await self.call("Page.navigate", url="about:blank")

    async def show(self, fragment: str) -> None:
        """Go to another part of the page, and wait until it is shown."""
        await self.evaluate(f"void (location.hash = {json.dumps(fragment)})")
        decoded = "decodeURIComponent(location.hash.slice(1))"
        await self.wait(f"document.body.dataset.shown === {decoded}")

    async def text(self) -> str:
        """All that is shown."""
        return str(await self.evaluate("document.body.innerText"))

    async def screenshot(self, path: Path, *, height: int, scale: float = 1.0) -> None:
        """Of the upper part of the page, as PNG."""
        clip = {"x": 0, "y": 0, "width": SIZE[0], "height": height, "scale": scale}
        told = await self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        await trio.Path(path).write_bytes(base64.b64decode(told["data"]))


@asynccontextmanager
async def browsing(directory: Path) -> AsyncIterator[Page]:
    """A browser that keeps what it writes in ``directory``, while the block runs."""
    binary = chromium()
    assert binary is not None, "there is no chromium"
    to_read, to_write = os.pipe(), os.pipe()
    arguments = [*_FLAGS, f"--user-data-dir={directory}", "about:blank"]
    argv = [sys.executable, "-c", _WITH_PIPES, str(to_read[0]), str(to_write[1]), binary, *arguments]
    guard = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
    process = _started([*guard, *argv], (to_read[0], to_write[1]), directory)
    try:
        async with (
            trio.lowlevel.FdStream(to_read[1]) as sending,
            trio.lowlevel.FdStream(to_write[0]) as receiving,
            trio.open_nursery() as nursery,
        ):
            page = Page(sending.send_all)
            nursery.start_soon(_receive, receiving, page)
            await page.attach()
            yield page
            nursery.cancel_scope.cancel()
    finally:
        process.kill()
        process.wait()


def _started(argv: list[str], descriptors: tuple[int, int], directory: Path) -> subprocess.Popen[bytes]:
    """It gets these descriptors, and this process has them no more."""
    environment = {**os.environ, "HOME": str(directory)}
    with (directory / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, pass_fds=descriptors
        )
    for descriptor in descriptors:
        os.close(descriptor)
    return process


async def _receive(stream: trio.lowlevel.FdStream, page: Page) -> None:
    held = bytearray()
    async for data in stream:
        held += data
        *messages, rest = held.split(b"\0")
        held = bytearray(rest)
        for message in messages:
            page.on_message(json.loads(message))
    raise AssertionError("chromium has ended")
