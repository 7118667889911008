"""A nursery for tasks that serve a block and end with it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def open_background_nursery() -> AsyncIterator[trio.Nursery]:
    """A nursery whose tasks are cancelled when the block ends.

    An error of the block leaves it as itself, not inside a group: a caller who writes ``except MQBrokerError`` around
    the block knows nothing of the tasks behind it. So does a ctrl-c that met one of those tasks. That holds also where
    the tasks are cancelled from outside at the same moment.
    """
    failed = list[BaseException]()
    try:
        async with trio.open_nursery() as nursery:
            try:
                yield nursery
            except Exception as error:  # noqa: BLE001 - raised below: see rmqha/ending.py
                failed.append(error)
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as errors:
        _, others = errors.split(trio.Cancelled)
        if others is not None:
            failed = [*others.exceptions, *failed]
        if not failed:
            raise _unpacked(*errors.exceptions) from None
    if failed:
        raise _unpacked(*failed)


def _unpacked(*errors: BaseException) -> BaseException:
    """All of them in one; if it is one, that one."""
    error: BaseException = BaseExceptionGroup("Exceptions from Trio nursery", errors)
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        (error,) = error.exceptions
    return error
