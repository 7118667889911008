"""``rmqha doctor``: a broker that runs: what its process may open, and what a restart would change."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rmqha.broker.main import share_descriptors
from rmqha.cli.ask import BrokerConnection
from rmqha.cli.doctor_peers import own_listen_address
from rmqha.cli.errors import CliError
from rmqha.cli.finding import OK, WARN, Finding
from rmqha.codec.codes import CONFIG_ORIGINS_FIELD, RequestCode
from rmqha.codec.java_json import loads
from rmqha.config import BrokerConfig
from rmqha.config.java_properties import parse_properties
from rmqha.config.reference import shown_config
from rmqha.config.settings import COMMAND_LINE
from rmqha.errors import RemoteProtocolError
from rmqha.logs import escaped

Findings = Iterator[Finding]

_FILES_LIMIT: Final = re.compile(r"^Max open files +\S+ +(\S+)", re.MULTILINE)
_UNLIMITED: Final = 1 << 30
"""As good as any larger number."""
_DEFAULT: Final = "default"
_KEYS_TOLD_MAX: Final = 12


def files_limit(pid: int) -> int | None:
    """How many files and connections a process may have open; None: the kernel does not tell."""
    try:
        found = _FILES_LIMIT.search(Path(f"/proc/{pid}/limits").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    if found is None:
        return None
    return int(found[1]) if found[1].isdigit() else _UNLIMITED


def check_configuration(config: BrokerConfig, *, files_max: int | None, timeout_s: float) -> Findings:
    """Which keys the broker that runs has otherwise than its configuration says now.

    What its command line said is said again at its next start, and what nobody set may follow from the machine.

    Args:
        config: as the file is now.
        files_max: the limit of its process, which may lower a key; None: unknown.
        timeout_s: for its answer.
    """
    try:
        with BrokerConnection(own_listen_address(config), timeout_s=timeout_s) as connection:
            answer = connection.ask_for(RequestCode.GET_BROKER_CONFIG)
        running = {one.key: one.value for one in parse_properties(bytes(answer.body))[0]}
        if CONFIG_ORIGINS_FIELD not in answer.ext_fields:
            yield Finding(OK, "config", "the broker that runs does not say what it goes by: it is RocketMQ's")
            return
        origins = dict(loads(answer.ext_fields[CONFIG_ORIGINS_FIELD]))
    except (CliError, RemoteProtocolError, LookupError, TypeError, ValueError) as error:
        told = error.why if isinstance(error, CliError) else type(error).__name__
        yield Finding(OK, "config", escaped(f"what the broker that runs goes by is not compared: {told}"))
        return
    config, _ = share_descriptors(config, files_max)
    changed = [
        f"{key.name} is {running[key.name] or '(empty)'}, and would be {value or '(empty)'}"
        for key, value, origin in shown_config(config)
        if running.get(key.name, value) != value
        and origins.get(key.name) != COMMAND_LINE
        and (origin, origins.get(key.name, _DEFAULT)) != (_DEFAULT, _DEFAULT)
    ]
    if not changed:
        yield Finding(OK, "config", "the broker that runs goes by it: a restart would change nothing")
        return
    more = f"; and {len(changed) - _KEYS_TOLD_MAX} more" if len(changed) > _KEYS_TOLD_MAX else ""
    what = f"a restart of the broker that runs would change it: {'; '.join(changed[:_KEYS_TOLD_MAX])}{more}"
    told = "restart it when that suits, or take the change back; with --set here as its command line has it, if it does"
    yield Finding(WARN, "config", escaped(what), told)
