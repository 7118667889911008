"""Whether a slave may be made master: decided from what brokers say of themselves. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from rmqha.cli.later_begin import begins_later
from rmqha.cli.pages import Page
from rmqha.cli.verdict import page_of

_MAY_NOT: Final = "it should not be made master"
_NOT_TAKEN: Final = "were not taken over"
"""How a slave's status says either (rmqha/broker/tables/queue_ends_client.py)."""
_OLDER_TABLES: Final = "its topics, groups and consumers' offsets are those that it had before its last start"
_FOLLOWS: Final = "transfer"
_UNFIT_STATES: Final = ("diverged", "failed", "misconfigured", "below-min", "comparing")


@dataclass(frozen=True)
class Replica:
    """Another broker of the group.

    Attributes:
        facts: what it says of itself; None: nobody answers there.
        listens: something takes connections there, or on its HA port.
        is_peer: nothing that is known here has ever named it as the master.
    """

    address: str
    facts: dict[str, Any] | None
    listens: bool = False
    is_peer: bool = False

    @property
    def is_slave(self) -> bool:
        """It says so, or its configuration, if it is RocketMQ's; who says nothing counts as a master."""
        return self.facts is not None and self.facts.get("role") == "SLAVE"


@dataclass(frozen=True)
class Obstacle:
    """Why the slave is not made master; ``accepted_by`` names the option that goes on all the same, if there is one."""

    what: str
    next: str
    accepted_by: str = ""


@dataclass(frozen=True)
class Overlap:
    """What is known of the offsets that two logs have in common.

    Attributes:
        compared_bytes: so many of the last of them were compared.
        differs_at: the first of these at which the logs hold different bytes, if any.
        unread: why they could not be compared; empty if they were, or there are none.
    """

    compared_bytes: int = 0
    differs_at: int | None = None
    unread: str = ""


@dataclass(frozen=True)
class OldStore:
    """The old master's store, read where it lies.

    Attributes:
        end_offset: behind its last message; 0: it holds none.
        tail_messages: so many of its messages are not in the slave's log.
        damage: why it may hold more than was read; empty if it was read to its end.
        is_own: it is the slave's.
        overlap: its log's and the slave's.
    """

    path: str
    end_offset: int
    tail_messages: int
    damage: str = ""
    is_own: bool = False
    overlap: Overlap = Overlap()


def obstacles(own: dict[str, Any], others: Iterable[Replica], old_store: OldStore | None = None) -> list[Obstacle]:
    """All that is in the way.

    Args:
        own: what the slave says of itself.
        others: the old master, and the other replicas.
        old_store: the old master's, if it was looked at.
    """
    others = list(others)
    found = [*_about_itself(own), *_about_its_master(own, others)]
    for one in others:
        if one.is_slave and one.facts is not None:
            if one.facts.get("starting"):
                found.append(Obstacle(f"{one.address} is starting: what it holds is not known", "wait for it"))
            elif _end(one.facts) > _end(own):
                ahead = f"{one.address} holds {_end(one.facts) - _end(own):,} bytes more"
                found.append(Obstacle(ahead, "promote that one: what it holds may have been acknowledged"))
            elif 0 <= _begin(one.facts) < _begin(own):
                earlier = f"{one.address} holds {_begin(own) - _begin(one.facts):,} bytes before this log begins"
                told = "promote that one: groups that have not had them pass over them here"
                found.append(Obstacle(earlier, told, accepted_by="--accept-later-begin"))
        elif one.is_peer and one.facts is None and one.listens:
            unknown = f"what {one.address} holds is not known: it is listened on, and does not answer"
            told = "have it go on ('kill -CONT' if it was stopped), or end it: it may hold more, or be the master"
            found.append(Obstacle(unknown, told))
        elif one.facts is not None or one.listens:
            said = f"says that it is {one.facts.get('role', 'a broker')}" if one.facts else "is listened on"
            found.append(Obstacle(f"the old master may be alive: {one.address} {said}", "stop it for good first"))
    return [*found, *(_about_the_old_store(old_store) if old_store is not None else ())]


def _about_the_old_store(old: OldStore) -> Iterable[Obstacle]:
    option = "--accept-lost-tail"
    if old.is_own:
        yield Obstacle(f"{old.path} is this slave's own store", "name the old master's with --old-store")
        return
    if old.overlap.differs_at is not None:
        what = f"the old master's store and this slave's log differ, at offset {old.overlap.differs_at:,} at the latest"
        told = f"find out which is right, as what only the other one holds is lost: {Page.DIVERGED}"
        yield Obstacle(what, told, accepted_by=option)
    if old.overlap.unread:
        what = f"whether the old master's store and this slave's log are the same is not known: {old.overlap.unread}"
        yield Obstacle(what, "run this where both can be read, as a user that may", accepted_by=option)
    if old.tail_messages:
        what = f"the old master's store holds {old.tail_messages:,} messages that this slave lacks"
        told = "start the old master again, or have this slave fetch them; else they are lost"
        yield Obstacle(what, told, accepted_by=option)
    if old.damage or not old.end_offset:
        what = f"what the old master's store holds is not known: {old.damage or 'its log is empty'}"
        told = f"is the right disk mounted there, and sound? 'rmqha log verify {old.path}' shows what can be read"
        yield Obstacle(what, told, accepted_by=option)


def _about_its_master(own: dict[str, Any], others: list[Replica]) -> Iterable[Obstacle]:
    """A slave that copies from another slave may go on with that while the master is gone."""
    client = own.get("ha_client") or {}
    if client.get("state") != _FOLLOWS:
        return
    host, _, port = str(client.get("master")).rpartition(":")
    above = f"{host}:{int(port) - 1}" if port.isascii() and port.isdigit() else ""
    if not any(one.is_slave and one.address == above for one in others):
        told = "stop it for good first; of one that lost its power the connection ends by haHousekeepingInterval (20 s)"
        yield Obstacle(f"it follows {client.get('master')}: the connection is open", told)


def _about_itself(own: dict[str, Any]) -> Iterable[Obstacle]:
    if own.get("role") != "SLAVE":
        yield Obstacle(f"the broker that runs is {own.get('role', 'no broker of rmqha')}", "only a slave is promoted")
        return
    if own.get("starting"):
        yield Obstacle("it is starting, and does not know what it holds", "wait for it: 'rmqha status'")
        return
    if own.get("write_refusal"):
        yield Obstacle(f"it cannot write: {own['write_refusal']}", "promote another one, or repair it first")
    state = (own.get("ha_client") or {}).get("state")
    if state in _UNFIT_STATES:
        yield Obstacle(f"it is {state}", f"promote another one, or see {page_of(state)}")
    if later := begins_later(own):
        told = "promote another one, or copy the log of one that has it here first: this slave on an empty store does"
        yield Obstacle(later, told, accepted_by="--accept-later-begin")
    for damage in filter(None, (own.get("damaged_records"), own.get("dropped"))):
        told = "promote another one, or copy a sound log here first: 'rmqha log verify' tells which is"
        yield Obstacle(damage, told, accepted_by="--accept-damage")
    not_learned, not_taken = own.get("not_learned", ()), own.get("tables_not_taken")
    if not_taken or (own.get("lost_tables") and not _has_taken(own)):
        told = "promote another one: with its master's tables go commits, prohibitions, deletions and empty topics"
        what = "; ".join(filter(None, [not_taken, own.get("lost_tables")]))
        yield Obstacle(what, f"{told}. {Page.LOST_TABLES}", accepted_by="--accept-lost-tables")
    elif (older := _bytes_without_tables(own)) > 0:
        told = "promote another one: what operators have decided since, and commits, go with its master's tables"
        what = f"its topics, groups and consumers' offsets are those of {older:,} bytes before its log's end"
        yield Obstacle(what, f"{told}. {Page.LOST_TABLES}", accepted_by="--accept-lost-tables")
    for reason in not_learned:
        if reason.startswith(_MAY_NOT):
            told = "promote another one; queues without a message would begin at 0 again"
            yield Obstacle(reason, told, accepted_by="--accept-unknown-queue-ends")


def _bytes_without_tables(own: dict[str, Any]) -> int:
    """How far its log went on after it had its master's tables last; 0: not at all, or that is not known."""
    tables = own.get("tables") or {}
    log_end = tables.get("log_end", -1)
    return 0 if tables.get("is_in_step", True) or log_end < 0 else max(_end(own) - log_end, 0)


def _has_taken(own: dict[str, Any]) -> bool:
    """Whether a slave has taken its master's tables over since its start."""
    return not any(_NOT_TAKEN in reason for reason in own.get("not_learned", ()))


def stakes(own: dict[str, Any], others: Iterable[Replica], old_store: OldStore | None = None) -> list[str]:
    """What each log holds, and what is not known, a line each."""
    lines = [_line("this slave", own)] if not own.get("starting") and "max_offset" in own else []
    unflushed = own.get("max_offset", 0) - own.get("flushed_offset", 0)
    if unflushed > 0:
        lines.append(f"{unflushed:,} bytes of it are not flushed: gone, should this machine lose power now")
    if not (_has_taken(own) or own.get("tables_not_taken") or own.get("lost_tables")):
        lines.append(_OLDER_TABLES)
    for one in others:
        if one.facts is not None and "max_offset" in one.facts:
            lines.append(_line(one.address, one.facts))
        elif one.facts is None and not one.listens:
            lines.append(f"{one.address}: nobody answers; what only it holds is lost, or diverges when it comes back")
    if old_store is not None and not old_store.is_own:
        beyond = f"{old_store.tail_messages:,} of its messages lie beyond this slave's log"
        overlap, same = old_store.overlap, ""
        if overlap.compared_bytes and overlap.differs_at is None:
            same = f"; the last {overlap.compared_bytes:,} bytes that both have are the same"
        lines.append(f"{old_store.path}: log ends at {old_store.end_offset:,}; {beyond}{same}")
    return lines


def _line(name: str, facts: dict[str, Any]) -> str:
    flushed = facts.get("flushed_offset")
    begins = f"log begins at {_begin(facts):,} and ends at" if _begin(facts) > 0 else "log ends at"
    return f"{name}: {begins} {facts['max_offset']:,}" + (f", flushed {flushed:,}" if flushed is not None else "")


def _end(facts: dict[str, Any]) -> int:
    return int(facts.get("max_offset") or 0)


def _begin(facts: dict[str, Any]) -> int:
    return int(facts.get("min_offset") or 0)
