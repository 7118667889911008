"""A port for monitoring, and what a hostile peer may make of it: nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from tests.metrics.ports import HOST, PORT, connect, exchange, get, parsed, receive_all
from tests.sim.sim_net import SimNet

pytest.importorskip("h11", reason="h11 is in the extra [web]")

from rmqha.metrics.http_server import ASKS_WITHIN_S, PLACES, TAKES_WITHIN_S, Answer, Asked, HttpServer

LARGE = b"x" * 1_000_000


async def answer(asked: Asked) -> Answer:
    if asked.path == "/bug":
        raise RuntimeError("a bug")
    if asked.path == "/asked":
        return Answer(200, f"{asked.query} {asked.headers['host']}".encode(), headers=(("x-more", "yes"),))
    return Answer(200, LARGE if asked.path == "/large" else asked.path.encode())


@asynccontextmanager
async def serving(*allow: str) -> AsyncIterator[tuple[SimNet, HttpServer]]:
    net, server = SimNet(), HttpServer(answer, allow=allow)
    listener = await net.host(HOST).mount().listen(HOST, PORT)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, listener)
        yield net, server
        nursery.cancel_scope.cancel()


async def test_a_request_is_answered_and_the_connection_ends(autojump_clock: MockClock) -> None:
    async with serving() as (net, server):
        reply = await get(net, "/some?query=1")
        assert (reply.status, reply.body, reply.headers["connection"]) == (200, b"/some", "close")
        assert (await get(net, "/large")).body == LARGE
        await trio.sleep(2)
        assert server.connections == 0


async def test_query_and_headers_come_along_and_headers_go_back(autojump_clock: MockClock) -> None:
    async with serving() as (net, _):
        reply = await get(net, "/asked?a=1&b=%3C")
        assert (reply.text, reply.headers["x-more"]) == ("a=1&b=%3C x", "yes")


async def test_head_has_the_length_and_no_body(autojump_clock: MockClock) -> None:
    async with serving() as (net, _):
        reply = await exchange(net, b"HEAD /large HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (reply.status, reply.headers["content-length"], reply.body) == (200, str(len(LARGE)), b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_nothing_is_changed_here(method: str, autojump_clock: MockClock) -> None:
    async with serving() as (net, _):
        request = f"{method} / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000\r\n\r\n"
        assert (await exchange(net, request.encode())).status == 405


async def test_nobody_speaks_http_2_here(autojump_clock: MockClock) -> None:
    async with serving() as (net, _):
        assert (await exchange(net, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")).status == 405


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\nLong: " + b"y" * 9000, 431),
        (b"\x00\x00\x00\x64 no http at all\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    ],
)
async def test_who_does_not_speak_http_is_told_so_and_counted(
    request_bytes: bytes, status: int, autojump_clock: MockClock
) -> None:
    async with serving() as (net, server):
        assert (await exchange(net, request_bytes)).status == status
        assert server.refused == {"protocol": 1}
        assert (await get(net, "/")).status == 200


async def test_who_is_not_listed_is_not_let_in(autojump_clock: MockClock) -> None:
    async with serving("10.1.0.0/16") as (net, server):
        with capture_logs() as logs:
            stream = await connect(net)
            assert await receive_all(stream) == b""
        assert server.refused == {"not_allowed": 1}
        assert [(line["event"], "metricsAllow" in line["reason"]) for line in logs] == [("metrics.refused", True)]
        assert (await get(net, "/", host="10.1.2.3")).status == 200


async def test_a_bug_costs_the_connection_that_met_it(autojump_clock: MockClock) -> None:
    async with serving() as (net, _):
        with capture_logs() as logs:
            stream = await connect(net)
            await stream.send_all(b"GET /bug HTTP/1.1\r\nHost: x\r\n\r\n")
            assert await receive_all(stream) == b""
        assert [line["event"] for line in logs] == ["metrics.broken"]
        assert (await get(net, "/")).status == 200


async def test_who_asks_nothing_or_a_byte_a_second_is_cut_off(autojump_clock: MockClock) -> None:
    async with serving() as (net, server):
        silent, slow = await connect(net), await connect(net)
        begun_at = trio.current_time()
        for byte in b"GET / HTTP":
            with suppress(trio.BrokenResourceError):
                await slow.send_all(bytes([byte]))
            await trio.sleep(0.7)
        assert trio.current_time() - begun_at > ASKS_WITHIN_S
        assert await receive_all(silent) == b""
        assert server.connections == 0


async def test_who_does_not_take_the_answer_is_cut_off(autojump_clock: MockClock) -> None:
    async with serving() as (net, server):
        stream = await connect(net)
        await stream.send_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        await trio.sleep(ASKS_WITHIN_S + 1)
        assert server.connections == 1
        await trio.sleep(TAKES_WITHIN_S)
        assert server.connections == 0


async def test_a_stop_waits_for_nobody(autojump_clock: MockClock) -> None:
    async with serving() as (net, server):
        for _ in range(PLACES):
            await (await connect(net)).send_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        await trio.sleep(1)
        assert server.connections == PLACES
        before = trio.current_time()
    assert trio.current_time() == before


@pytest.mark.parametrize("request_bytes", [b"", b"GET ", b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n"])
async def test_those_that_only_sit_there_keep_nobody_out(request_bytes: bytes, autojump_clock: MockClock) -> None:
    """Of one host, and monitoring comes from the same."""
    async with serving() as (net, server):
        for _ in range(3 * PLACES):
            await (await connect(net)).send_all(request_bytes)
            await trio.sleep(0.2)
        assert server.connections <= PLACES
        assert (await get(net, "/large")).body == LARGE


async def test_strangers_fill_no_log(autojump_clock: MockClock) -> None:
    async with serving() as (net, server):
        with capture_logs() as logs:
            for _ in range(100):
                await exchange(net, b"nonsense\r\n\r\n")
        assert server.refused == {"protocol": 100}
        assert len(logs) < 20


async def test_what_is_pipelined_behind_a_request_is_not_looked_at(autojump_clock: MockClock) -> None:
    async with serving() as (net, _):
        stream = await connect(net)
        await stream.send_all(b"GET /one HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
        reply = parsed(await receive_all(stream))
        assert reply.body == b"/one"
