"""ReplicationGroup: who this broker is in its group, and who else says to be in it.

A slave tells its master who it is when it asks where the log ends (code 28), in fields that RocketMQ ignores; the
answer tells who the master is. A RocketMQ slave tells nothing, and is believed to belong here. Any client can ask (28):
only those are believed that also come to the HA port.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from rmqha.choices import HaCatchUp
from rmqha.codec.host import join_address
from rmqha.config import BrokerConfig
from rmqha.log_limit import LogLimit
from rmqha.replication.group import GroupMember, why_apart

logger = structlog.get_logger()

_MEMBERS_MAX: Final = 64
_OF_HOST_MAX: Final = 8
"""Beside those that follow."""
_PRESENT_S: Final = 12.0
"""A slave that does not follow asks again after 5 s at most, and an address that is silent holds it up for 3 s."""
_TOLD_FOR_S: Final = 30.0
"""A slave asks its master every ten seconds."""
_TOLD_MAX: Final = 8
_ADDRESS_SIZE_MAX: Final = 80
_DIGITS_MAX: Final = 19
_NAME_SIZE_MAX: Final = 255
_LEFT_OUT: Final = "haPeers leaves out {}, which follows: what it alone holds after a crash of this master stays there"
_ONE_REACHED: Final = "clients reach only one of them, and they count as one replica"
_PORT: Final = "listenPort"
_HA_PORT: Final = "haClientPort"
"""The port at the slave's side of its HA connection: on one host it tells one slave from another."""
_TROUBLE: Final = "haTrouble"
"""Why a slave takes nothing at present, in a sentence."""
_TROUBLE_SIZE_MAX: Final = 300
_LACKS: Final = "haLacksBytes"
"""How much a slave's log lacks at its begin of what its master's has, and what has not expired."""
_BEGIN: Final = "haMinOffset"
"""Where a slave's log begins, if that is later than its master's; expired or not."""


@dataclass(frozen=True, slots=True)
class _Introduced:
    member: GroupMember
    at: float
    ha_client_port: str
    """Of the HA connection that it follows by; empty if it did not say."""
    trouble: str
    lacks: int
    begin: int
    """Where its log begins, as far as that is later than this one's."""


class ReplicationGroup:
    """One broker's view of its group.

    Attributes:
        broker_name: what clients are told; a slave without ``brokerName`` takes its master's.
        slave_addresses: host and port of each slave's connection of this moment.
        name_slave: told host and port of a slave's HA connection, and its ``brokerName/brokerId``.
        came_from: hosts from which brokers come to the HA port, or came a moment ago: what others say does not count.
        trouble: says why this broker takes nothing of a log at present; empty if it does.
        later: says what this log lacks at its begin (later_begin); empty or None if nothing, as far as is known.
        begin: says where this log begins, if that is later than its master's, expired or not; else 0.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        slave_addresses: Callable[[], Iterable[tuple[str, str]]],
        name_slave: Callable[[str, int, str], None],
        came_from: Callable[[], Iterable[str]] = tuple,
        trouble: Callable[[], str] = str,
        later: Callable[[], dict[str, Any] | None] = dict,
        begin: Callable[[], int] = int,
    ) -> None:
        self._is_named: Final = "brokerName" in config.origins
        self._broker_id: Final = config.broker_id
        self._file_size: Final = config.mapped_file_size_commit_log
        self._listen_port: Final = config.listen_port
        self._asks_peers: Final = not config.is_slave and config.ha_catch_up_at_start is not HaCatchUp.OFF
        self._introduced: Final[dict[tuple[str, str], _Introduced]] = {}
        self._namesakes: list[str] = []
        """Where those listen, this broker among them, that its master heard say this brokerId; empty if it is alone."""
        self._told_at = 0.0
        self._log_limit: Final = LogLimit()
        self.broker_name = config.broker_name
        self.slave_addresses: Final = slave_addresses
        self.name_slave: Final = name_slave
        self.came_from: Final = came_from
        self.trouble: Final = trouble
        self.later: Final = later
        self.begin: Final = begin
        self.table_troubles: Callable[[Collection[str]], list[str]] = lambda _hosts: []
        """Told the hosts of slaves: which of them do not get tables from here, a sentence each."""
        self._followed_from: int | None = None
        self._followed_id: int | None = None
        """The brokerId of whom this broker follows, or did; None until it says so."""
        self._cluster: Final = config.broker_cluster_name
        self._followed_cluster: str | None = None
        """Likewise."""

    @property
    def member(self) -> GroupMember:
        """This broker, with its name only if the operator gave it one."""
        return GroupMember(self.broker_name if self._is_named else None, self._broker_id, self._file_size)

    def why_apart(self, other: GroupMember) -> str:
        """Why ``other`` is none of this group; empty if it is, as far as is known."""
        return why_apart(self.member, other)

    def meet(self, master: GroupMember) -> str:
        """Why not to follow this master; empty if there is no reason. Takes its name if the operator gave none.

        Called for each connection first, with nothing known of one that has yet to say who it is.
        """
        why, self._followed_id = self.why_apart(master), master.broker_id
        self._followed_cluster = master.cluster
        if not why and not self._is_named and master.broker_name and master.broker_name != self.broker_name:
            logger.info("group.named", broker_name=master.broker_name, instead_of=self.broker_name)
            self.broker_name = master.broker_name
        return why

    def introduce(self, ha_client_port: int | None = None) -> dict[str, str]:
        """The fields of a request that say who asks; a slave that follows also says from which port it does."""
        self._followed_from = ha_client_port
        name = {"brokerName": self.broker_name} if self._is_named else {}
        if trouble := self.trouble():
            name[_TROUBLE] = trouble[:_TROUBLE_SIZE_MAX]
        if later := self.later():
            name[_LACKS] = str(later["bytes"])
        if begin := self.begin():
            name[_BEGIN] = str(begin)
        facts = {"brokerId": self._broker_id, "mappedFileSizeCommitLog": self._file_size, _PORT: self._listen_port}
        followed_from = {} if ha_client_port is None else {_HA_PORT: ha_client_port}
        return name | {key: str(value) for key, value in (facts | followed_from).items()}

    def complain(self) -> dict[str, str]:
        """The fields of a question that need not say who asks: as :meth:`introduce` if there is any trouble."""
        return self.introduce(self._followed_from) if self.trouble() or self.later() or self.begin() else {}

    def on_introduced(self, host: str, fields: Mapping[str, str], *, now: float) -> None:
        """A broker on ``host`` has said who it is. What does not belong together is logged when it is new.

        Nothing is kept of what a host says from which nobody comes to the HA port.
        """
        if "brokerId" not in fields:
            return
        member, where = member_of(fields), (host, fields.get(_PORT, "")[:_DIGITS_MAX])
        if (ha_client_port := _number(fields.get(_HA_PORT))) is not None:
            self.name_slave(host, ha_client_port, self._name_of(member))
        if host not in self.came_from():
            return
        before = self._introduced.pop(where, None)
        followed_from = "" if ha_client_port is None else str(ha_client_port)
        trouble = fields.get(_TROUBLE, "")[:_TROUBLE_SIZE_MAX]
        lacks, begin = (_number(fields.get(key)) or 0 for key in (_LACKS, _BEGIN))
        self._introduced[where] = _Introduced(member, now, followed_from, trouble, lacks, begin)
        if trouble != ("" if before is None else before.trouble) and self._log_limit.take(now=now):
            event = "group.slave_takes_nothing" if trouble else "group.slave_takes_again"
            logger.warning(event, slave=":".join(where), name=self._name_of(member), reason=trouble)
        self._make_room(where)
        is_new = before is None or before.member != member
        if is_new and (clashes := self.clashes(now=now)) and self._log_limit.take(now=now):
            logger.warning("group.mixed_up", clashes=clashes)

    def _make_room(self, where: tuple[str, str]) -> None:
        """Of those that do not follow forget the oldest one too many: of this host, or of all.

        One connection is one broker's: who has just spoken takes the place of another that named the same.
        """
        host, followed_from = where[0], self._introduced[where].ha_client_port
        for other, one in list(self._introduced.items()):
            if followed_from and other != where and (other[0], one.ha_client_port) == (host, followed_from):
                del self._introduced[other]
        slaves = list(self.slave_addresses())
        others = [one for one, said in self._introduced.items() if (one[0], said.ha_client_port) not in slaves]
        of_host = [one for one in others if one[0] == host]
        if len(of_host) > _OF_HOST_MAX:
            del self._introduced[of_host[0]]
        elif len(self._introduced) > _MEMBERS_MAX and others:
            del self._introduced[others[0]]

    def on_told(self, status: dict[str, Any], *, now: float) -> GroupMember:
        """Return who another broker is by its status document, and note who else has this broker's id there.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: the document does not say so.
        """
        size = status.get("mapped_file_size_commit_log")
        shared = status.get("shared_ids", {}).get(str(self._broker_id), ())
        namesakes = [str(address)[:_ADDRESS_SIZE_MAX] for address in shared[:_TOLD_MAX]]
        is_new, self._namesakes, self._told_at = namesakes != self._namesakes, namesakes, now
        if namesakes and is_new and self._log_limit.take(now=now):
            logger.warning("group.broker_id_shared", broker_id=self._broker_id, brokers=namesakes)
        name, broker_id, cluster = status["broker_name"], status["broker_id"], status.get("broker_cluster_name")
        file_size = None if size is None else int(size)
        return GroupMember(str(name), int(broker_id), file_size, None if cluster is None else str(cluster))

    def clashes(self, *, now: float) -> list[str]:
        """What does not belong together, a sentence each, among the brokers that are there now."""
        apart = [(":".join(where), self.why_apart(self._introduced[where].member)) for where in self._present(now)]
        clashes = [f"{address}: {why}" for address, why in apart if why]
        if self._followed_cluster not in {None, self._cluster}:
            clashes.append(
                f"its master has brokerClusterName={self._followed_cluster}, this broker has {self._cluster}: as "
                "master it would be of another cluster, for mqadmin -c and for request-reply. Set the same on both"
            )
        clashes += [
            f"{' and '.join(addresses)}: all have brokerId={broker_id}: {_ONE_REACHED}"
            for broker_id, addresses in self.shared_ids(now=now).items()
        ]
        if self._namesakes and now < self._told_at + _TOLD_FOR_S:
            clashes.append(
                f"{' and '.join(self._namesakes)} say brokerId={self._broker_id}, as this broker's master hears, and "
                f"one of them is this broker: {_ONE_REACHED}. Give each its own"
            )
        return clashes

    def circle(self) -> str:
        """That whom this broker follows follows this broker, in a sentence; empty if it does not."""
        if self._followed_id is None or (address := self.following().get(self._followed_id)) is None:
            return ""
        return (
            f"the broker at {address} (brokerId {self._followed_id}), which this one follows, follows this one: there "
            "is no master among them. Make one of them master, or have them follow the one that there is"
        )

    def troubles(self, *, now: float) -> list[str]:
        """Which slaves said a moment ago that they take nothing at present, or get no tables, a sentence each."""
        return self.table_troubles({host for host, _ in self.slave_addresses()}) + [
            f"{':'.join(where)} ({self._name_of(one.member)}) takes nothing, and says why: {one.trouble}"
            for where, one in self._introduced.items()
            if one.trouble and now < one.at + _TOLD_FOR_S
        ]

    def lacking_slaves(self, *, now: float) -> list[str]:
        """Which slaves said a moment ago that their logs begin later than this one, a sentence each."""
        return [
            f"{':'.join(where)} ({self._name_of(one.member)}) lacks the first {one.lacks:,} bytes of this log, which "
            "have not expired: as a master it would pass over what groups have not had of them"
            for where, one in self._introduced.items()
            if one.lacks and now < one.at + _TOLD_FOR_S
        ]

    def begin_of(self, broker_id: int) -> int:
        """Where the log of the slave with that id begins, as it said last; 0 if no later than this one, or unsaid.

        That is one that follows by a connection of this moment; where none does, as behind a tunnel, any of that id.
        """
        slaves = list(self.slave_addresses())
        introduced = [(host, one) for (host, _), one in self._introduced.items() if one.member.broker_id == broker_id]
        following = [(host, one) for host, one in introduced if (host, one.ha_client_port) in slaves]
        return max((one.begin for _, one in following or introduced), default=0)

    def _name_of(self, member: GroupMember) -> str:
        return f"{member.broker_name or self.broker_name}/{member.broker_id}"

    def shared_ids(self, *, now: float) -> dict[str, list[str]]:
        """By brokerId, where those listen that are there now and have it, if they are several."""
        by_id: dict[int | None, list[str]] = {}
        for where in self._present(now):
            by_id.setdefault(self._introduced[where].member.broker_id, []).append(":".join(where))
        return {
            str(broker_id): sorted(addresses)
            for broker_id, addresses in by_id.items()
            if len(addresses) > 1 and broker_id is not None
        }

    def following(self) -> dict[int, str]:
        """By brokerId, where clients find those that follow this broker by a connection of this moment.

        That is a slave's ``listenPort`` at the address from which it follows.
        """
        slaves, found = list(self.slave_addresses()), dict[int, str]()
        for (host, port), one in self._introduced.items():
            broker_id = one.member.broker_id
            if broker_id and _number(port) and (host, one.ha_client_port) in slaves:
                found[broker_id] = join_address(host, int(port))
        return found

    def unnamed(self, peer_ids: Sequence[int | None]) -> list[str]:
        """Which slaves follow that no peer of haPeers is, a sentence each.

        Args:
            peer_ids: the brokerId of each peer; None of one that has yet to say it, and may be any of the slaves.
        """
        others = sorted(self.following().items()) if self._asks_peers else []
        named = [f"{where} ({self.broker_name}/{number})" for number, where in others if number not in peer_ids]
        if len(named) <= (unsaid := peer_ids.count(None)):
            return []
        if unsaid:
            named = [f"at least {len(named) - unsaid} of {', '.join(named)}"]
        return [_LEFT_OUT.format(one) for one in named]

    def _present(self, now: float) -> Iterator[tuple[str, str]]:
        """The brokers that spoke a moment ago, or follow by a connection of this moment.

        Of those that did not say by which: of each host the last, as many as it has other connections.
        """
        slaves = list(self.slave_addresses())
        following = {where for where, one in self._introduced.items() if (where[0], one.ha_client_port) in slaves}
        others = Counter(host for host, _ in slaves)
        others.subtract(host for host, _ in following)
        for where in reversed(self._introduced):
            if where not in following:
                others[where[0]] -= 1
            if where in following or others[where[0]] >= 0 or now < self._introduced[where].at + _PRESENT_S:
                yield where


def member_of(facts: Mapping[str, str]) -> GroupMember:
    """Who a broker is by RocketMQ's names of the keys; what is missing, or no number, is not known."""
    name, broker_id, size = (facts.get(key) for key in ("brokerName", "brokerId", "mappedFileSizeCommitLog"))
    cluster = facts.get("brokerClusterName")
    return GroupMember(_text(name), _number(broker_id), _number(size), _text(cluster))


def _text(told: str | None) -> str | None:
    return told[:_NAME_SIZE_MAX] if told else None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX else None
