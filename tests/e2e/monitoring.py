"""Monitoring of real processes over HTTP."""

import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import NamedTuple

import trio

from tests.e2e.processes import Child


class Reply(NamedTuple):
    status: int
    text: str


async def port_of(child: Child) -> str:
    """Where a process with ``metricsListen=0`` has its observability port."""
    found = await child.wait_output(r'(127\.0\.0\.1:\d+)", "event": "metrics\.started', timeout_s=120)
    return found[1]


async def fetch(address: str, path: str, *, tls: ssl.SSLContext | None = None) -> Reply:
    """GET."""
    return await trio.to_thread.run_sync(_fetch, f"{'https' if tls else 'http'}://{address}{path}", tls)


def _fetch(url: str, tls: ssl.SSLContext | None) -> Reply:
    try:
        with urllib.request.urlopen(url, timeout=30, context=tls) as reply:
            return Reply(reply.status, reply.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return Reply(error.code, error.read().decode())


async def wait_until(address: str, path: str, holds: Callable[[Reply], bool], *, timeout_s: float = 120) -> Reply:
    """Ask until the answer is as wanted."""
    reply = Reply(0, "")
    with trio.move_on_after(timeout_s):
        while True:
            reply = await fetch(address, path)
            if holds(reply):
                return reply
            await trio.sleep(0.2)
    raise AssertionError(f"{address}{path} still answers {reply}")
