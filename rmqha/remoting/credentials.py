"""The file that holds a client's credentials: RocketMQ's ``conf/tools.yml``, as mqadmin reads it.

accessKey: rocketmq2
secretKey: 12345678
"""

import re
from pathlib import Path
from typing import Final

from rmqha.codec.acl import SessionCredentials
from rmqha.errors import ConfigError

_LINE: Final = re.compile(
    r"""(accessKey|secretKey|securityToken)\s*[:=]\s*(?:"([^"]*)"|'([^']*)'|([^\s#"'](?:[^#]|(?<=\S)#)*?))(?:\s+\#.*)?"""
)
_SIZE_MAX: Final = 64 * 1024


def read_credentials(path: str) -> SessionCredentials:
    """The credentials in a file of lines ``accessKey: ...`` and ``secretKey: ...``; ``=`` does as well.

    Raises:
        ConfigError: it cannot be read, or lacks one of them.
    """
    try:
        with Path(path).open(encoding="utf-8") as file:
            lines = file.read(_SIZE_MAX).splitlines()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise ConfigError(f"{path}: no credentials can be read here: {reason}") from None
    found = dict[str, str]()
    for line in lines:
        if match := _LINE.fullmatch(line.strip()):
            found[match[1]] = (match[2] or match[3] or match[4] or "").strip()
    if not (found.get("accessKey") and found.get("secretKey")):
        raise ConfigError(f"{path}: it must have a line 'accessKey: ...' and a line 'secretKey: ...'")
    return SessionCredentials(found["accessKey"], found["secretKey"], found.get("securityToken"))
