"""Texts made from the table: the reference page, and a configuration shown again."""

import json

from rmqha.config.broker_config import BrokerConfig
from rmqha.config.java_properties import format_property
from rmqha.config.key import Key
from rmqha.config.load import KEYS
from rmqha.config.load_dledger import DLEDGER_KEYS, OPTIONS
from rmqha.config.load_namesrv import NAMESRV_KEYS
from rmqha.config.rocketmq_keys import NAMESRV_UNUSED, REFUSED, UNUSED

_HEAD = """\
# Configuration

<!-- Made by `rmqha config reference`, compared by a test: change the table in rmqha/config. -->

A broker is configured by RocketMQ's own `broker.conf`: Java .properties, RocketMQ's keys. Every key
below can also be given on the command line as `--set KEY=VALUE`, which wins over the file. `rmqha config
check FILE` says what is wrong with a file, `rmqha config show FILE` what comes out of it. Keys marked ◇
are rmqha's own; a RocketMQ broker ignores them.

Unknown keys, bad values and combinations that cannot work are refused, each with file, line, reason and
the nearest known key. Whatever is not set has the default. **Defaults are safe**: all listeners are on
loopback until an address *and* `allowInsecure=true` are set.
"""

_DLEDGER = """\
## A member of a DLedger group

Given to `rmqha dledger server` as `--set KEY=VALUE`, under DLedgerConfig's names; {options}. A broker with
`enableDLegerCommitLog=true` has the same keys in its broker.conf.

There is **no TLS** on a member's port, and no password: DLedger's protocol knows neither. Everybody who reaches it
can append, vote and replicate; keep it in a closed network. The keys of the section TLS are for a broker's ports.

| Key | Default | Unit, range | Meaning |
|---|---|---|---|
{rows}
"""

_NAMESRV = """\
## A name server

Given to `rmqha namesrv` in a file (`-c namesrv.conf`, RocketMQ's own) or as `--set KEY=VALUE`; `--listen` sets
`listenPort` and `bindAddress`.

| Key | Default | Unit, range | Meaning |
|---|---|---|---|
{rows}

Accepted without effect: {unused}.
"""

_TAIL = """\
## RocketMQ's keys without effect

Accepted, and named once in the log at the start:

{unused}

## RocketMQ's keys that are refused

Unless their value is empty or `false`:

{refused}
"""


def reference_page() -> str:
    """Return docs/configuration.md."""
    parts = [_HEAD]
    for section in dict.fromkeys(key.section for key in KEYS.values()):
        parts.append(f"## {section}\n\n| Key | Default | Unit, range | Role | Meaning |\n|---|---|---|---|---|")
        parts += [_row(key) for key in KEYS.values() if key.section == section and not _is_members(key)]
        parts.append("")
    parts.append(_dledger_section())
    rows = "\n".join(_row(key, with_roles=False) for key in NAMESRV_KEYS.values())
    parts.append(_NAMESRV.format(rows=rows, unused=", ".join(f"`{name}`" for name in sorted(NAMESRV_UNUSED))))
    refused = "\n".join(f"- `{name}`: {reason}." for name, reason in REFUSED.items())
    parts.append(_TAIL.format(unused=", ".join(f"`{name}`" for name in sorted(UNUSED)), refused=refused))
    return "\n".join(parts)


def _is_members(key: Key) -> bool:
    """Whether it stands in the section of a DLedger member."""
    return key.section == "DLedger" and key.name in DLEDGER_KEYS


def _dledger_section() -> str:
    rows = "\n".join(_row(key, with_roles=False) for _attribute, key in DLEDGER_KEYS.values())
    options = ", ".join(f"`{name}` is `{option}`" for name, option in OPTIONS.items())
    return _DLEDGER.format(options=options, rows=rows)


def _row(key: Key, *, with_roles: bool = True) -> str:
    default = f"`{key.default}`" if key.default else key.derived or "(empty)"
    named = key.kind.name not in ("choice", "boolean")
    values = ": ".join(part for part in (key.kind.name if named else "", key.range) if part)
    mark = " ◇" if key.ours else ""
    roles = f" {key.roles} |" if with_roles else ""
    return f"| `{key.name}`{mark} | {default} | {values} |{roles} {key.meaning} |"


def shown_config(config: BrokerConfig) -> list[tuple[Key, str, str]]:
    """Return (key, value as in a file, where it was set or "default") for every key."""
    return [
        (key, key.kind.show(getattr(config, key.attribute)), config.origins.get(key.name, "default"))
        for key in KEYS.values()
    ]


def as_properties(config: BrokerConfig, *, changed: bool = False) -> str:
    """Return the configuration as a broker.conf; origins stand above what is no default."""
    lines: list[str] = []
    for key, value, origin in shown_config(config):
        if origin != "default":
            lines.append(f"# {origin}")
        elif changed:
            continue
        lines.append(format_property(key.name, value))
    return "\n".join(lines)


def as_json(config: BrokerConfig, *, changed: bool = False) -> str:
    """Return ``{key: {"value", "unit", "origin"}}`` as text; values as in a file."""
    shown = {
        key.name: {"value": value, "unit": key.kind.name, "origin": origin}
        for key, value, origin in shown_config(config)
        if not (changed and origin == "default")
    }
    return json.dumps(shown, indent=2, ensure_ascii=False)
