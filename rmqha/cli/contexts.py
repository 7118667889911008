"""Contexts: names for brokers' addresses, in a file of the operator's: ``--context prod`` is all that is typed.

The file is TOML, a table for each name::

    [prod]
    broker = "10.0.0.1:10911;10.0.0.2:10911"

    [lab]
    broker = ["lab-1", "lab-2:10921"]

A port that is left out is 10911.
"""

import tomllib
from pathlib import Path
from typing import Any

import click

from rmqha.cli.nearest import near_hint


def context_file() -> Path:
    """Where they are: ``contexts.toml`` of the user's configuration (``~/.config/rmqha``)."""
    return Path(click.get_app_dir("rmqha")) / "contexts.toml"


def all_contexts() -> dict[str, tuple[str, ...]]:
    """Addresses by name, as they are written; none if there is no file.

    Raises:
        UsageError: it cannot be read, or says something else.
    """
    path = context_file()
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{path} cannot be read: {error}") from None
    return {name: _addresses(path, name, entry) for name, entry in document.items()}


def _addresses(path: Path, name: str, entry: Any) -> tuple[str, ...]:
    if not isinstance(entry, dict) or entry.keys() != {"broker"}:
        raise click.UsageError(f"{path}: [{name}] must have one key, broker")
    value = entry["broker"]
    addresses = [value] if isinstance(value, str) else value
    if not isinstance(addresses, list) or not addresses or not all(isinstance(one, str) for one in addresses):
        raise click.UsageError(f"{path}: broker of [{name}] is neither an address nor a list of them")
    return tuple(addresses)


def addresses_of(name: str) -> tuple[str, ...]:
    """Those of one context.

    Raises:
        UsageError: there is no such, or as :func:`all_contexts`.
    """
    known, path = all_contexts(), context_file()
    if name not in known:
        otherwise = f"there are {', '.join(sorted(known))}" if known else "there are none"
        raise click.UsageError(f"no context {name!r} in {path}: {near_hint(name, known, otherwise=otherwise)}")
    return known[name]
