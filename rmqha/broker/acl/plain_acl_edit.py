"""Changes of account files that an administrator asks for (50, 51, 53): an account comes, changes, goes, or addresses.

A file is read, changed and looked at as a broker reads it; then the new one takes its place, as a whole and durably.
Its comments are lost, as in RocketMQ. What no broker could read takes nobody's place.

Source: rocketmq-all-4.9.8 PlainPermissionManager.java, AclUtils.java.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from rmqha.broker.acl.marked_yaml import load_marked
from rmqha.broker.acl.permission import PERMISSION_NAMES, parse_perm
from rmqha.broker.acl.plain_acl import PlainAcl, acl_files, read_plain_acl
from rmqha.codec.acl_headers import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from rmqha.errors import ConfigError
from rmqha.replacement import replacement

SIZE_MAX: Final = 1024 * 1024
"""Bytes of a file that is written here; such a file takes seconds to read."""

Document = dict[str, Any]
Change = Callable[[str, int], PlainAcl]
"""``change(home, now_ms)``: makes it durable, and returns what the files say then; see :func:`replace_file`."""


def update_access_config(header: CreateAccessConfigRequestHeader) -> Change:
    """Make an account, in ``conf/plain_acl.yml``, or change it where it is."""

    def change(home: str, now_ms: int) -> PlainAcl:
        path = _file_of(home, header.access_key)

        def edit(document: Document) -> None:
            accounts = document.get("accounts") or []
            same = [account for account in accounts if _is(account, header.access_key)]
            made = _account(same[0] if same else {}, header)
            first = accounts.index(same[0]) if same else len(accounts)
            others = [account for account in accounts if not _is(account, header.access_key)]
            document["accounts"] = [*others[:first], made, *others[first:]]

        return replace_file(home, path or _default_file(home), edit, now_ms=now_ms)

    return change


def delete_access_config(header: DeleteAccessConfigRequestHeader) -> Change:
    """Take an account away."""

    def change(home: str, now_ms: int) -> PlainAcl:
        path = _file_of(home, header.access_key)
        if path is None:
            raise ConfigError(f"there is no account {header.access_key:.100}")

        def edit(document: Document) -> None:
            document["accounts"] = [one for one in document["accounts"] if not _is(one, header.access_key)]

        return replace_file(home, path, edit, now_ms=now_ms)

    return change


def update_global_white_addrs(header: UpdateGlobalWhiteAddrsConfigRequestHeader) -> Change:
    """Let all of one file's addresses be these."""

    def change(home: str, now_ms: int) -> PlainAcl:
        path = _default_file(home)
        if header.acl_file_full_path:
            path = Path(header.acl_file_full_path)
            if path not in {*acl_files(home), _default_file(home)}:
                raise ConfigError(f"{header.acl_file_full_path:.200} is no file of accounts of this broker")

        def edit(document: Document) -> None:
            document["globalWhiteRemoteAddresses"] = _parts(header.global_white_addrs)

        return replace_file(home, path, edit, now_ms=now_ms)

    return change


def _default_file(home: str) -> Path:
    return Path(home) / "conf" / "plain_acl.yml"


def _file_of(home: str, access_key: str) -> Path | None:
    """Where an account is; None if it is nowhere.

    Raises:
        ConfigError: a file cannot be read, or there are several: what is in the second one would count next.
    """
    found = [path for path in acl_files(home) if any(_is(one, access_key) for one in _accounts_of(path))]
    if len(found) > 1:
        names = " and ".join(map(str, found))
        raise ConfigError(f"the account {access_key:.100} is in {names}: leave it in one of them, then ask again")
    return found[0] if found else None


def _accounts_of(path: Path) -> Iterable[Any]:
    document = load_marked(path)
    accounts = document.get("accounts") if isinstance(document, dict) else None
    return accounts if isinstance(accounts, list) else []


def _is(account: Any, access_key: str) -> bool:
    """An access key may be written like a number."""
    return isinstance(account, dict) and str(account.get("accessKey")) == access_key


def _account(former: Document, header: CreateAccessConfigRequestHeader) -> Document:
    """Raises ConfigError: a permission is none."""
    perms = {"defaultTopicPerm": header.default_topic_perm, "defaultGroupPerm": header.default_group_perm}
    lists = {"topicPerms": header.topic_perms, "groupPerms": header.group_perms}
    for name, text in perms.items():
        _check_perm(name, text or None)
    for name, text in lists.items():
        for part in _parts(text or ""):
            _check_perm(f"{name} {part!r:.100}", part.rpartition("=")[2])
    texts = {"secretKey": header.secret_key or None, "whiteRemoteAddress": header.white_remote_address}
    made: Document = {**former, "accessKey": header.access_key}
    made |= {name: text for name, text in texts.items() if text is not None}
    made["admin"] = header.admin
    made |= {name: text for name, text in perms.items() if text}
    return made | {name: _parts(text) for name, text in lists.items() if text is not None}


def _check_perm(where: str, text: str | None) -> None:
    if parse_perm(text) is None:
        raise ConfigError(f"{where}: {text!r:.40} is none of {', '.join(PERMISSION_NAMES)}")


def _parts(text: str) -> list[str]:
    """What stands between commas; those within braces are part of an address."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign == "{") - (sign == "}")
        if sign == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts if part.strip()]


def replace_file(home: str, path: Path, edit: Callable[[Document], None], *, now_ms: int) -> PlainAcl:
    """Change a file, and count its version up; returns what all files say then.

    Raises:
        ConfigError: nobody could read the result, or somebody else has changed the file meanwhile; it is as it was.
        OSError: it cannot be written.
    """
    target = path.resolve()
    before = _status_of(target)
    document = _read(path, shown=path) if before is not None else None
    if not isinstance(document, dict | None):
        raise ConfigError(f"{path}: it holds no keys such as accounts and globalWhiteRemoteAddresses")
    document = document or {}
    if not isinstance(document.get("accounts") or [], list):
        raise ConfigError(f"{path}: accounts is no list of accounts: each begins with '- '")
    edit(document)
    document["dataVersion"] = [{"counter": _counter_of(document) + 1, "timestamp": now_ms}]
    with replacement(target, _dump(document)) as new:
        acl = read_plain_acl(home, instead={path: new})
        if _read(new, shown=path) != document:
            raise ConfigError(f"{path} cannot hold one of these values as it is: a sign in it means a new line there")
        if _identity_of(_status_of(target)) != _identity_of(before):
            raise ConfigError(f"{path} was changed by somebody else at the same time: ask again")
    return acl


def _read(path: Path, *, shown: Path) -> Any:
    try:
        return _plain(load_marked(path, shown=shown))
    except RecursionError:
        raise ConfigError(f"{shown}: an alias (*) leads back to itself") from None


def _plain(value: Any) -> Any:
    """What was read, without the lines."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _counter_of(document: Document) -> int:
    versions = document.get("dataVersion")
    first = versions[0] if isinstance(versions, list) and versions else None
    counter = first.get("counter") if isinstance(first, dict) else None
    return counter if type(counter) is int else 0


def _dump(document: Document) -> bytes:
    import yaml  # noqa: PLC0415 - an extra, which only aclEnable needs

    try:
        data = bytes(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"no file can hold this: {type(error).__name__}") from None
    if len(data) > SIZE_MAX:
        raise ConfigError(f"the file of accounts would have {len(data)} bytes: at most {SIZE_MAX} are written")
    return data


def _status_of(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _identity_of(status: os.stat_result | None) -> tuple[int, ...]:
    return () if status is None else (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
