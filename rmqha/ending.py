"""Ending: the error that a connection ends by, taken where it is met.

An error that goes through a nursery ends as one of a group, together with what it cancelled; tracebacks and frames of
these hold one another. Such a connection leaves a hundred objects and more, its buffers among them, that only the
collector frees; thousands may end in a minute, and the collector stops the event loop for seconds then.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from rmqha.errors import RemoteProtocolError, forget_origin

ENDINGS: Final = (RemoteProtocolError, trio.BrokenResourceError)
"""What ends a connection that requests are made on, and no more than that."""


class Ending:
    """Of the errors of some kinds that the tasks of a connection meet, the first.

    Attributes:
        error: that one, without what it comes from; None: there was none.
    """

    def __init__(self, *kinds: type[Exception]) -> None:
        self._kinds: Final = kinds
        self.error: Exception | None = None

    async def keep(self, part: Callable[[], Awaitable[None]], others: trio.Nursery) -> None:
        """Run ``part``, one of several tasks of ``others``; all of these end when it meets such an error."""
        try:
            await part()
        except self._kinds as error:
            forget_origin(error)
            self.error = self.error or error
            others.cancel_scope.cancel()

    def tell(self) -> None:
        """Raise the error that was met, if there was one; once."""
        error, self.error = self.error, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # its traceback holds this frame
