"""AutoCommit: commits in the background how far a consumer's caller has got."""

from math import inf
from typing import TYPE_CHECKING, Final

import trio

from rmqha.client.environment import logger
from rmqha.errors import MQClientError, RmqhaError

if TYPE_CHECKING:
    from rmqha.client.consumer import Consumer

_LAST_COMMIT_S: Final = 3.0


class AutoCommit:
    """Commits every ``every_s`` seconds, and once more when the consumer closes.

    Only what was handed out before the latest poll is committed: a caller who polls again has dealt with it. So
    messages may come twice, after a crash, and none is left out.
    """

    def __init__(self, consumer: "Consumer", *, every_s: float) -> None:
        self._consumer = consumer
        self._every_s = every_s
        self._has_failed = False

    async def run(self) -> None:
        """Commit until cancelled."""
        while True:
            await trio.sleep(self._every_s)
            await self._commit()

    async def finish(self) -> None:
        """The last commit, in limited time; none if the block was cancelled, and its connections with it."""
        if trio.current_effective_deadline() == -inf:
            return
        with trio.move_on_after(_LAST_COMMIT_S, shield=True):
            await self._commit()

    async def _commit(self) -> None:
        """Commit; of failures in a row only the first is logged, as the next commit makes up for them."""
        try:
            await self._consumer.commit(self._consumer.processed_offsets())
        except RmqhaError as error:
            if not self._has_failed:
                logger.warning("consumer.commit_failed: topic %s, trying again: %r", self._consumer.topic, error)
            self._has_failed = True
        else:
            self._has_failed = False


def check_auto_commit(every_s: float | None, *, group: str | None) -> None:
    """Raise MQClientError for an interval that is none, or where there is no group to commit for."""
    if every_s is not None and group is None:
        raise MQClientError("auto_commit_s needs the name of the group to commit for: give group=")
    if every_s is not None and not every_s > 0:
        raise MQClientError(f"auto_commit_s={every_s}: expected seconds, more than 0, or None")
