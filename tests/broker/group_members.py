"""Clients that belong to groups, and see what a broker tells them unasked."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.heartbeat import ConsumerData, HeartbeatData, SubscriptionData, encode_heartbeat
from rmqha.codec.remoting import FLAG_RESPONSE, RemotingCommand, decode_frames
from rmqha.transport import Stream
from tests.broker.machines import TIMEOUT_S, Machine

OF_SQL92 = 232
"""Trap 10: consumers take a broker that answers with less for one that is too old."""


class Member:
    """One connection of a client.

    Attributes:
        told: the groups that it was told of by request 40, in that order.
        asked: other requests of the broker's.
        answer: what to answer these, if anything.
    """

    def __init__(self, stream: Stream, client_id: str) -> None:
        self.client_id = client_id
        self.told: list[str] = []
        self.asked: list[RemotingCommand] = []
        self.answer: RemotingCommand | None = None
        self.stream = stream
        self.ended = False
        self._answers: dict[int, RemotingCommand] = {}
        self._came = trio.Event()
        self._opaque = 0
        self._sending = trio.Lock()

    async def read(self) -> None:
        """Take what comes, until the connection ends."""
        buffer, held = memoryview(bytearray(65536)), bytearray()
        while count := await self.stream.receive_into(buffer):
            held += buffer[:count]
            commands, taken = decode_frames(held)
            del held[:taken]
            for command in commands:
                self._take(command)
            self._came.set()
            self._came = trio.Event()
        self.ended = True

    def _take(self, command: RemotingCommand) -> None:
        if command.flag & FLAG_RESPONSE:
            self._answers[command.opaque] = command
        elif command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            assert command.is_oneway
            self.told.append(command.ext_fields["consumerGroup"])
        else:
            self.asked.append(command)
            if self.answer is not None:
                self.answer.opaque, self.answer.flag = command.opaque, FLAG_RESPONSE
                self.stream.send_nowait(self.answer.encode())

    async def ask(self, request: RemotingCommand) -> RemotingCommand:
        self._opaque += 1
        request.opaque = opaque = self._opaque
        async with self._sending:
            await self.stream.send_all(request.encode())
        with trio.fail_after(TIMEOUT_S):
            while opaque not in self._answers:
                await self._came.wait()
        return self._answers.pop(opaque)

    async def heartbeat(
        self, *groups: str | ConsumerData, producers: tuple[str, ...] = (), version: int = 409
    ) -> RemotingCommand:
        """Belong to these groups; one that is only named subscribes to all of topic ``t``."""
        consumers = tuple(group if isinstance(group, ConsumerData) else consuming(group) for group in groups)
        body = encode_heartbeat(HeartbeatData(self.client_id, producers, consumers))
        answer = await self.ask(RemotingCommand(RequestCode.HEART_BEAT, body=body, version=version))
        assert answer.code == ResponseCode.SUCCESS
        assert answer.version >= OF_SQL92
        return answer


def consuming(group: str, *subscriptions: SubscriptionData, model: str = "CLUSTERING") -> ConsumerData:
    """A push consumer."""
    return ConsumerData(
        group, "CONSUME_PASSIVELY", model, "CONSUME_FROM_FIRST_OFFSET", subscriptions or (SubscriptionData("t"),)
    )


@asynccontextmanager
async def member_of(machine: Machine, client_id: str) -> AsyncIterator[Member]:
    """Connected, and in no group yet; the connection ends with the block."""
    network = machine.net.host(f"10.9.9.{len(machine.net.hosts)}").mount()
    stream = await network.connect(machine.address, 10911, timeout_s=5)
    member = Member(stream, client_id)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(member.read)
        yield member
        nursery.cancel_scope.cancel()
    stream.close()
