"""From ``--set KEY=VALUE`` of ``rmqha dledger server`` to checked :class:`DLedgerSettings`."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from rmqha.config.dledger_config import DLedgerSettings
from rmqha.config.key import METADATA, Key, nearest
from rmqha.errors import ConfigError

_INDEX_UNIT_SIZE: Final = 32
OPTIONS: Final = {
    "group": "--group",
    "selfId": "--id",
    "peers": "--peers",
    "storeBaseDir": "--store-base-dir",
}
"""DLedgerConfig's names of what has an option of its own."""
_REFUSED: Final = {"storeType": "a member's log is always in files, FILE to DLedger"}

DLEDGER_KEYS: Final[dict[str, tuple[str, Key]]] = {
    declared.metadata[METADATA].name: (declared.name, declared.metadata[METADATA])
    for declared in fields(DLedgerSettings)
}
"""Attribute and key by the key's name."""


def load_dledger_settings(settings: Mapping[str, str]) -> DLedgerSettings:
    """Return the checked settings.

    Raises:
        ConfigError: one line for every problem.
    """
    problems: list[str] = []
    values: dict[str, Any] = {}
    for name, text in settings.items():
        if name not in DLEDGER_KEYS:
            problems.append(f"--set {name}: {_unknown(name)}")
            continue
        attribute, key = DLEDGER_KEYS[name]
        try:
            values[attribute] = key.parse(text.strip())
        except ValueError as error:
            problems.append(f"--set {name}: {error}")
    if problems:
        raise ConfigError(problems)
    loaded = DLedgerSettings(**values)
    problems = settings_problems(loaded)
    if problems:
        raise ConfigError(problems)
    return loaded


def _unknown(name: str) -> str:
    if name in OPTIONS:
        return f"is given by {OPTIONS[name]}"
    if name in _REFUSED:
        return _REFUSED[name]
    found = nearest(name, DLEDGER_KEYS)
    return f"no such key; the nearest is {found}" if found else "no such key"


def settings_problems(settings: DLedgerSettings) -> list[str]:
    """What cannot be together."""
    problems = []
    if settings.min_vote_interval_s > settings.max_vote_interval_s:
        problems.append("minVoteIntervalMs is above maxVoteIntervalMs")
    if settings.min_take_leadership_vote_interval_s > settings.max_take_leadership_vote_interval_s:
        problems.append("minTakeLeadershipVoteIntervalMs is above maxTakeLeadershipVoteIntervalMs")
    if settings.mapped_file_size_for_entry_index % _INDEX_UNIT_SIZE:
        problems.append(f"mappedFileSizeForEntryIndex is no multiple of {_INDEX_UNIT_SIZE}")
    return problems
