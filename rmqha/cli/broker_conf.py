"""A broker.conf with all that a start reads beside it."""

from collections.abc import Mapping
from pathlib import Path

from rmqha.broker.acl.plain_acl import read_plain_acl
from rmqha.broker.credentials_file import CredentialsFile
from rmqha.broker.options import tls_in_use
from rmqha.certificates import validity, why_unusable
from rmqha.cli.pages import Page
from rmqha.cli.span import span
from rmqha.config import BrokerConfig, load_config
from rmqha.errors import ConfigError


def load_with_accounts(
    path: Path | None, settings: Mapping[str, str] | None = None
) -> tuple[BrokerConfig, tuple[str, ...]]:
    """The configuration and its notes, those about accounts among them; ``settings`` win over the file.

    Raises:
        ConfigError: a broker could not be started with it; all that is wrong with accounts is told at once.
    """
    loaded = load_config(path, settings)
    notes, problems = loaded.notes, list[str]()
    try:
        if loaded.acl_enable:
            notes += read_plain_acl(loaded.rocketmq_home).notes
    except ConfigError as error:
        problems += error.problems
    try:
        if loaded.acl_credentials_path:
            CredentialsFile(loaded.acl_credentials_path)
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(problems)
    return loaded, notes


def certificate_notes(config: BrokerConfig, *, now_s: float) -> tuple[str, ...]:
    """Which of its certificates have ended, or have yet to begin: a start takes them, and nobody else does."""
    told = list[str]()
    for one in filter(None, (validity(options.cert) for options in tls_in_use(config))):
        if one.ends_s < now_s:
            told.append(f"{one.path} ended {(now_s - one.ends_s) / 86_400:.1f} days ago")
        if one.begins_s > now_s:
            told.append(f"{one.path} is valid in {span(one.begins_s - now_s)} only")
    return tuple(f"{line}: others refuse it; see {Page.CERTIFICATES}" for line in dict.fromkeys(told))


def certificate_problems(config: BrokerConfig) -> list[str]:
    """Why no broker starts with the certificates that the configuration names, a line each."""
    return list(dict.fromkeys(filter(None, map(why_unusable, tls_in_use(config)))))
