"""SubscriptionGroupManager: what consumer groups there are, and what each is allowed.

A group is made by the first heartbeat of a member, with RocketMQ's defaults; an operator may change it. A slave makes
none: its table is its master's.

Source: spec: remoting §2.1, §2.6 (201), §2.7 (200, 207); rocketmq-all-4.9.8 SubscriptionGroupManager.java.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import structlog

from rmqha.broker.tables.change_stamps import ChangeStamps, choose_newer, decode_stamps, stamps_of_version
from rmqha.broker.tables.made_since import MadeSince
from rmqha.codec.host import host_of
from rmqha.codec.limits import TABLE_SIZE_MAX, group_problem
from rmqha.codec.route import MASTER_ID
from rmqha.errors import RemoteProtocolError
from rmqha.log_limit import LogLimit
from rmqha.replication.role import Role
from rmqha.replication.watermark import Watermark
from rmqha.shares import Room

logger = structlog.get_logger()

BUILT_IN: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)
_SYSTEM_PREFIX: Final = "CID_RMQ_SYS_"
"""Groups of RocketMQ's own parts, which are made whatever the configuration says."""
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_ENTRY_SIZE: Final = 320
"""Bytes of an entry without its names, with the longest numbers."""


@dataclass(frozen=True, slots=True)
class SubscriptionGroupConfig:
    """One group of consumers.

    Attributes:
        consume_enable: its pulls are answered.
        consume_broadcast_enable: also those of members that broadcast.
        retry_queue_nums: queues of its topic ``%RETRY%group``; with none, what it sends back is dropped.
        retry_max_times: a message sent back more often goes to ``%DLQ%group``.
        broker_id: the broker that its members are told to pull from...
        which_broker_when_consume_slowly: ...and when they are far behind.
        notify_consumer_ids_changed_enable: its members are told when others come and go.
    """

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = MASTER_ID
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True

    @property
    def json_size(self) -> int:
        """The bytes that its entry of the table has at most."""
        return 2 * len(self.group_name) + _ENTRY_SIZE

    def to_json(self) -> dict[str, Any]:
        """The members as RocketMQ writes them."""
        return {
            "brokerId": self.broker_id,
            "consumeBroadcastEnable": self.consume_broadcast_enable,
            "consumeEnable": self.consume_enable,
            "consumeFromMinEnable": self.consume_from_min_enable,
            "groupName": self.group_name,
            "notifyConsumerIdsChangedEnable": self.notify_consumer_ids_changed_enable,
            "retryMaxTimes": self.retry_max_times,
            "retryQueueNums": self.retry_queue_nums,
            "whichBrokerWhenConsumeSlowly": self.which_broker_when_consume_slowly,
        }

    @classmethod
    def from_json(cls, name: object, value: dict[str, Any]) -> "SubscriptionGroupConfig":
        """Read an entry of ``subscriptionGroupTable``; members that are missing keep their defaults.

        Raises:
            AttributeError, TypeError, ValueError: the entry, or its name, is none.
        """
        if type(name) is not str:
            raise TypeError(f"{name!r:.40} is no group's name")
        return cls(
            name,
            consume_enable=bool(value.get("consumeEnable", True)),
            consume_from_min_enable=bool(value.get("consumeFromMinEnable", True)),
            consume_broadcast_enable=bool(value.get("consumeBroadcastEnable", True)),
            retry_queue_nums=_number(value.get("retryQueueNums", 1), _INT32_MAX),
            retry_max_times=_number(value.get("retryMaxTimes", 16), _INT32_MAX),
            broker_id=_number(value.get("brokerId", MASTER_ID), _INT64_MAX),
            which_broker_when_consume_slowly=_number(value.get("whichBrokerWhenConsumeSlowly", 1), _INT64_MAX),
            notify_consumer_ids_changed_enable=bool(value.get("notifyConsumerIdsChangedEnable", True)),
        )


_USUAL: Final = SubscriptionGroupConfig("")
"""Of a group that is not made (yet), but may be."""


@dataclass(frozen=True, slots=True)
class SubscriptionGroupTable:
    """The groups of a broker; ``data_version`` (timestamp ms, counter) tells it from its earlier ones."""

    data_version: tuple[int, int]
    groups: dict[str, SubscriptionGroupConfig]
    changed: Mapping[str, int] | None = None
    """When operators changed, or deleted, which group last; None: it does not say, as RocketMQ's."""

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "SubscriptionGroupTable":
        """Read ``subscriptionGroup.json``, or the answer to 201. Raises RemoteProtocolError if it is none."""
        try:
            version, table = value.get("dataVersion") or {}, value.get("subscriptionGroupTable") or {}
            data_version = (int(version.get("timestamp", 0)), int(version.get("counter", 0)))
            groups = {name: SubscriptionGroupConfig.from_json(name, entry) for name, entry in table.items()}
            changed = decode_stamps(value.get("changedGroups"))
        except (AttributeError, TypeError, ValueError, RecursionError) as error:
            raise RemoteProtocolError(f"subscription groups do not parse: {error!r:.200}") from None
        return cls(data_version, groups, changed)


class SubscriptionGroupManager:
    """The table of groups of one broker.

    Invariant: ``data_version`` changes with every change of the table, which slaves can fetch as one answer.
    """

    def __init__(self, role: Role, *, auto_create: bool, now_ms: Callable[[], int]) -> None:
        self._role: Final = role
        self._auto_create: Final = auto_create
        self._table = _built_in()
        self._room: Final = Room(
            "the table of groups that slaves can fetch",
            of_host="what clients of {host} have made since this broker started",
            size_max=TABLE_SIZE_MAX,
        )
        self._made_by: Final = dict[str, str]()
        """The host on whose account a group is."""
        for group in self._table.values():
            self._room.add("", group.json_size)
        self._warnings: Final = LogLimit()
        self.changed: Final = ChangeStamps(now_ms)
        """When operators changed, or deleted, which group last."""
        self.made_since: Final = MadeSince("madeGroups")
        """Groups whose first member came since the table was lost: they may have been before, and forbidden."""
        self.data_version: tuple[int, int] = (now_ms(), 0)
        self._has_changed = False
        """Here, since a table was taken over: another one's version may be the same by chance."""
        self.dirty = False
        """The table has changed since it was saved."""
        self.made = 0
        """How many changes there were."""
        self.saved: Final = Watermark()
        """So many of them are in the file; waiters are told when a save succeeds, and when it fails."""

    def select(self, group: str) -> SubscriptionGroupConfig | None:
        """What a group is allowed; the defaults if it does not exist but may be made; None if it may not."""
        known = self._table.get(group)
        if known is not None:
            return known
        return _USUAL if self._auto_create or group.startswith(_SYSTEM_PREFIX) else None

    def find(self, group: str, *, peer: str = "") -> SubscriptionGroupConfig | None:
        """As :meth:`select`, for a client at ``peer`` that will consume in it: a master makes what may be made.

        Nobody is turned away where there is no room for another group: it goes by the defaults, too.
        """
        config = self.select(group)
        if config is not _USUAL or not self._role.is_master:
            return config
        made, host = SubscriptionGroupConfig(group), host_of(peer)
        if problem := group_problem(group) or self._room.problem(host, made.json_size):
            self._warnings.log(logger.warning, "subscription_group.not_kept", group=group[:80], reason=problem)
            return config
        self._made_by[group] = host
        self.changed.note_again(group)
        self.made_since.note(group)
        self._put(made)
        return made

    def update(self, config: SubscriptionGroupConfig) -> None:
        """Make a group, or change it, as an operator asks.

        Raises:
            RemoteProtocolError: clients take no such name, or there is no room for it.
        """
        growth = 0 if config.group_name in self._table else config.json_size
        if problem := group_problem(config.group_name) or self._room.problem("", growth):
            raise RemoteProtocolError(f"the subscription group is not kept: {problem}")
        self.changed.note(config.group_name)
        self.made_since.drop(config.group_name)
        self._put(config)

    def delete(self, group: str) -> None:
        """Forget a group; the next member to come makes it again, with the defaults."""
        former = self._table.pop(group, None)
        if former is not None:
            self._give_back(former)
        elif group_problem(group):
            return
        self.made_since.drop(group)
        self.changed.note(group)
        self._note_change()

    def _give_back(self, config: SubscriptionGroupConfig) -> None:
        self._room.add(self._made_by.pop(config.group_name, ""), -config.json_size)

    def _put(self, config: SubscriptionGroupConfig) -> None:
        if config.group_name not in self._table:
            self._room.add(self._made_by.get(config.group_name, ""), config.json_size)
        self._table[config.group_name] = config
        self._note_change()

    def _note_change(self) -> None:
        self.data_version, self._has_changed = (self.changed.version_time(), self.data_version[1] + 1), True
        self.made += 1
        self.dirty = True

    async def to_json_in_turns(self) -> dict[str, Any]:
        """The whole table, as ``subscriptionGroup.json`` and the answer to 201 hold it; made in one short turn."""
        timestamp, counter = self.data_version
        return {
            "dataVersion": {"counter": counter, "timestamp": timestamp},
            "subscriptionGroupTable": dict(self._table),
            "changedGroups": self.changed.to_json(),
        }

    def replace_from_json(self, value: dict[str, Any]) -> None:
        """As :meth:`replace`. Raises RemoteProtocolError if it is no table of groups; nothing has changed."""
        self.replace(SubscriptionGroupTable.from_json(value))
        self.made_since.replace_from_json(value)
        self.dirty = False

    def merge(self, table: SubscriptionGroupTable, *, is_lost: bool) -> None:
        """Take what a ``table`` of another broker of this group says later than the one here.

        Args:
            table: what it has.
            is_lost: whether the table here was lost, so that what it says without a stamp counts less.
        """
        stamps = self.changed.of_told(table.groups, table.changed or {})
        is_newer = is_lost or table.data_version[1] > self.data_version[1]
        known = {name: group for name, group in self._table.items() if name not in self.made_since}
        chosen = choose_newer(table.groups, stamps, known, self.changed, is_newer=is_newer)
        for name, told in chosen.items():
            former = self._table.pop(name, None)
            self.made_since.drop(name)
            if former is not None:
                self._give_back(former)
            if told is not None:
                self._put(told)
        if chosen:
            self.changed.adopt_newer(stamps)
            self.data_version = (self.data_version[0], max(self.data_version[1], table.data_version[1]))
            self._note_change()

    def replace(self, table: SubscriptionGroupTable) -> bool:
        """Take over a table (our own file's, or the master's); False if it was taken over before.

        One that says nothing costs no group that is known, and is not taken over.
        """
        if (table.data_version == self.data_version and not self._has_changed) or not table.groups:
            return False
        former, self._table = self._table, _built_in() | table.groups
        for group in former.keys() - self._table.keys():
            self._give_back(former[group])
        for group in self._table.keys() - former.keys():
            self._room.add("", self._table[group].json_size)
        self.changed.replace(stamps_of_version(table.changed, table.data_version))
        self.data_version, self._has_changed = table.data_version, False
        self.dirty = True
        return True


def _built_in() -> dict[str, SubscriptionGroupConfig]:
    """Groups every broker has (SubscriptionGroupManager.java)."""
    return {name: SubscriptionGroupConfig(name) for name in BUILT_IN}


def _number(value: Any, at_most: int) -> int:
    number = int(value)
    if not -at_most <= number <= at_most:
        raise ValueError(f"{value!r:.40} is no number of at most {at_most}")
    return number
