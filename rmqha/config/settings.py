"""What somebody wrote, in a file or on the command line, becomes values by a table of keys."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from rmqha.config.java_properties import parse_properties
from rmqha.config.key import Key, nearest

COMMAND_LINE: Final = "command line"


class Setting(NamedTuple):
    """One key as somebody wrote it; ``where`` is ``broker.conf:7`` or ``command line``."""

    key: str
    value: str
    where: str


class KeyTable(NamedTuple):
    """A program's keys by name, RocketMQ's keys without effect, and those that are refused, with the reason.

    Attributes:
        former: keys that are called otherwise by now, each with its present name.
    """

    keys: Mapping[str, Key]
    unused: Collection[str]
    refused: Mapping[str, str]
    former: Mapping[str, str] = {}


def read_file(path: str | Path, problems: list[str]) -> list[Setting]:
    """The settings of a file of Java properties; what is wrong with it goes to ``problems``."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        problems.append(f"{path}: cannot be read: {error.strerror or error}")
        return []
    properties, malformed = parse_properties(data)
    problems += [f"{path}:{line}: {reason}" for line, reason in malformed]
    return [Setting(p.key, p.value, f"{path}:{p.line}") for p in properties]


def parse_settings(
    settings: list[Setting], table: KeyTable, *, problems: list[str], notes: list[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return attribute values, and where each key's winning value stands: the last one of a key wins."""
    values: dict[str, Any] = {}
    winning: dict[str, Setting] = {}
    unused: list[str] = []
    for setting in settings:
        name, value, where = setting
        if name in winning and where not in (COMMAND_LINE, "default") and winning[name].where != "default":
            notes.append(f"{where}: {name} is set a second time; this value replaces the one at {winning[name].where}")
        if name in table.keys:
            winning[name] = setting
            try:
                values[table.keys[name].attribute] = table.keys[name].parse(value.strip())
            except ValueError as error:
                problems.append(f"{where}: {name}: {error}")
        elif name in table.refused and value.strip().lower() not in ("", "false"):
            problems.append(f"{where}: {name}={value}: {table.refused[name]}; remove the line to run without it")
        elif name in table.unused or name in table.refused:
            unused.append(f"{name} ({where})")
        elif name in table.former:
            present = table.former[name]
            problems.append(f"{where}: {name} is the spelling of early RocketMQ versions: the key is {present} now")
        else:
            problems.append(f"{where}: unknown key {name!r}{_nearest(name, table)}")
    if unused:
        notes.append(f"RocketMQ's keys that have no effect here: {', '.join(unused)}")
    return values, {name: setting.where for name, setting in winning.items() if setting.where != "default"}


def _nearest(name: str, table: KeyTable) -> str:
    found = nearest(name, (*table.unused, *table.refused, *table.keys))
    return f"; nearest known key: {found}" if found else ""
