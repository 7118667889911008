"""A fake broker for plain code: on a real port, in a thread of its own."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue

import trio

from rmqha.transport import TcpNetwork
from tests.client.fake_broker import FakeBroker


@contextmanager
def broker_on_loopback() -> Iterator[FakeBroker]:
    """Runs until the block ends."""
    started: SimpleQueue[tuple[FakeBroker, trio.lowlevel.TrioToken]] = SimpleQueue()
    stop = trio.Event()

    async def main() -> None:
        listener = await TcpNetwork().listen("127.0.0.1", 0)
        broker = FakeBroker(port=listener.port)
        broker.address = f"127.0.0.1:{listener.port}"
        broker.addrs = {0: broker.address}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.server.serve, listener)
            started.put((broker, trio.lowlevel.current_trio_token()))
            await stop.wait()
            nursery.cancel_scope.cancel()

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    broker, token = started.get(timeout=60)
    try:
        yield broker
    finally:
        trio.from_thread.run_sync(stop.set, trio_token=token)
        thread.join(timeout=60)
