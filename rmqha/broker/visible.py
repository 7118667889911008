"""Tools ask about a message right after they have sent it: they are answered when it can be seen (decision 4)."""

from typing import Final

import trio

from rmqha.store.message_store import DefaultMessageStore

_LOOK_S: Final = 0.01
_LOOKS: Final = 50
"""For half a second: what waits for another node may take longer."""


async def wait_visible(store: DefaultMessageStore) -> None:
    """Return when all that is put by now has been flushed and dispatched, or soon."""
    end = store.max_offset
    if store.reput_from_offset < end:
        store.request_flush()
    for _ in range(_LOOKS):
        if store.reput_from_offset >= end:
            return
        await trio.sleep(_LOOK_S)
