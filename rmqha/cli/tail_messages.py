"""The reading itself: positions, the end of a topic, and how a message is printed."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

import click

from rmqha.cli.credentials import client_credentials, sign_in_hint
from rmqha.cli.errors import CliError, UnreachableError, unreadable
from rmqha.cli.pages import Page
from rmqha.cli.tls import client_network
from rmqha.cli.when import End, Last, Offset, Place, Start, Time
from rmqha.client import Consumer, ConsumerOptions, MessageExt, MessageQueue, open_consumer
from rmqha.errors import (
    NoRouteError,
    RemoteProtocolError,
    RemotingError,
    RmqhaError,
    UnreadableAnswerError,
    errors_in,
)

_HELD_S: Final = 1.0
"""A broker holds a pull that finds no tag that fits up to the queue's end: that all is read is known only then."""

_DAMAGED: Final = (
    "if it is damaged in the broker's log, 'rmqha log verify STORE' on that machine says so. A replica may have it "
    f"whole: --broker. {Page.DAMAGED}"
)


@dataclass(frozen=True, kw_only=True)
class TailPlan:
    """What to read; the options of ``rmqha tail``."""

    topic: str
    address: str
    start: Place
    follow: bool
    queue_ids: tuple[int, ...]
    tags: tuple[str, ...]
    limit: int | None
    output: Callable[[MessageExt], str]
    """What is written of a message."""

    def takes(self, message: MessageExt) -> bool:
        """Whether ``message`` is to be printed; the broker filters tags by their hash only."""
        if isinstance(self.start, Time) and message.store_timestamp_ms < self.start.timestamp_ms:
            return False
        return not self.queue_ids or message.queue.queue_id in self.queue_ids


class _Printer:
    """Prints what the plan takes; ``done`` once its limit is reached."""

    def __init__(self, plan: TailPlan) -> None:
        self._plan = plan
        self._printed = 0

    @property
    def done(self) -> bool:
        return self._printed == self._plan.limit

    def print(self, messages: Iterable[MessageExt]) -> None:
        for message in messages:
            if not self.done and self._plan.takes(message):
                sys.stdout.write(self._plan.output(message))
                self._printed += 1
        sys.stdout.flush()


async def tail_messages(plan: TailPlan) -> CliError | None:
    """Print what the plan says; returns what went wrong."""
    tags, options = " || ".join(plan.tags) or "*", ConsumerOptions(named_only=True)
    if plan.tags:
        options = replace(options, suspend_timeout_s=_HELD_S)
    try:
        async with open_consumer(
            plan.address,
            plan.topic,
            tags=tags,
            options=options,
            network=client_network(),
            credentials=client_credentials(),
        ) as consumer:
            if not consumer.queues:
                await consumer.refresh()  # says why
            _check_queues(plan, consumer)
            printer = _Printer(plan)
            ends = await read_stored(consumer, plan, printer=printer)
            if plan.follow:
                await _follow(consumer, ends, printer)
    except CliError as error:
        return error
    except (RmqhaError, BaseExceptionGroup) as raised:
        return _in_words(plan, errors_in(raised, RmqhaError)[0])
    return None


def _check_queues(plan: TailPlan, consumer: Consumer) -> None:
    """Raise CliError if the topic has not the queues that are to be read."""
    ids = {queue.queue_id for queue in consumer.queues}
    for queue_id in plan.queue_ids:
        if queue_id not in ids:
            why = f"it has no queue {queue_id}, but {min(ids)} to {max(ids)}"
            raise CliError(f"topic {plan.topic} cannot be read", why=why)


async def read_stored(
    consumer: Consumer, plan: TailPlan, *, printer: _Printer | None = None
) -> dict[MessageQueue, int]:
    """Print what is stored now from the plan's place on; returns where each queue ended when this began."""
    printer = printer or _Printer(plan)
    await consumer.seek_to_end()
    ends = {queue: consumer.position(queue) for queue in consumer.queues}
    await _seek(consumer, plan.start, ends)
    if isinstance(plan.start, End):
        return ends
    newest: list[MessageExt] | None = [] if isinstance(plan.start, Last) else None
    while not printer.done and any(consumer.position(queue) < end for queue, end in ends.items()):
        stored = [message for message in await consumer.poll() if message.queue_offset < ends.get(message.queue, 0)]
        if newest is None or not isinstance(plan.start, Last):
            printer.print(stored)
        else:  # no more are kept than are wanted, however many queues there are
            newest += filter(plan.takes, stored)
            newest.sort(key=lambda message: (message.store_timestamp_ms, message.physical_offset))
            del newest[: max(len(newest) - plan.start.count, 0)]
    printer.print(newest or ())
    return ends


async def _seek(consumer: Consumer, start: Place, ends: dict[MessageQueue, int]) -> None:
    match start:
        case Start():
            await consumer.seek_to_begin()
        case Time():
            await consumer.seek_to_time(start.timestamp_ms)
        case Offset():
            for queue, end in ends.items():
                consumer.seek(queue, min(start.value, end))
        case Last():
            for queue, end in ends.items():
                consumer.seek(queue, max(end - start.count, 0))
        case End():
            pass


async def _follow(consumer: Consumer, ends: dict[MessageQueue, int], printer: _Printer) -> None:
    """Print what comes behind ``ends``; while no broker answers, say so once and go on asking."""
    for queue in consumer.queues:
        consumer.seek(queue, ends.get(queue, 0))  # one that appeared meanwhile is read from its first message on
    waiting = False
    while not printer.done:
        try:
            printer.print(await consumer.poll())
            waiting = False
        except RemotingError as error:
            if not waiting:
                click.echo(f"waiting for a broker: {error}", err=True)
            waiting = True


def _in_words(plan: TailPlan, error: BaseException) -> CliError:
    if isinstance(error, NoRouteError):
        is_closed = "its permission is without r" in str(error)
        opened = f"'rmqha topics update {plan.topic} --perm rw' lets it be read and sent to again"
        hint = opened if is_closed else "is the topic's name right? 'rmqha send' makes a topic with its first message"
        return CliError(f"topic {plan.topic} cannot be read", why=str(error), hint=hint)
    if isinstance(error, UnreadableAnswerError):
        return unreadable(error.address, str(error))
    if isinstance(error, RemotingError):
        return UnreachableError(plan.address, str(error))
    damaged = _DAMAGED if isinstance(error, RemoteProtocolError) else ""
    hint = sign_in_hint(str(error), otherwise=damaged)
    return CliError(f"topic {plan.topic} cannot be read", why=str(error), hint=hint)
