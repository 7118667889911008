"""How far delayed messages are delivered is told and saved only as far as nothing takes it back."""

import pytest

from rmqha.broker.schedule.delay_offsets import UNSETTLED_MAX, DelayOffsets
from rmqha.errors import RemoteProtocolError


class Log:
    """Of which a part is settled."""

    def __init__(self) -> None:
        self.settled = 0

    def offsets(self) -> DelayOffsets:
        return DelayOffsets(lambda: self.settled)


async def saved(offsets: DelayOffsets) -> dict[int, int]:
    offsets.dirty = False
    table: dict[int, int] = (await offsets.to_json_in_turns())["offsetTable"]
    return table


async def test_a_delivery_counts_when_it_is_settled() -> None:
    log = Log()
    offsets = log.offsets()
    offsets.advance({1: 5}, log_end=100)
    offsets.advance({1: 7, 2: 1}, log_end=200)
    assert await saved(offsets) == {}
    assert offsets.dirty, "there will be more to save"
    log.settled = 199
    assert await saved(offsets) == {1: 5}
    log.settled = 200
    assert await saved(offsets) == {1: 7, 2: 1}
    assert not offsets.dirty


async def test_what_is_not_settled_does_not_count_in_another_role() -> None:
    """The log may be cut there, and other bytes come to lie in its place: they deliver nothing."""
    log = Log()
    offsets = log.offsets()
    offsets.advance({1: 5}, log_end=100)
    offsets.advance({1: 7}, log_end=200)
    log.settled = 100
    offsets.forget_unsettled()
    log.settled = 1000
    assert await saved(offsets) == {1: 5}
    assert offsets.offset_of(1) == 5


async def test_a_slave_takes_over_what_its_own_log_has() -> None:
    log = Log()
    offsets = log.offsets()
    offsets.replace_from_json({"offsetTable": {"1": 90, "2": 4}})
    offsets.take_over({1: 50}, log_end=300)
    assert offsets.offset_of(1) == 90
    log.settled = 300
    assert await saved(offsets) == {1: 50, 2: 4}, "the master's count, also where it is lower"


@pytest.mark.parametrize("how", ["advance", "take_newer", "take_over"])
async def test_whatever_changes_them_they_are_saved_and_again_once_that_is_settled(how: str) -> None:
    """Else a restart delivers anew what was delivered; of who says nothing there is nothing to save."""
    log = Log()
    offsets = log.offsets()
    assert not offsets.dirty
    getattr(offsets, how)({1: 5}, log_end=100)
    assert offsets.dirty
    assert await saved(offsets) == {}
    assert offsets.dirty
    log.settled = 100
    assert await saved(offsets) == {1: 5}
    assert not offsets.dirty
    if how != "advance":
        getattr(offsets, how)({}, log_end=200)
        assert not offsets.dirty
        assert not offsets.has_unsettled
    offsets.begin(2)
    assert offsets.dirty
    assert await saved(offsets) == {1: 5, 2: 0}


@pytest.mark.parametrize("how", ["take_newer", "take_over"])
async def test_no_peer_fills_what_is_remembered_of_deliveries(how: str) -> None:
    """Exactly so many are; with one fewer there is room."""
    log = Log()
    offsets = log.offsets()
    for number in range(1, UNSETTLED_MAX):
        offsets.advance({1: number}, log_end=number)
    assert not offsets.is_full
    for number in (7000, 8000):
        getattr(offsets, how)({1: number}, log_end=number)
        assert offsets.is_full
    log.settled = 9000
    assert not offsets.is_full
    assert await saved(offsets) == {1: 7000}


async def test_a_slave_that_lags_for_days_keeps_little(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    offsets = log.offsets()
    for number in range(1, 3 * UNSETTLED_MAX):
        offsets.take_over({1: number}, log_end=number)
    log.settled = 10 * UNSETTLED_MAX
    assert await saved(offsets) == {1: UNSETTLED_MAX}
    offsets.take_over({1: 5000}, log_end=5000)
    assert await saved(offsets) == {1: 5000}


async def test_who_knows_nothing_says_so() -> None:
    offsets = Log().offsets()
    assert await offsets.told() is None
    offsets.take_over({1: 5}, log_end=1)
    assert await offsets.told() is None
    offsets.begin(3)
    assert await offsets.told() == {"offsetTable": {1: 0, 2: 0, 3: 0}}


async def test_a_slave_of_a_master_that_has_delivered_nothing_tells_that_to_its_own_slaves() -> None:
    """As RocketMQ's masters do: the end of a chain would ask for ever. One that forgot costs nothing that is known."""
    offsets = Log().offsets()
    offsets.take_over({}, log_end=0)
    assert await offsets.told() == {"offsetTable": {}}
    offsets.take_over({1: 5}, log_end=1)
    assert await offsets.told() is None
    offsets.replace_from_json({"offsetTable": {"1": 4}})
    offsets.take_over({}, log_end=0)
    assert await offsets.told() == {"offsetTable": {1: 4}}


def test_levels_that_are_gone_from_the_configuration_keep_their_offsets() -> None:
    offsets = Log().offsets()
    offsets.replace_from_json({"offsetTable": {18: 7}})
    offsets.begin(2)
    assert (offsets.offset_of(18), offsets.offset_of(2)) == (7, 0)


@pytest.mark.parametrize(
    "table",
    [
        {"offsetTable": 5},
        {"offsetTable": {"x": 1}},
        {"offsetTable": {1: -1}},
        {"offsetTable": {1: "1"}},
        {"offsetTable": {1: True}},
        {"offsetTable": {1: 2**63}},
        {"offsetTable": dict.fromkeys(range(20_000), 1)},
    ],
)
def test_what_is_no_table_changes_nothing(table: dict[str, object]) -> None:
    offsets = Log().offsets()
    offsets.replace_from_json({"offsetTable": {1: 3}})
    with pytest.raises(RemoteProtocolError):
        offsets.replace_from_json(table)
    assert offsets.offset_of(1) == 3
