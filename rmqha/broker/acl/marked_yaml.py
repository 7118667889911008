"""YAML whose mappings and lists know the lines they were written on, so that what is wrong there can be pointed to."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rmqha.errors import ConfigError

_JAVA_ACCOUNT: Final = "tag:yaml.org,2002:org.apache.rocketmq.common.PlainAccessConfig"
"""How RocketMQ itself may write an account when it changes the file."""
_PROBLEMS: Final = defaultdict(
    lambda: "it cannot be read",
    ScannerError="a sign that cannot stand there: put the value in quotation marks",
    ParserError="it ends or goes on where it cannot: look at indentation, brackets and quotation marks",
    ComposerError="an alias (*) of nothing, or an anchor (&) twice: put the value in quotation marks",
    ConstructorError="a tag (!) or a key that means nothing here: put the value in quotation marks",
)


class MarkedMapping(dict[Any, Any]):
    """A mapping, with the line on which it begins, and those of its keys."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line: Final = line
        self.repeated: Final = list[tuple[str, int]]()
        """Keys that were written before, with their lines: the last one counts."""
        self._lines: Final = dict[str, int]()

    def line_of(self, key: object) -> int:
        """Where a key stands; where the mapping begins, if it is not there."""
        return self._lines.get(str(key), self.line)

    def note_key(self, key: str, line: int) -> None:
        """A key stands there."""
        if key in self._lines:
            self.repeated.append((key, line))
        self._lines[key] = line


class MarkedList(list[Any]):
    """A list, with the lines of its items."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: Final = list[int]()


def load_marked(path: Path, *, shown: Path | None = None) -> Any:
    """The document in a file, which errors call ``shown``; None if it is blank.

    Raises:
        ConfigError: it cannot be read, or is no YAML; or PyYAML is missing.
    """
    try:
        import yaml  # noqa: PLC0415 - an extra, which only aclEnable needs
    except ImportError:
        raise ConfigError(
            "aclEnable=true needs PyYAML to read plain_acl.yml: pip install 'rmqha[acl]', or pip install PyYAML"
        ) from None

    loader: Any = type("MarkedLoader", (yaml.SafeLoader,), {})
    for tag in ("tag:yaml.org,2002:map", _JAVA_ACCOUNT):
        loader.add_constructor(tag, _mapping)
    loader.add_constructor("tag:yaml.org,2002:seq", _list)
    source, path = path, shown or path
    try:
        return yaml.load(source.read_bytes(), loader)  # noqa: S506 - a safe one
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    except yaml.MarkedYAMLError as error:  # its text shows what stands there, and that may be a secret
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{path}:{line}: no YAML: {_PROBLEMS[type(error).__name__]}") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path}: no YAML: {type(error).__name__}") from None


def _mapping(loader: Any, node: Any) -> Iterator[MarkedMapping]:
    made = MarkedMapping(_line(node))
    yield made
    for key, _ in node.value:
        if isinstance(key.value, str):
            made.note_key(key.value, _line(key))
    made.update(loader.construct_mapping(node))


def _list(loader: Any, node: Any) -> Iterator[MarkedList]:
    made = MarkedList()
    yield made
    made.lines.extend(map(_line, node.value))
    made.extend(loader.construct_sequence(node))


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1
