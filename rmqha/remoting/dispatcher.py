"""RequestDispatcher: hands each request to the processor of its code."""

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Final

from rmqha.codec.codes import ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.usual.sends import Request
from rmqha.remoting.connection import Connection

Processor = Callable[[Connection, RemotingCommand], RemotingCommand | None]
"""Returns the answer, whose opaque, flag and form are filled in; None when it answers itself, now or later."""

BatchProcessor = Callable[[Connection, list[Request]], None]
"""Takes all neighbouring requests of its codes at once, and answers each of them itself, errors included."""

RequestGuard = Callable[[Connection, Request], Request]
"""Returns the request as its processor may see it; by an error of ours, which is told as any other, it refuses it."""


class RequestDispatcher:
    """A RequestHandler made of processors (spec: remoting §1.7).

    An unknown code is answered with REQUEST_CODE_NOT_SUPPORTED; an error that a processor of single requests raises,
    with SYSTEM_ERROR and its sentence as the remark. One that a processor of many raises ends the connection.
    """

    def __init__(self, guard: RequestGuard | None = None) -> None:
        """Without a processor yet; ``guard`` looks at each request before its processor does."""
        self._processors: dict[int, BatchProcessor] = {}
        self._single: set[BatchProcessor] = set()
        self.otherwise: BatchProcessor = refuse_unknown
        """Takes the requests with codes that nobody registered for."""
        self._guard: Final = guard
        self._on_closed: list[Callable[[Connection], None]] = []

    def register(self, code: int, processor: Processor) -> None:
        """Let ``processor`` handle requests with ``code``, one by one."""

        def process_one(connection: Connection, requests: list[Request]) -> None:
            for request in requests:
                self._process_one(processor, connection, request.command)

        self._processors[int(code)] = process_one
        self._single.add(process_one)

    def register_batch(self, codes: Iterable[int], processor: BatchProcessor) -> None:
        """Let ``processor`` handle requests with any of ``codes``, as many at once as arrived together."""
        for code in codes:
            self._processors[int(code)] = processor

    def on_closed(self, callback: Callable[[Connection], None]) -> None:
        """Call ``callback`` for each connection that ends."""
        self._on_closed.append(callback)

    def process(self, connection: Connection, requests: list[Request]) -> int:
        """See :class:`~rmqha.remoting.request_handler.RequestHandler`."""
        handled = 0
        for processor, portion in self._portions_of(requests):
            if handled and connection.is_turn_over:
                return handled
            admitted, looked_at = portion, len(portion)
            if self._guard is not None:
                admitted, looked_at = self._admit(self._guard, connection, portion)
            if admitted:
                with connection.fenced():
                    processor(connection, admitted)
            handled += looked_at
            if looked_at < len(portion):
                return handled
        return handled

    def _portions_of(self, requests: list[Request]) -> list[tuple[BatchProcessor, list[Request]]]:
        """What processors take at once: neighbours, or single requests."""
        processor = self._processor_of(requests[0])
        if len(requests) == 1:  # hot: what a producer sends that waits for each answer
            return [(processor, requests)]
        if len({request.code for request in requests}) == 1 and processor not in self._single:  # and one that does not
            return [(processor, requests)]
        portions: list[tuple[BatchProcessor, list[Request]]] = []
        for processor, run in groupby(requests, self._processor_of):
            if processor in self._single:
                portions += [(processor, [request]) for request in run]
            else:
                portions.append((processor, list(run)))
        return portions

    @staticmethod
    def _admit(guard: RequestGuard, connection: Connection, requests: list[Request]) -> tuple[list[Request], int]:
        """Answer what the guard turns away; returns the others, and how many it looked at before the turn was over."""
        admitted: list[Request] = []
        for number, request in enumerate(requests):
            if number and connection.is_turn_over:
                return admitted, number
            with connection.fenced(request):
                admitted.append(guard(connection, request))
        return admitted, len(requests)

    def connection_closed(self, connection: Connection) -> None:
        """See :class:`~rmqha.remoting.request_handler.RequestHandler`."""
        for callback in self._on_closed:
            with connection.fenced():
                callback(connection)

    def _process_one(self, processor: Processor, connection: Connection, request: RemotingCommand) -> None:
        with connection.fenced(request):
            response = processor(connection, request)
            if response is not None:
                connection.send_reply(request, response)

    def _processor_of(self, request: Request) -> BatchProcessor:
        return self._processors.get(request.code, self.otherwise)


def refuse_unknown(connection: Connection, requests: list[Request]) -> None:
    """Answer that nobody here knows the code."""
    for request in requests:
        remark = f" request type {request.code} not supported"
        connection.respond(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
