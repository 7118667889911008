"""PlainAcl: what the files of accounts say. Read as RocketMQ reads them, ``conf/plain_acl.yml`` and ``conf/acl/*.yml``.

    globalWhiteRemoteAddresses: [10.10.103.*, 192.168.0.*]
    accounts:
      - accessKey: ...                 longer than 6 characters, as is secretKey
        secretKey: ...
        whiteRemoteAddress: ...
        admin: false
        defaultTopicPerm: DENY         DENY, PUB, SUB, PUB|SUB
        defaultGroupPerm: SUB
        topicPerms: [topicA=DENY, topicB=PUB|SUB]
        groupPerms: [groupA=DENY, groupB=SUB]

What RocketMQ takes without a word and is likely to be a mistake is noted.

Source: rocketmq-all-4.9.8 PlainPermissionManager.java, PlainAccessConfig.java.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rmqha.broker.acl.needed_permissions import of_group
from rmqha.broker.acl.permission import DENY, PERMISSION_NAMES, parse_perm
from rmqha.broker.acl.plain_access_resource import PlainAccessResource
from rmqha.broker.acl.remote_address_strategy import Parts, RemoteAddressStrategy
from rmqha.errors import ConfigError

_KEY_SIZE_MIN: Final = 7
_DOCUMENT_KEYS: Final = frozenset({"globalWhiteRemoteAddresses", "accounts", "dataVersion"})
_ACCOUNT_KEYS: Final = frozenset(
    {
        "accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm",
        "topicPerms", "groupPerms",
    }
)  # fmt: skip
_JAVA_ACCOUNT: Final = "tag:yaml.org,2002:org.apache.rocketmq.common.PlainAccessConfig"
"""How RocketMQ itself may write an account when it changes the file."""

_YAML_PROBLEMS: Final = defaultdict(
    lambda: "it cannot be read",
    ScannerError="a sign that cannot stand there: put the value in quotation marks",
    ParserError="it ends or goes on where it cannot: look at indentation, brackets and quotation marks",
    ComposerError="an alias (*) of nothing, or an anchor (&) twice: put the value in quotation marks",
    ConstructorError="a tag (!) or a key that means nothing here: put the value in quotation marks",
)


@dataclass(frozen=True)
class PlainAcl:
    """Who may come in.

    Attributes:
        white_addresses: from there any request is taken.
        accounts: by their access keys.
        notes: sentences about what may not be meant as it is written.
    """

    white_addresses: tuple[RemoteAddressStrategy, ...]
    accounts: Mapping[str, PlainAccessResource]
    notes: tuple[str, ...] = ()

    def is_white(self, address: Parts) -> bool:
        """Whether requests from there are taken, signed or not."""
        return any(strategy.match(address) for strategy in self.white_addresses)


def acl_files(home: str) -> list[Path]:
    """The files that are there, in the order in which they count. Raises ConfigError: nobody can tell."""
    conf = Path(home) / "conf"
    try:
        walk = os.walk(conf / "acl", onerror=_raise_unless_missing)
        others = [Path(directory, name) for directory, _, names in walk for name in names]
        accounts = [path for path in others if path.suffix in {".yml", ".yaml"} and path != conf / "acl" / "tools.yml"]
        files = [*sorted(accounts), conf / "plain_acl.yml"]
        return [path for path in files if path.is_file()]
    except OSError as error:
        raise ConfigError(f"{conf}: account files cannot be looked for: {error.strerror or error}") from None


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def read_plain_acl(home: str) -> PlainAcl:
    """What they say.

    Raises:
        ConfigError: there are none, one cannot be read, or one does not say what it has to; or PyYAML is missing.
    """
    white, accounts, notes = list[RemoteAddressStrategy](), dict[str, PlainAccessResource](), list[str]()
    is_blank = True
    for path in acl_files(home):
        document = _load(path)
        if document is None:
            continue
        is_blank = False
        reader = _Reader(path, notes)
        white += reader.white_addresses(document)
        for account in reader.accounts(document):
            if account.access_key in accounts:
                notes.append(f"{path}: accessKey {account.access_key} is there twice: the first one counts")
            accounts.setdefault(account.access_key, account)
    if is_blank:
        raise ConfigError(
            f"{home}/conf/plain_acl.yml: aclEnable=true reads accounts here, and in conf/acl/*.yml, but there are "
            "none: nobody could be served"
        )
    return PlainAcl(tuple(white), accounts, tuple(notes))


def _load(path: Path) -> Any:
    """The document in a file; None if it is blank."""
    try:
        import yaml  # noqa: PLC0415 - an extra, which only aclEnable needs
    except ImportError:
        raise ConfigError(
            "aclEnable=true needs PyYAML to read plain_acl.yml: pip install 'rmqha[acl]', or pip install PyYAML"
        ) from None

    loader: Any = type("PlainAclLoader", (yaml.SafeLoader,), {})
    loader.add_constructor(_JAVA_ACCOUNT, lambda reader, node: reader.construct_mapping(node, deep=True))
    try:
        return yaml.load(path.read_bytes(), loader)  # noqa: S506 - a safe one
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    except yaml.MarkedYAMLError as error:  # its text shows what stands there, and that may be a secret
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{path}:{line}: no YAML: {_YAML_PROBLEMS[type(error).__name__]}") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path}: no YAML: {type(error).__name__}") from None


class _Reader:
    """Reads one file's document."""

    def __init__(self, path: Path, notes: list[str]) -> None:
        self._path: Final = path
        self._notes: Final = notes

    def _error(self, reason: str) -> ConfigError:
        return ConfigError(f"{self._path}: {reason}")

    def white_addresses(self, document: Any) -> list[RemoteAddressStrategy]:
        """Of all accounts."""
        if type(document) is not dict:
            raise self._error("it holds no keys such as accounts and globalWhiteRemoteAddresses")
        self._note_unknown(document, _DOCUMENT_KEYS, "the file")
        addresses = self._texts(document.get("globalWhiteRemoteAddresses"), "globalWhiteRemoteAddresses")
        return [self._strategy(address, "globalWhiteRemoteAddresses") for address in addresses]

    def accounts(self, document: dict[str, Any]) -> Iterable[PlainAccessResource]:
        """All of the file."""
        entries = document.get("accounts") or []
        if type(entries) is not list or not all(type(entry) is dict for entry in entries):
            raise self._error("accounts is no list of accounts, each with accessKey and secretKey")
        return map(self._account, entries)

    def _account(self, entry: dict[str, Any]) -> PlainAccessResource:
        access_key, secret_key = (self._text(entry.get(name), name) or "" for name in ("accessKey", "secretKey"))
        if min(len(access_key), len(secret_key)) < _KEY_SIZE_MIN:
            raise self._error(f"accessKey {access_key!r} and its secretKey must have more than 6 characters each")
        self._note_unknown(entry, _ACCOUNT_KEYS, access_key)
        admin = entry.get("admin") or False
        if admin not in (True, False, "true", "false"):
            raise self._error(f"admin of {access_key} is neither true nor false")
        topics, groups = self._perms(entry, "topicPerms"), self._perms(entry, "groupPerms")
        return PlainAccessResource(
            access_key,
            secret_key,
            self._strategy(self._text(entry.get("whiteRemoteAddress"), "whiteRemoteAddress"), access_key),
            admin in (True, "true"),
            self._perm(self._text(entry.get("defaultTopicPerm"), "defaultTopicPerm"), access_key),
            self._perm(self._text(entry.get("defaultGroupPerm"), "defaultGroupPerm"), access_key),
            {of_group(group): perm for group, perm in groups.items()} | topics,
        )

    def _perms(self, entry: dict[str, Any], name: str) -> dict[str, int]:
        perms = dict[str, int]()
        for text in self._texts(entry.get(name), name):
            items = [item for item in text.split("=") if item]
            if len(items) != 2:
                raise self._error(f"{name}: {text!r} is not of the form name=permission")
            perms[items[0].strip()] = self._perm(items[1], f"{name} {text!r}")
        return perms

    def _perm(self, text: str | None, where: str) -> int:
        perm = parse_perm(text)
        if perm is None:
            known = ", ".join(PERMISSION_NAMES)
            self._notes.append(f"{self._path}: {where}: {text!r} is none of {known}, and counts as DENY")
        return DENY if perm is None else perm

    def _strategy(self, text: str | None, where: str) -> RemoteAddressStrategy:
        try:
            return RemoteAddressStrategy(text)
        except ValueError as error:
            raise self._error(f"white addresses of {where}: {error}") from None

    def _texts(self, value: Any, name: str) -> list[str]:
        if value is None:
            return []
        if type(value) is not list:
            raise self._error(f"{name} is no list")
        return [text for one in value if (text := self._text(one, name))]

    def _text(self, value: Any, name: str) -> str | None:
        """A text; a whole number is one, as an access key may look like one."""
        if value is None or type(value) is str:
            return value
        if type(value) is int:
            return str(value)
        raise self._error(f"{name}: a {type(value).__name__} is no text: write it in quotation marks")

    def _note_unknown(self, given: dict[str, Any], known: frozenset[str], where: str) -> None:
        names = {re.sub(r"[^A-Za-z].*", "...", str(key), flags=re.DOTALL) for key in given.keys() - known}
        for name in sorted(names):  # behind a sign may stand what was meant as a value: a secret, maybe
            self._notes.append(f"{self._path}: {name!r} of {where} is no key of RocketMQ's, and without effect")
