"""Changing keys of a broker.conf: what was there stays as a comment, and the former file as a copy beside it."""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rmqha.config import BrokerConfig, load_config
from rmqha.config.java_properties import format_property, parse_properties
from rmqha.replacement import be_like, replacement

_LINES: Final = re.compile(rb"(\r\n|\r|\n)")
_CONTINUED: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\$")


def edited(data: bytes, changes: Mapping[str, str | None], *, note: str) -> bytes:
    """The file's bytes with other values; None takes a key away. Pure.

    Lines that set one of the keys become comments, and the new values stand at the end, below ``note``.
    """
    properties, _ = parse_properties(data)
    begins = {one.line for one in properties if one.key in changes}
    parts = _LINES.split(data)  # lines at even places, their ends at odd ones
    number, is_commented = 1, False
    for at in range(0, len(parts), 2):
        if number in begins or is_commented:
            is_commented = bool(_CONTINUED.search(parts[at]))
            parts[at] = b"#" + parts[at]
        number += 1
    end = parts[1] if len(parts) > 1 else b"\n"
    lines = ["", f"# {note}", *(format_property(key, value) for key, value in changes.items() if value is not None)]
    text = b"".join(parts)
    separator = b"" if not text or text.endswith((b"\n", b"\r")) else end
    return text + separator + b"".join(line.encode("ascii", "backslashreplace") + end for line in lines)


def replace_conf(path: Path, data: bytes, *, copy_suffix: str) -> tuple[Path, BrokerConfig]:
    """Put ``data`` in the place of a broker.conf, durably; returns where the former file is, and what the new one says.

    Mode and owner stay. A file that no broker could start with takes nobody's place.

    Raises:
        ConfigError: it is one.
        OSError: a file cannot be written; the broker.conf is as it was.
    """
    path = path.resolve()
    copy = path.with_name(path.name + copy_suffix)
    with replacement(path, data) as new:
        config = load_config(new)
        shutil.copy2(path, copy)
        be_like(copy, path)
    return copy, config
