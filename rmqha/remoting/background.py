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
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as errors:
        _, failures = errors.split(trio.Cancelled)
        error: BaseException = failures or errors
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            (error,) = error.exceptions
        raise error from None
