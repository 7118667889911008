"""The error that a connection ends by."""

import pytest
import trio
import trio.testing

from rmqha.ending import ENDINGS, Ending


async def test_the_first_error_is_told_and_not_what_others_meet_as_they_end() -> None:
    ending = Ending(*ENDINGS)

    async def breaks() -> None:
        await trio.testing.wait_all_tasks_blocked()
        raise trio.BrokenResourceError("the first")

    async def is_cut_off() -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            raise trio.BrokenResourceError("as it ends") from None

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ending.keep, is_cut_off, nursery)
        nursery.start_soon(ending.keep, breaks, nursery)
    with pytest.raises(trio.BrokenResourceError, match="the first"):
        ending.tell()
    ending.tell()
