"""Dispatch has several builders: each gets every round, and nothing moves on before all have written."""

from collections.abc import Sequence

import pytest
from trio.testing import MockClock

from rmqha.codec.record.dispatch import DispatchRequest
from rmqha.errors import CorruptLogError, StoreError
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.reput_message_service import ReputMessageService
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import message, put, running


class Index:
    """A builder, and the plan of its round: notes where the records lie that it was to write."""

    def __init__(self, *, refuses: int | None = None) -> None:
        self.refuses = refuses
        self.is_broken = False
        self.planned: list[int] = []
        self.written: list[int] = []
        self.announced: list[int] = []

    def plan(self, requests: Sequence[DispatchRequest], *, at_start: bool) -> "Index":
        assert at_start, "the service of this test is never run"
        self.planned = [request.commit_log_offset for request in requests]
        if self.refuses in self.planned:
            raise CorruptLogError(self.refuses or 0, "no place")
        return self

    async def write(self) -> None:
        self.write_here()

    def write_here(self) -> None:
        if self.is_broken:
            raise StoreError("broken")
        self.written += self.planned

    def announce(self) -> None:
        self.announced += self.planned

    def put_aside(self, *, misfits: bool) -> bool:
        return False


def dispatch_to(store: DefaultMessageStore, *builders: Index) -> ReputMessageService:
    return ReputMessageService(
        store.commit_log,
        builders,
        flags=store.running_flags,
        confirm_offset=store.confirm_offset,
    )


async def test_each_builder_gets_every_record(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount()) as store:
        begins = [result.wrote_offset for result in await put(store, *[message()] * 3)]
        first, second = Index(), Index()
        reput = dispatch_to(store, first, second)
        reput.catch_up()
        assert first.written == second.written == first.announced == second.announced == begins
        assert reput.reput_from_offset == store.max_offset


async def test_a_round_that_one_builder_could_not_write_comes_again_to_all(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount()) as store:
        begins = [result.wrote_offset for result in await put(store, *[message()] * 3)]
        first, second = Index(), Index()
        reput = dispatch_to(store, first, second)
        second.is_broken = True
        with pytest.raises(StoreError, match="broken"):
            reput.catch_up()
        assert (reput.reput_from_offset, first.announced, second.written) == (0, [], [])
        second.is_broken = False
        reput.catch_up()
        assert (second.written, first.announced) == (begins, begins)


async def test_what_has_no_place_with_one_builder_ends_the_round_for_all(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount()) as store:
        begins = [result.wrote_offset for result in await put(store, *[message()] * 3)]
        first, second = Index(), Index(refuses=begins[2])
        reput = dispatch_to(store, first, second)
        with pytest.raises(CorruptLogError, match="no place"):
            reput.catch_up()
        assert first.written == second.written == begins[:2]
        assert reput.reput_from_offset == begins[2]
