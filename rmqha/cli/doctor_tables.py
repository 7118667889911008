"""What `rmqha doctor` says of the tables in ``config`` of a broker that does not run, as a start would read them."""

import os
from collections.abc import Callable, Iterator
from typing import Any, Final

from rmqha.broker.dledger.dledger_options import member_options
from rmqha.broker.schedule.delay_offsets import decode_delay_offsets
from rmqha.broker.tables.offset_table import decode_offsets
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupTable
from rmqha.broker.tables.topic_config import TopicTable
from rmqha.cli.finding import FAIL, WARN, Finding, Level
from rmqha.cli.pages import Page
from rmqha.codec import java_json
from rmqha.config import BrokerConfig
from rmqha.errors import RemoteProtocolError, StoreReadError
from rmqha.namesrv.kv_config_manager import KV_CONFIG, decode_kv_config
from rmqha.store.config_files import (
    CONSUMER_OFFSET,
    DELAY_OFFSET,
    QUEUE_ENDS,
    SUBSCRIPTION_GROUP,
    TABLES_ORIGIN,
    TOPICS,
)
from rmqha.store.mapped_file import parse_file_name
from rmqha.store.os_disk import OsDisk

_GOOD: Final = ""
_PAGE: Final = str(Page.LOST_TABLES)
_TABLES: Final[dict[str, Callable[[dict[str, Any]], object]]] = {
    TOPICS: TopicTable.from_json,
    CONSUMER_OFFSET: decode_offsets,
    SUBSCRIPTION_GROUP: SubscriptionGroupTable.from_json,
    DELAY_OFFSET: decode_delay_offsets,
    QUEUE_ENDS: bool,
    TABLES_ORIGIN: bool,
    KV_CONFIG: decode_kv_config,
}
"""All that a start reads there."""
_OF_THIS_BROKER_ALONE: Final = (TABLES_ORIGIN, KV_CONFIG)


def check_tables(config: BrokerConfig) -> Iterator[Finding]:
    """Each as a start will read it: the file, or else its backup, or else none."""
    needed = _names_of(config)
    for name, take in _TABLES.items():
        path = f"{config.store_path_root_dir}/config/{name}"
        try:
            problem = _problem_of(path, take)
            backup = _problem_of(f"{path}.bak", take) if problem != _GOOD else _GOOD
        except StoreReadError as error:
            yield Finding(FAIL, "tables", f"{error}: a start refuses", f"let the user that runs it read it; {_PAGE}")
            continue
        if problem == _GOOD or (problem is None and backup is None and name not in needed):
            continue
        what = f"{path} is {'missing' if problem is None else f'no table ({problem})'}"
        if backup == _GOOD:
            yield Finding(WARN, "tables", f"{what}; a start takes its backup, which lacks the last change", _PAGE)
        elif name in _OF_THIS_BROKER_ALONE:
            level: Level = FAIL if name == KV_CONFIG else WARN
            yield Finding(level, "tables", f"{what}, nor is its backup one: a start begins without it", _PAGE)
        elif config.is_slave or config.enable_dleger_commit_log:
            whom = "a slave has it from its master" if config.is_slave else "a start takes what the other members have"
            yield Finding(WARN, "tables", f"{what}, nor is its backup one: {whom}", _PAGE)
        elif config.ha_peers:
            yield Finding(WARN, "tables", f"{what}, nor is its backup one: a start takes it from haPeers", _PAGE)
        else:
            yield Finding(FAIL, "tables", f"{what}, nor is its backup one: a start begins without it", _PAGE)
    for note in ("tablesLost", "tablesOlder"):
        if config.is_slave or not os.path.exists(f"{config.store_path_root_dir}/{note}"):  # noqa: PTH110
            continue
        what = f"{note}: the tables are not all that this group had, and some peer of haPeers has yet to tell its own"
        yield Finding(WARN, "tables", what, f"start this broker with all of them; {_PAGE}")


def _names_of(config: BrokerConfig) -> set[str]:
    """Tables that have been saved here: those of which that is noted, and topics, if anything was ever sent."""
    names = {TOPICS} if _has_log(config) else set[str]()
    try:
        noted = java_json.loads(OsDisk().read_bytes(f"{config.store_path_root_dir}/config/{TABLES_ORIGIN}"))
        tables = noted.get("tables") if isinstance(noted, dict) else None
    except (StoreReadError, RemoteProtocolError):
        return names
    return names | {name for name in tables if type(name) is str} if isinstance(tables, list) else names


def _has_log(config: BrokerConfig) -> bool:
    """Whether something was ever sent: the topics were saved before that."""
    directories = {config.store_path_commit_log}
    if config.enable_dleger_commit_log:
        directories |= {*member_options(config).store.data_store_paths}
    disk = OsDisk()
    try:
        return any(parse_file_name(name) is not None for path in directories for name in disk.listdir(path))
    except StoreReadError:
        return False  # that it cannot be looked at is told of the store


def _problem_of(path: str, take: Callable[[dict[str, Any]], object]) -> str | None:
    """Why a file is no table; empty: it is one; None: it is not there. Raises StoreReadError."""
    disk = OsDisk()
    if not disk.exists(path):
        return None
    try:
        value = java_json.loads(disk.read_bytes(path))
        if not isinstance(value, dict):
            return "it holds no JSON object"
        take(value)
    except RemoteProtocolError as error:
        return str(error)
    return _GOOD
