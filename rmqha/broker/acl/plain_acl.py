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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rmqha.broker.acl.marked_yaml import MarkedList, MarkedMapping, load_marked
from rmqha.broker.acl.needed_permissions import of_group
from rmqha.broker.acl.permission import DENY, PERMISSION_NAMES, parse_perm
from rmqha.broker.acl.plain_access_resource import PlainAccessResource
from rmqha.broker.acl.remote_address_strategy import Parts, RemoteAddressStrategy
from rmqha.config.key import nearest
from rmqha.errors import ConfigError

_KEY_SIZE_MIN: Final = 7
_DOCUMENT_KEYS: Final = frozenset({"globalWhiteRemoteAddresses", "accounts", "dataVersion"})
_ACCOUNT_KEYS: Final = frozenset(
    {
        "accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm",
        "topicPerms", "groupPerms",
    }
)  # fmt: skip
_DEFAULTS: Final = ("defaultTopicPerm", "defaultGroupPerm")
_AS_THEY_ARE: Final[Mapping[Path, Path]] = {}
_KINDS: Final = {MarkedMapping: "mapping", MarkedList: "list", float: "number with a point"}


@dataclass(frozen=True)
class PlainAcl:
    """Who may come in.

    Attributes:
        white_addresses: from there any request is taken.
        accounts: by their access keys.
        notes: sentences about what may not be meant as it is written.
        versions: of each file, by its path, what its ``dataVersion`` says: counter, and milliseconds since 1970.
    """

    white_addresses: tuple[RemoteAddressStrategy, ...]
    accounts: Mapping[str, PlainAccessResource]
    notes: tuple[str, ...] = ()
    versions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

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


def read_plain_acl(home: str, *, instead: Mapping[Path, Path] = _AS_THEY_ARE) -> PlainAcl:
    """What they say; what some of them say is read in another file ``instead``.

    Raises:
        ConfigError: there are none, or PyYAML is missing; or all that is wrong with them, each with its file and line.
    """
    white, accounts = list[RemoteAddressStrategy](), dict[str, PlainAccessResource]()
    problems, notes, versions = list[str](), list[str](), dict[str, Mapping[str, int]]()
    is_blank = True
    for path in dict.fromkeys([*acl_files(home), *instead]):
        try:
            document = load_marked(instead.get(path, path), shown=path)
        except ConfigError as error:
            problems += error.problems
            continue
        if document is None:
            continue
        is_blank = False
        reader = _Reader(path, problems, notes)
        white += reader.white_addresses(document)
        versions[str(path)] = _version_of(document)
        for account, line in reader.accounts(document):
            if account.access_key in accounts:
                notes.append(f"{path}:{line}: accessKey {account.access_key} is there twice: the first one counts")
            accounts.setdefault(account.access_key, account)
    if problems:
        raise ConfigError(problems)
    if is_blank:
        raise ConfigError(
            f"{home}/conf/plain_acl.yml: aclEnable=true reads accounts here, and in conf/acl/*.yml, but there are "
            "none: nobody could be served"
        )
    if not accounts:
        served = "only who comes from globalWhiteRemoteAddresses is served" if white else "nobody is served"
        notes.append(f"{home}/conf/plain_acl.yml: there is no account: {served}")
    return PlainAcl(tuple(white), accounts, tuple(notes), versions)


def _version_of(document: Any) -> Mapping[str, int]:
    versions = document.get("dataVersion") if isinstance(document, MarkedMapping) else None
    first = versions[0] if isinstance(versions, MarkedList) and versions else None
    known = first if isinstance(first, MarkedMapping) else {}
    return {name: known[name] if type(known.get(name)) is int else 0 for name in ("counter", "timestamp")}


class _Reader:
    """Reads one file's document. What is wrong is added to ``problems``, and reading goes on."""

    def __init__(self, path: Path, problems: list[str], notes: list[str]) -> None:
        self._path: Final = path
        self._problems: Final = problems
        self._notes: Final = notes

    def _problem(self, line: int, reason: str) -> None:
        self._problems.append(f"{self._path}:{line}: {reason}")

    def _note(self, line: int, what: str) -> None:
        self._notes.append(f"{self._path}:{line}: {what}")

    def white_addresses(self, document: Any) -> list[RemoteAddressStrategy]:
        """Of all accounts."""
        if not isinstance(document, MarkedMapping):
            self._problem(1, "it holds no keys such as accounts and globalWhiteRemoteAddresses")
            return []
        self._note_keys(document, _DOCUMENT_KEYS, "the file")
        name = "globalWhiteRemoteAddresses"
        found = [self._strategy(address, name, line) for address, line in self._texts(document, name)]
        return [strategy for strategy in found if strategy is not None]

    def accounts(self, document: Any) -> Iterator[tuple[PlainAccessResource, int]]:
        """Those of the file that are good, with their lines."""
        entries = document.get("accounts") if isinstance(document, MarkedMapping) else None
        if not entries:
            return
        if not isinstance(entries, MarkedList):
            self._problem(document.line_of("accounts"), "accounts is no list of accounts: each begins with '- '")
            return
        for entry, line in zip(entries, entries.lines, strict=True):
            if not isinstance(entry, MarkedMapping):
                self._problem(line, "this is no account, which has accessKey and secretKey")
            elif (account := self._account(entry)) is not None:
                yield account, line

    def _account(self, entry: MarkedMapping) -> PlainAccessResource | None:
        problems = len(self._problems)
        access_key = self._key(entry, "accessKey", "this account")
        who = f"the account {access_key}" if access_key else "this account"
        secret_key = self._key(entry, "secretKey", who)
        self._note_keys(entry, _ACCOUNT_KEYS, who)
        admin = entry.get("admin") or False
        if admin not in (True, False, "true", "false"):
            self._problem(entry.line_of("admin"), f"admin of {who} is neither true nor false")
        topics, groups = self._perms(entry, "topicPerms"), self._perms(entry, "groupPerms")
        white = self._strategy(self._text(entry, "whiteRemoteAddress"), who, entry.line_of("whiteRemoteAddress"))
        default_topic, default_group = (self._default(entry, name, who) for name in _DEFAULTS)
        if white is None or len(self._problems) > problems:
            return None
        perms = {of_group(group): perm for group, perm in groups.items()} | topics
        is_admin = admin in (True, "true")
        return PlainAccessResource(access_key, secret_key, white, is_admin, default_topic, default_group, perms)

    def _key(self, entry: MarkedMapping, name: str, who: str) -> str:
        problems = len(self._problems)
        text = self._text(entry, name) or ""
        if len(text) < _KEY_SIZE_MIN and len(self._problems) == problems:
            told = f"{name} {text!r}" if name == "accessKey" else f"the {name} of {who}"
            reason = f"{told} must have more than 6 characters" if text else f"{who} has no {name}"
            self._problem(entry.line_of(name), reason)
        return text

    def _default(self, entry: MarkedMapping, name: str, who: str) -> int:
        return self._perm(self._text(entry, name), f"{name} of {who}", entry.line_of(name))

    def _perms(self, entry: MarkedMapping, name: str) -> dict[str, int]:
        perms = dict[str, int]()
        for text, line in self._texts(entry, name):
            items = [item for item in text.split("=") if item]
            if len(items) == 2:
                perms[items[0].strip()] = self._perm(items[1], f"{name} {text!r}", line)
            else:
                self._problem(line, f"{name}: {text!r} is not of the form name=permission")
        return perms

    def _perm(self, text: str | None, where: str, line: int) -> int:
        perm = parse_perm(text)
        if perm is None:
            known = ", ".join(PERMISSION_NAMES)
            self._note(line, f"{where}: {text!r} is none of {known}, and counts as DENY")
        return DENY if perm is None else perm

    def _strategy(self, text: str | None, where: str, line: int) -> RemoteAddressStrategy | None:
        try:
            return RemoteAddressStrategy(text)
        except ValueError as error:
            self._problem(line, f"white addresses of {where}: {error}")
            return None

    def _texts(self, entry: MarkedMapping, name: str) -> list[tuple[str, int]]:
        """The items of a list, with their lines."""
        value = entry.get(name)
        if value is None:
            return []
        if not isinstance(value, MarkedList):
            self._problem(entry.line_of(name), f"{name} is no list")
            return []
        found = [(self._as_text(one, name, line), line) for one, line in zip(value, value.lines, strict=True)]
        return [(text, line) for text, line in found if text]

    def _text(self, entry: MarkedMapping, name: str) -> str | None:
        return self._as_text(entry.get(name), name, entry.line_of(name))

    def _as_text(self, value: Any, name: str, line: int) -> str | None:
        """A text; a whole number is one, as an access key may look like one."""
        if value is None or type(value) is str:
            return value
        if type(value) is int:
            return str(value)
        kind = _KINDS.get(type(value), type(value).__name__)
        self._problem(line, f"{name}: a {kind} is no text: use quotation marks")
        return None

    def _note_keys(self, given: MarkedMapping, known: frozenset[str], where: str) -> None:
        """Those that nobody reads, and those that are there twice."""
        for key in sorted(given.keys() - known, key=given.line_of):
            # behind a sign may stand what was meant as a value: a secret, maybe
            name = re.sub(r"[^A-Za-z].*", "...", str(key), flags=re.DOTALL)
            meant = nearest(name.removesuffix("..."), known)
            hint = f"; nearest known key: {meant}" if meant else ""
            self._note(given.line_of(key), f"{name!r} of {where} is no key of RocketMQ's, and without effect{hint}")
        for key, line in given.repeated:
            if key in known:
                self._note(line, f"{key} of {where} is there twice: the last one counts")
