"""KeptTables: what RocketMQ's brokers go by and rmqha does not: how far delayed messages are.

It is kept as a master of RocketMQ's tells it, or as a store brought it, and handed on as it is: a broker of
RocketMQ's that leads later goes on with it. Without it it would deliver every delayed message of its log again.

Source: spec: remoting §2.6 (45); rocketmq-all-4.9.8 SlaveSynchronize.java.
"""

from typing import Any, Final

from rmqha.codec.codes import RequestCode
from rmqha.store.config_files import DELAY_OFFSET, ConfigFiles

_MEMBERS: Final = {DELAY_OFFSET: "offsetTable"}
CODES: Final = {RequestCode.GET_ALL_DELAY_OFFSET: DELAY_OFFSET}
"""By what each is asked for, and its file."""


class KeptTables:
    """The files; in memory there is nothing but what was last saved."""

    def __init__(self, files: ConfigFiles) -> None:
        self._files: Final = files
        self._saved: Final = dict[str, dict[str, Any]]()

    async def load(self, name: str) -> dict[str, Any] | None:
        """The table of a file; None if nothing is kept. Raises StoreWriteError: there is no thread for it."""
        return await self._files.load_in_thread(name)

    async def take_over(self, name: str, table: dict[str, Any]) -> None:
        """Keep a master's table; one that says nothing costs none that is known.

        Raises:
            StoreWriteError, StoreReadError: it is not saved, and will be with the next that comes.
        """
        if table.get(_MEMBERS[name]) and table != self._saved.get(name):
            await self._files.save(name, table)
            self._saved[name] = table
