"""RocketMQ 4.9.8's side of replication, byte for byte and second for second, for where no capture exists.

Everything here copies what the Java code does, its faults included, as spec: ha §3-§5 describes it; the captures
in tests/golden/ha hold it to that (see test_java_standin.py). Not built for speed.
"""

import struct

import trio

from rmqha.transport import Listener, Network, Stream

SELECT_S = 1.0
HEARTBEAT_S = 5.0
HOUSEKEEPING_S = 20.0
IDLE_WAKE_UP_S = 0.1
BATCH_SIZE = 32768
SLAVE_BUFFER_SIZE = 4 * 1024 * 1024


class JavaLog:
    """A commitlog as MappedFileQueue keeps it: appends are not checked, failures not told."""

    def __init__(self, file_size: int) -> None:
        self.file_size = file_size
        self.files: dict[int, bytearray] = {}

    @classmethod
    def holding(cls, data: bytes, *, file_size: int, start: int = 0) -> "JavaLog":
        log = cls(file_size)
        for at in range(start, start + len(data), file_size):
            log.files[at] = bytearray(data[at - start : at - start + file_size])
        return log

    @property
    def min_offset(self) -> int:
        return min(self.files, default=-1)

    @property
    def max_offset(self) -> int:
        last = max(self.files, default=None)
        return 0 if last is None else last + len(self.files[last])

    def append_raw(self, offset: int, data: bytes) -> None:
        """MappedFileQueue.getLastMappedFile(startOffset) and MappedFile.appendMessage."""
        last = max(self.files, default=None)
        if last is None:
            last = offset - offset % self.file_size
            self.files[last] = bytearray()
        elif len(self.files[last]) == self.file_size:
            last += self.file_size
            self.files[last] = bytearray()
        if len(self.files[last]) + len(data) <= self.file_size:
            self.files[last] += data

    def readable(self, offset: int) -> bytes:
        file = self.files.get(offset - offset % self.file_size)
        return b"" if file is None else bytes(file[offset % self.file_size :])

    def content(self) -> bytes:
        return b"".join(bytes(data) for _, data in sorted(self.files.items()))


class JavaSlave:
    """HAService.HAClient of 4.9.8."""

    def __init__(self, network: Network, port: int, log: JavaLog) -> None:
        self.network = network
        self.port = port
        self.log = log
        self.connections: list[float] = []
        self.reports: list[tuple[float, int]] = []

    async def run(self) -> None:
        while True:
            try:
                stream = await self.network.connect("master", self.port, timeout_s=5.0)
            except OSError:
                await trio.sleep(5.0)
                continue
            self.connections.append(trio.current_time())
            try:
                await self._connected(stream)
            except trio.BrokenResourceError:
                pass
            finally:
                stream.close()
            await trio.lowlevel.checkpoint()  # and at once again

    async def _connected(self, stream: Stream) -> None:
        reported = self.log.max_offset
        last_write = trio.current_time()
        buffer = bytearray()
        space = memoryview(bytearray(SLAVE_BUFFER_SIZE))
        while True:
            if trio.current_time() - last_write > HEARTBEAT_S:
                await self._report(stream, reported)
                last_write = trio.current_time()
            with trio.move_on_after(SELECT_S) as select:
                count = await stream.receive_into(space[: SLAVE_BUFFER_SIZE - len(buffer)])
            if not select.cancelled_caught:
                if count == 0:
                    return
                buffer += space[:count]
                while len(buffer) >= 12:
                    offset, size = struct.unpack_from(">qi", buffer)
                    own = self.log.max_offset
                    if own not in {0, offset}:
                        return
                    if len(buffer) < 12 + size:
                        break
                    self.log.append_raw(offset, bytes(buffer[12 : 12 + size]))
                    del buffer[: 12 + size]
                    if self.log.max_offset > reported:
                        reported = self.log.max_offset
                        await self._report(stream, reported)
                        last_write = trio.current_time()
            if trio.current_time() - last_write > HOUSEKEEPING_S:
                return

    async def _report(self, stream: Stream, offset: int) -> None:
        self.reports.append((trio.current_time(), offset))
        await stream.send_all(struct.pack(">q", offset))


class JavaMaster:
    """HAService with its HAConnections of 4.9.8."""

    def __init__(self, log: JavaLog) -> None:
        self.log = log
        self.push2_slave_max_offset = 0
        self.connections = 0
        self.first_reports: list[int] = []
        self.frames: list[tuple[float, int, int]] = []
        self.closes: list[float] = []

    async def run(
        self, network: Network, *, port: int = 0, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED
    ) -> None:
        listener: Listener = await network.listen("master", port)
        try:
            async with trio.open_nursery() as nursery:
                task_status.started(listener.port)
                while True:
                    nursery.start_soon(self._connection, await listener.accept())
        finally:
            listener.close()

    async def _connection(self, stream: Stream) -> None:
        self.connections += 1
        requested: list[int] = []
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write, stream, requested, nursery.cancel_scope)
                await self._read(stream, requested)
                nursery.cancel_scope.cancel()
        finally:
            self.connections -= 1
            self.closes.append(trio.current_time())
            stream.close()

    async def _read(self, stream: Stream, requested: list[int]) -> None:
        received = 0
        unprocessed = b""
        space = memoryview(bytearray(1024 * 1024))
        while True:
            with trio.move_on_after(HOUSEKEEPING_S) as silence:
                try:
                    count = await stream.receive_into(space)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return
            if silence.cancelled_caught or count == 0:
                return
            received += count
            unprocessed += bytes(space[:count])
            if len(unprocessed) < 8:
                continue
            end = len(unprocessed) - received % 8
            (offset,) = struct.unpack(">q", unprocessed[end - 8 : end])  # only the newest complete slot
            unprocessed = unprocessed[end:]
            if not requested:
                if offset < 0:
                    continue
                requested.append(offset)
                self.first_reports.append(offset)
            elif offset > self.log.max_offset:
                return
            self.push2_slave_max_offset = max(self.push2_slave_max_offset, offset)

    async def _write(self, stream: Stream, requested: list[int], reader: trio.CancelScope) -> None:
        last_write = trio.current_time()
        while not requested:  # noqa: ASYNC110 - as the Java loop does
            await trio.sleep(0.01)
        offset = requested[0]
        if offset == 0:
            offset = self.log.max_offset - self.log.max_offset % self.log.file_size
        try:
            while True:
                if trio.current_time() - last_write > HEARTBEAT_S:
                    await self._send(stream, offset, b"")
                    last_write = trio.current_time()
                data = self.log.readable(offset)[:BATCH_SIZE]
                if data:
                    await self._send(stream, offset, data)
                    offset += len(data)
                    last_write = trio.current_time()
                else:
                    await trio.sleep(IDLE_WAKE_UP_S)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            reader.cancel()

    async def _send(self, stream: Stream, offset: int, data: bytes) -> None:
        self.frames.append((trio.current_time(), offset, len(data)))
        await stream.send_all(struct.pack(">qi", offset, len(data)) + data)
