r"""``rmqha tail --format '%t %o %s\n'``: a line as the operator wants it, in the letters that kcat has. Pure.

    %t topic    %p queue id (partition)    %o queue offset    %k keys    %s body    %S its bytes    %T store time, ms
    %h properties    %a tag    %i msgId    %b brokerName    %P physical offset    %%

and ``\n``, ``\t``, ``\r``, ``\\``, ``\xHH``. Nothing is added: the end of a line is ``\n``. What a message holds is
escaped as in the text format, so that it can neither end a line nor reach the terminal.
"""

import re
from collections.abc import Callable
from typing import Final

from rmqha.cli.message_lines import text_line
from rmqha.client import MessageExt
from rmqha.logs import escaped

_PARTS: Final[dict[str, Callable[[MessageExt], str]]] = {
    "t": lambda message: escaped(message.topic),
    "p": lambda message: str(message.queue.queue_id),
    "o": lambda message: str(message.queue_offset),
    "k": lambda message: escaped(" ".join(message.keys)),
    "s": text_line,
    "S": lambda message: str(len(message.body)),
    "T": lambda message: str(message.store_timestamp_ms),
    "h": lambda message: escaped(",".join(f"{name}={value}" for name, value in message.properties.items())),
    "a": lambda message: escaped(message.tags or ""),
    "i": lambda message: escaped(message.msg_id),
    "b": lambda message: escaped(message.queue.broker_name),
    "P": lambda message: str(message.physical_offset),
    "%": lambda _message: "%",
}
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}
_TOKEN: Final = re.compile(r"%(?P<part>.?)|\\(?:x(?P<hex>[0-9A-Fa-f]{2})|(?P<escape>.?))|(?P<text>[^%\\]+)", re.DOTALL)


def parse_format(text: str) -> Callable[[MessageExt], str]:
    """What makes a line of a message.

    Raises:
        ValueError: a sign behind ``%`` or a backslash means nothing.
    """
    parts = [_part(token) for token in _TOKEN.finditer(text)]
    return lambda message: "".join(part if isinstance(part, str) else part(message) for part in parts)


def _part(token: re.Match[str]) -> str | Callable[[MessageExt], str]:
    if token["text"] is not None:
        return token["text"]
    if token["hex"] is not None:
        return chr(int(token["hex"], 16))
    known: dict[str, str] | dict[str, Callable[[MessageExt], str]] = _ESCAPES if token["part"] is None else _PARTS
    found = known.get(token["escape"] if token["part"] is None else token["part"])
    if found is None:
        sign = token[0][0]
        raise ValueError(f"{token[0]!r} means nothing: there are {', '.join(sign + one for one in known)}")
    return found
