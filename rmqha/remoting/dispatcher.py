"""RequestDispatcher: hands each request to the processor of its code."""

from collections.abc import Callable, Iterable
from itertools import groupby

import structlog

from rmqha.codec.codes import ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import RmqhaError
from rmqha.remoting.connection import Connection
from rmqha.remoting.limits import LogLimit

logger = structlog.get_logger()

Processor = Callable[[Connection, RemotingCommand], RemotingCommand | None]
"""Returns the answer, whose opaque, flag and form are filled in; None when it answers itself, now or later."""

BatchProcessor = Callable[[Connection, list[RemotingCommand]], None]
"""Takes all neighbouring requests of its codes at once, and answers each of them itself, errors included."""


class RequestDispatcher:
    """A RequestHandler made of processors (spec: remoting §1.7).

    An unknown code is answered with REQUEST_CODE_NOT_SUPPORTED; an error of our own hierarchy that a processor
    raises, with SYSTEM_ERROR and its sentence as the remark. One-way requests are never answered.
    """

    def __init__(self) -> None:
        self._processors: dict[int, BatchProcessor] = {}
        self._on_closed: list[Callable[[Connection], None]] = []
        self._warnings = LogLimit(burst=20)

    def register(self, code: int, processor: Processor) -> None:
        """Let ``processor`` handle requests with ``code``, one by one."""

        def process_each(connection: Connection, requests: list[RemotingCommand]) -> None:
            for request in requests:
                self._process_one(processor, connection, request)

        self._processors[int(code)] = process_each

    def register_batch(self, codes: Iterable[int], processor: BatchProcessor) -> None:
        """Let ``processor`` handle requests with any of ``codes``, as many at once as arrived together."""
        for code in codes:
            self._processors[int(code)] = processor

    def on_closed(self, callback: Callable[[Connection], None]) -> None:
        """Call ``callback`` for each connection that ends."""
        self._on_closed.append(callback)

    def process(self, connection: Connection, requests: list[RemotingCommand]) -> None:
        """See :class:`~rmqha.remoting.connection.RequestHandler`."""
        for processor, run in groupby(requests, self._processor_of):
            processor(connection, list(run))

    def connection_closed(self, connection: Connection) -> None:
        """See :class:`~rmqha.remoting.connection.RequestHandler`."""
        for callback in self._on_closed:
            callback(connection)

    def _process_one(self, processor: Processor, connection: Connection, request: RemotingCommand) -> None:
        try:
            response = processor(connection, request)
        except RmqhaError as error:
            facts = {"code": request.code, "peer": connection.peer, "reason": str(error)}
            self._warnings.log(logger.warning, "request.failed", **facts)
            connection.respond(request, ResponseCode.SYSTEM_ERROR, remark=str(error))
            return
        if response is not None and not request.is_oneway:
            connection.send_reply(request, response)

    def _processor_of(self, request: RemotingCommand) -> BatchProcessor:
        return self._processors.get(request.code, _refuse)


def _refuse(connection: Connection, requests: list[RemotingCommand]) -> None:
    for request in requests:
        remark = f" request type {request.code} not supported"
        connection.respond(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
