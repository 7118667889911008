"""What the house asks of its files and a machine can judge."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "rmqha"
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 50

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef

LONG_FUNCTIONS = {
    "scan_records": 60,  # one loop over hostile bytes: a call a record would cost a third of its speed
    "read_dispatch": 55,  # likewise
}
"""What is longer all the same, why, and how long it may be at most."""

CALLED_FROM_OUTSIDE = {
    *("LazyGroup.list_commands", "LazyGroup.get_command", "LazyGroup.format_commands"),  # click
    *("RmqhaDataSource.streamReader", "RmqhaDataSource.streamWriter", "RmqhaReader.partitions"),  # Spark
    *("LogStreamReader.initialOffset", "RmqhaStreamReader.latestOffset", "RmqhaStreamReader.getDefaultReadLimit"),
    *("RmqhaStreamReader.reportLatestOffset", "RmqhaStreamReader.prepareForTriggerAvailableNow"),
    *("LogStreamReader.partitions", "UnlimitedStreamReader.latestOffset"),
}
ASKED_BY_TESTS = {
    *("encode_units", "decode_units", "encode_heartbeat", "format_properties", "decode_message_id", "key_hash"),
    *("wait_reached", "DefaultMessageStore.put_messages_when_allocated", "Java.description"),
    *("ConsumeQueueUnit.is_filler", "ConsumeQueueUnit.is_written", "DirectReader.is_direct"),
    *("CleanCommitLogService.execute_delete_files_manually", "RemotingClient.invoke_nowait"),
}
"""The other direction of a format that the product reads or writes, and ways to wait that a test needs."""
NO_ENGLISH = re.compile(r"\b(whoever|the own|his own|hot path, steps?)\b", re.IGNORECASE)
"""Words that a native engineer would not write here: things are not persons, and step numbers go stale."""
PUBLIC = ("rmqha/client/",)
"""Used by those who import rmqha."""


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def definitions(path: Path) -> Iterator[tuple[str, Definition]]:
    """Functions and classes of a module, and the functions of its classes: ``Class.function``."""
    for node in tree_of(path).body:
        if isinstance(node, Definition):
            yield node.name, node
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, Function):
                    yield f"{node.name}.{inner.name}", inner


def _is_registered(node: Definition) -> bool:
    """Whether a decorator hands it to somebody, as click's do."""
    return isinstance(node, Function) and any("command" in ast.dump(decorator) for decorator in node.decorator_list)


def lines_of(function: Function) -> int:
    """Without its docstring."""
    docstring = function.body[0] if ast.get_docstring(function) is not None else None
    spent = 0 if docstring is None else (docstring.end_lineno or 0) - docstring.lineno + 1
    return (function.end_lineno or 0) - function.lineno + 1 - spent


def test_groups_of_errors_are_taken_apart_so_that_pypy_can() -> None:
    """Its own ``except*`` ends in an AssertionError where nothing matches: see rmqha/errors.py, errors_in."""
    tested = sorted((ROOT / "tests").rglob("*.py"))
    may_have = [path for path in (*modules(), *tested) if re.search(r"except\s*\*", path.read_text())]
    assert Path(__file__) in may_have
    assert [path for path in may_have if any(isinstance(node, ast.TryStar) for node in ast.walk(tree_of(path)))] == []


def test_a_module_holds_one_idea() -> None:
    sizes = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in modules()}
    assert {path: size for path, size in sizes.items() if size > FILE_LINES_MAX} == {}


def test_a_function_can_be_read_at_a_glance() -> None:
    too_long = {
        name: lines_of(node)
        for path in modules()
        for name, node in definitions(path)
        if isinstance(node, Function) and lines_of(node) > LONG_FUNCTIONS.get(name, FUNCTION_LINES_MAX)
    }
    assert too_long == {}


def test_what_nobody_uses_is_gone() -> None:
    """A function or class of the product is named by the product, or by a script, besides its definition."""
    named = Counter[str]()
    for path in [*modules(), *(ROOT / "scripts").glob("*.py"), ROOT / "scripts" / "simulate"]:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Name):
                named[node.id] += 1
            elif isinstance(node, ast.Attribute):
                named[node.attr] += 1
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                named[node.value] += 1
    unused = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in modules()
        if not str(path.relative_to(ROOT)).startswith(PUBLIC)
        for name, node in definitions(path)
        if not (node.name.startswith("__") or _is_registered(node) or name in CALLED_FROM_OUTSIDE | ASKED_BY_TESTS)
        and not named[node.name]
    ]
    assert unused == []


def test_a_constant_is_used() -> None:
    """What a module gives a name to at its top is read by the product."""
    read = {"logger", "__all__"}
    for path in modules():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                read.add(node.id)
            elif isinstance(node, ast.Attribute):
                read.add(node.attr)
    unused = [
        f"{path.relative_to(ROOT)}: {target.id}"
        for path in modules()
        for node in tree_of(path).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id not in read
    ]
    assert unused == []


def test_the_drawing_of_the_house_is_true() -> None:
    """Each ``file.py`` of ARCHITECTURE.md exists, and defines what stands behind its colon."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = re.findall(r"`([\w/]+\.py)(?:: ([\w.]+))?`", text)
    assert len(named) > 40
    lost = []
    for file, name in named:
        path = next((base / file for base in (PACKAGE, ROOT) if (base / file).is_file()), None)
        if path is None or (name and name not in {known for known, _ in definitions(path)}):
            lost.append(f"{file}: {name}")
    assert lost == []


def test_the_english_is_plain() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    sources = [path for folder in ("rmqha", "scripts", "tests") for path in (ROOT / folder).rglob("*.py")]
    assert len(sources) > 300
    told = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in [*pages, *sources]
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if NO_ENGLISH.search(line)
    ]
    assert told == []


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = set(re.findall(r"\]\((\d+[\w-]+\.md)\)", (folder / "README.md").read_text()))
    assert listed == {path.name for path in folder.glob("[0-9]*.md")}


def test_pages_link_to_what_exists() -> None:
    """Links within the project, in every page of it."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())]
    assert len(links) > 20
    assert [f"{page.name}: {link}" for page, link in links if not (page.parent / link).exists()] == []
