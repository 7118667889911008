"""From ``namesrv.conf`` and the command line to one checked :class:`NamesrvConfig`."""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Final

from rmqha.choices import TlsMode
from rmqha.config.key import METADATA, Key
from rmqha.config.listener_relations import in_flight_problems, is_loopback, metrics_problems, tls_problems
from rmqha.config.namesrv_config import NamesrvConfig
from rmqha.config.problem import Problem, Problems, problem_lines
from rmqha.config.rocketmq_keys import NAMESRV_UNUSED
from rmqha.config.settings import COMMAND_LINE, KeyTable, Setting, parse_settings, read_file
from rmqha.errors import ConfigError

NAMESRV_KEYS: Final[dict[str, Key]] = {
    declared.metadata[METADATA].name: replace(declared.metadata[METADATA], attribute=declared.name)
    for declared in fields(NamesrvConfig)
    if declared.metadata
}
_TABLE: Final = KeyTable(NAMESRV_KEYS, unused=NAMESRV_UNUSED, refused={})


def load_namesrv(path: str | Path | None, overrides: Mapping[str, str] | None = None) -> NamesrvConfig:
    """Return the checked configuration.

    Args:
        path: a namesrv.conf, or None for the defaults alone.
        overrides: keys as in the file that win over it.

    Raises:
        ConfigError: one line for every problem.
    """
    problems: list[str] = []
    notes: list[str] = []
    settings = [] if path is None else read_file(path, problems)
    settings += [Setting(key, value, COMMAND_LINE) for key, value in (overrides or {}).items()]
    values, origins = parse_settings(settings, _TABLE, problems=problems, notes=notes)
    if problems:
        raise ConfigError(problems)
    config = NamesrvConfig(**values, notes=tuple(notes), origins=origins)
    rules = (in_flight_problems, tls_problems, _listens_safely, _metrics)
    problems = problem_lines((problem for rule in rules for problem in rule(config)), origins)
    if problems:
        raise ConfigError(problems)
    return config


def _metrics(config: NamesrvConfig) -> Problems:
    return metrics_problems(config, taken={config.listen_port: "listenPort"})


def _listens_safely(config: NamesrvConfig) -> Problems:
    if config.allow_insecure or config.tls_mode is TlsMode.ENFORCING or is_loopback(config.bind_address):
        return
    yield Problem(
        "bindAddress",
        f"bindAddress={config.bind_address} would listen beyond this machine, where anybody who reaches the port can "
        "send clients to other brokers; set allowInsecure=true if the network is trusted, or listen on 127.0.0.1, or "
        "set tlsMode=enforcing",
    )
