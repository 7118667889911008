"""Whether a history of appends and reads is one of a single log: exact, and in one pass.

The object is a log to which entries are only ever added, each at the next index; what nobody reads may be an entry of
the group's own. A history is linearizable if each operation can be given a moment between its call and its answer such
that, one behind the other, all were answered as one log would. For such a log no search is needed. Let ``T(i)`` be the
moment at which the entry of index ``i`` came:

* an append that was told ``i`` has its ``T(i)`` between its call and its answer; one whose outcome is unknown, but
  whose entry was seen at ``i``, has it anywhere behind its call;
* a read that found ``i``, or was told that it is deleted, ended behind ``T(i)``: it can be given a moment behind it;
* a read that was told that there is no ``i`` began before ``T(i)``;
* and ``T`` ascends.

So each index has a latest beginning and an earliest end, and the history is linearizable if and only if no index ends
before one that is not behind it begins; and each entry has one place, and each place one entry.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf

from tests.sim.dledger.history import Operation, Place, Told


@dataclass(slots=True)
class _Bounds:
    """Of the moment at which the entry of an index came, and who says so."""

    after: float = -inf
    after_operation: Operation | None = None
    before: float = inf
    before_operation: Operation | None = None

    def begin(self, moment: int, operation: Operation) -> None:
        if moment > self.after:
            self.after, self.after_operation = moment, operation

    def end(self, moment: int | None, operation: Operation) -> None:
        if moment is not None and moment < self.before:
            self.before, self.before_operation = moment, operation


@dataclass
class _Log:
    """What all answers together say of one log."""

    is_foreign: Callable[[bytes], bool]
    bounds: dict[int, _Bounds] = field(default_factory=dict)
    entries: dict[int, tuple[bytes, Place]] = field(default_factory=dict)
    indexes: dict[bytes, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def at(self, index: int) -> _Bounds:
        return self.bounds.setdefault(index, _Bounds())

    def see(self, body: bytes, place: Place, operation: Operation) -> None:
        """Somebody was told that this entry lies there."""
        known = self.entries.setdefault(place.index, (body, place))
        if known != (body, place):
            self.wrong.append(f"at index {place.index} is {known[0][:12]!r} {known[1]}, too: {operation.describe()}")
        index = self.indexes.setdefault(body, place.index)
        if index != place.index and not self.is_foreign(body):
            self.wrong.append(f"{body[:12]!r} is at {index}, too: {operation.describe()}")


def why_not_linearizable(
    history: Iterable[Operation], *, is_foreign: Callable[[bytes], bool] = lambda _body: False
) -> list[str]:
    """What is wrong with a history; empty if it is linearizable.

    Args:
        history: all operations; those without an answer, too.
        is_foreign: whether an entry may be there that no client has appended.
    """
    operations = list(history)
    log = _Log(is_foreign)
    for operation in operations:
        _take(log, operation)
    for operation in operations:
        if operation.body is not None and (index := log.indexes.get(operation.body)) is not None:
            if operation.told is Told.REFUSED:
                log.wrong.append(f"it is at {index}: {operation.describe()}")
            log.at(index).begin(operation.invoked, operation)
    appended = {operation.body for operation in operations}
    log.wrong += [
        f"nobody appended what is at {index}: {body[:12]!r}"
        for body, index in log.indexes.items()
        if body not in appended and not is_foreign(body)
    ]
    return log.wrong + _why_not_ascending(log)


def _take(log: _Log, operation: Operation) -> None:
    match operation.told:
        case Told.APPENDED | Told.FOUND:
            place, body = operation.place, operation.body if operation.is_append else operation.found
            assert place is not None, "who is told that an entry is there is told where"
            assert body is not None, "and what it is"
            if not operation.is_append and place.index != operation.index:
                log.wrong.append(f"that is another one: {operation.describe()}")
            log.see(body, place, operation)
            log.at(place.index).end(operation.returned, operation)
        case Told.GONE:
            log.at(operation.index).end(operation.returned, operation)
        case Told.MISSING:
            log.at(operation.index).begin(operation.invoked, operation)
        case _:
            return


def _why_not_ascending(log: _Log) -> list[str]:
    wrong, latest, latest_index = [], _Bounds(), -1
    for index in sorted(log.bounds):
        bounds = log.bounds[index]
        if bounds.after > latest.after:
            latest, latest_index = bounds, index
        if latest.after > bounds.before:
            assert latest.after_operation is not None, "it has a bound"
            assert bounds.before_operation is not None, "it has a bound"
            wrong.append(
                f"index {index} was there before {latest_index} could be: "
                f"{bounds.before_operation.describe()}; {latest.after_operation.describe()}"
            )
    return wrong
