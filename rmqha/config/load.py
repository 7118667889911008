"""From files and command line to one checked :class:`BrokerConfig`."""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from rmqha.config.broker_config import BrokerConfig
from rmqha.config.derive import derive
from rmqha.config.dledger_broker_config import DLedgerBrokerConfig
from rmqha.config.ha_config import HAConfig
from rmqha.config.java_properties import parse_properties
from rmqha.config.key import METADATA, Key, nearest
from rmqha.config.relations import check_relations
from rmqha.config.rocketmq_keys import KNOWN, REFUSED
from rmqha.config.store_config import StoreConfig
from rmqha.config.tls_config import TlsConfig
from rmqha.config.transaction_config import TransactionConfig
from rmqha.errors import ConfigError

COMMAND_LINE: Final = "command line"


def _table() -> dict[str, Key]:
    sections = (
        ("Store", StoreConfig),
        ("Replication", HAConfig),
        ("TLS", TlsConfig),
        ("DLedger", DLedgerBrokerConfig),
        ("Transactions", TransactionConfig),
        ("Broker", BrokerConfig),
    )
    table: dict[str, Key] = {}
    for section, owner in sections:
        for declared in fields(owner):
            key: Key | None = declared.metadata.get(METADATA)
            if key is not None and key.name not in table:
                table[key.name] = replace(key, attribute=declared.name, section=section)
    return table


KEYS: Final[dict[str, Key]] = _table()
"""Every key that has an effect, by name."""


class Setting(NamedTuple):
    """One key as somebody wrote it; ``where`` is ``broker.conf:7`` or ``command line``."""

    key: str
    value: str
    where: str


def load_config(
    path: str | Path | None,
    overrides: Mapping[str, str] | None = None,
    *,
    defaults: Mapping[str, str] | None = None,
) -> BrokerConfig:
    """Return the checked configuration.

    Args:
        path: a broker.conf, or None for the defaults alone.
        overrides: keys as in the file that win over it.
        defaults: keys as in the file that it wins over (a command's own defaults).

    Raises:
        ConfigError: one line for every problem, ``file:line: reason``; nothing may be started with it.
    """
    problems: list[str] = []
    settings = [Setting(key, value, "default") for key, value in (defaults or {}).items()]
    if path is not None:
        settings += _read_file(path, problems)
    settings += [Setting(key, value, COMMAND_LINE) for key, value in (overrides or {}).items()]
    notes: list[str] = []
    values, origins = _parse_settings(settings, problems, notes)
    if problems:
        raise ConfigError(problems)
    config = derive(values, notes)
    config = replace(config, notes=tuple(notes), origins=origins)
    problems = check_relations(config)
    if problems:
        raise ConfigError(problems)
    return config


def _read_file(path: str | Path, problems: list[str]) -> list[Setting]:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        problems.append(f"{path}: cannot be read: {error.strerror or error}")
        return []
    properties, malformed = parse_properties(data)
    problems += [f"{path}:{line}: {reason}" for line, reason in malformed]
    return [Setting(p.key, p.value, f"{path}:{p.line}") for p in properties]


def _parse_settings(
    settings: list[Setting], problems: list[str], notes: list[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return attribute values, and where each key's winning value stands."""
    values: dict[str, Any] = {}
    winning: dict[str, Setting] = {}
    unused: list[str] = []
    for setting in settings:
        name, value, where = setting
        if name in winning and where not in (COMMAND_LINE, "default") and winning[name].where != "default":
            notes.append(f"{where}: {name} is set a second time; this value replaces the one at {winning[name].where}")
        if name in KEYS:
            winning[name] = setting
            try:
                values[KEYS[name].attribute] = KEYS[name].parse(value.strip())
            except ValueError as error:
                problems.append(f"{where}: {name}: {error}")
        elif name in REFUSED and value.strip().lower() not in ("", "false"):
            problems.append(f"{where}: {name}={value}: {REFUSED[name]}; remove the line to run without it")
        elif name in KNOWN:
            unused.append(f"{name} ({where})")
        else:
            problems.append(f"{where}: unknown key {name!r}{_nearest(name)}")
    if unused:
        notes.append(f"RocketMQ's keys that have no effect here: {', '.join(unused)}")
    return values, {name: setting.where for name, setting in winning.items() if setting.where != "default"}


def _nearest(name: str) -> str:
    found = nearest(name, (*KNOWN, *KEYS))
    return f"; nearest known key: {found}" if found else ""
