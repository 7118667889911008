"""CommitLogDispatcherBuildIndex: hands the rounds of dispatch to :class:`~rmqha.store.index_service.IndexService`."""

from collections.abc import Callable, Sequence
from typing import Final

from rmqha.codec.record.dispatch import DispatchRequest
from rmqha.store.index_service import IndexService


class IndexPlan:
    """See :class:`~rmqha.store.commit_log_dispatcher.Plan`: nothing is written in the round itself."""

    __slots__ = ("_begin", "_dispatched", "_index", "_requests")

    def __init__(self, index: IndexService, requests: Sequence[DispatchRequest], dispatched: Callable[[], int]) -> None:
        self._index: Final = index
        self._requests: Final = requests
        self._dispatched: Final = dispatched
        self._begin: Final = dispatched()

    async def write(self) -> None:
        """See :meth:`Plan.write`."""

    def write_here(self) -> None:
        """See :meth:`Plan.write_here`."""

    def announce(self) -> None:
        """All is dispatched now, and will be indexed."""
        self._index.take(self._begin, self._dispatched(), self._requests)


class CommitLogDispatcherBuildIndex:
    """Never refuses a round, nor fails in one; see :class:`~rmqha.store.commit_log_dispatcher.CommitLogDispatcher`."""

    def __init__(self, index: IndexService, dispatched: Callable[[], int]) -> None:
        """``dispatched`` tells where dispatch is."""
        self._index: Final = index
        self._dispatched: Final = dispatched

    def plan(self, requests: Sequence[DispatchRequest], *, at_start: bool) -> IndexPlan:  # noqa: ARG002 - for others
        """See :meth:`CommitLogDispatcher.plan`."""
        return IndexPlan(self._index, requests, self._dispatched)

    def put_aside(self, *, misfits: bool) -> bool:  # noqa: ARG002 - for others
        """There is nothing that could hold up others."""
        return False
