"""JsonWalk: reads a large JSON object member by member, so that its reader can let others have their turn."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from rmqha.errors import RemoteProtocolError

VALUE_SIZE_MAX: Final = 4096
"""Characters of what is taken at once: a fraction of a millisecond's work."""
_SPACE: Final = re.compile(rf"[ \t\r\n]{{0,{VALUE_SIZE_MAX}}}")
"""More between two tokens is no JSON of a broker's: nobody waits while it is skipped."""
_decode: Final = json.JSONDecoder().raw_decode
_NULL: Final = "null"


class JsonWalk:
    """A place in a JSON text. Errors are RemoteProtocolErrors."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def members(self) -> Iterator[str]:
        """The keys of the object that begins here; null has none.

        After each of them, before the next, its value is to be taken: by :meth:`take`, or walked through by another
        :meth:`members`.
        """
        if self._passes(_NULL):
            return
        self._expect("{")
        while not self._passes("}"):
            key = self.take()
            if type(key) is not str:
                raise RemoteProtocolError(f"JSON: a key expected before character {self._at}")
            self._expect(":")
            yield key
            if not self._passes(","):
                self._expect("}")
                return

    def take(self) -> Any:
        """The whole value that begins here, of at most :data:`VALUE_SIZE_MAX` characters."""
        self._skip_space()
        part = self._text[self._at : self._at + VALUE_SIZE_MAX + 1]
        try:
            value, size = _decode(part)
        except (ValueError, RecursionError):
            size = 0
        if not 0 < size <= VALUE_SIZE_MAX:
            raise RemoteProtocolError(f"JSON: no value of at most {VALUE_SIZE_MAX} characters at character {self._at}")
        self._at += size
        return value

    def _skip_space(self) -> None:
        match = _SPACE.match(self._text, self._at)
        assert match is not None
        self._at = match.end()

    def _passes(self, text: str) -> bool:
        self._skip_space()
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _expect(self, text: str) -> None:
        if not self._passes(text):
            raise RemoteProtocolError(f"JSON: {text!r} expected at character {self._at}")
