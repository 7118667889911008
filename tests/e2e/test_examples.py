"""The Python examples of README.md and of the docstrings that make the reference, each run against a real pair."""

import ast
import asyncio
import inspect
import re
import textwrap
from collections.abc import Iterator
from contextlib import redirect_stdout
from datetime import datetime
from io import StringIO
from typing import Any, Final

import pytest
import trio

import rmqha.client
import rmqha.spark
from rmqha.client import Message, open_producer
from tests.e2e.conftest import Pair
from tests.e2e.processes import CHECKOUT

pytestmark = pytest.mark.e2e

MODULES: Final = (rmqha.client, rmqha.spark)
_PLACE: Final = re.compile(r"127\.0\.0\.1:109[12]1|/data/s\b")
_LITERAL: Final = re.compile(r"::\n\n((?:(?: {4,}.*)?\n)+)")
_FENCED: Final = re.compile(r"```python\n(.*?)```", re.DOTALL)


def _docstrings() -> Iterator[tuple[str, str]]:
    """Of what the reference shows, by name."""
    for module in MODULES:
        yield module.__name__, inspect.getdoc(module) or ""
        for name in module.__all__:
            thing = getattr(module, name)
            yield name, inspect.getdoc(thing) or ""
            for member, value in vars(thing).items() if inspect.isclass(thing) else ():
                if not member.startswith("_"):
                    yield f"{name}.{member}", inspect.getdoc(value) or ""


def _examples() -> Iterator[tuple[str, str]]:
    for name, docstring in _docstrings():
        for block in _LITERAL.findall(docstring + "\n"):
            yield name, textwrap.dedent(block)
    for block in _FENCED.findall((CHECKOUT / "README.md").read_text()):
        if "spark" not in block:  # needs a session
            yield "README", block


EXAMPLES: Final = list(_examples())


def _run(source: str, names: dict[str, Any]) -> None:
    """As a program of that kind would: under asyncio, under trio, or plainly."""
    code = compile(source, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if not code.co_flags & inspect.CO_COROUTINE:
        exec(code, names)
    elif "asyncio" in source:
        asyncio.run(eval(code, names))
    else:
        trio.run(lambda: eval(code, names))


async def test_each_example_does_what_it_says(pair: Pair) -> None:
    await pair.start()
    places = {
        "127.0.0.1:10911": pair.master.address,
        "127.0.0.1:10921": pair.slave.address,
        "/data/s": str(pair.master.store),
    }
    names = {name: getattr(module, name) for module in MODULES for name in module.__all__}
    names |= {"asyncio": asyncio, "datetime": datetime}
    for name, source in EXAMPLES:
        async with open_producer(pair.master.address) as producer:
            await producer.send(Message("orders", b"what is there"), retries=100)
        here = _PLACE.sub(lambda place: places[place[0]], source)
        shown = StringIO()
        with redirect_stdout(shown):
            await trio.to_thread.run_sync(_run, here, dict(names))
        assert "perhaps not stored" not in shown.getvalue(), name
        if "print(message" in source:
            assert "b'" in shown.getvalue(), name


def test_the_examples_are_found() -> None:
    found = {name for name, _ in EXAMPLES}
    docstrings = {"rmqha.client", "ConsumerOptions", "Pipeline", "SyncConsumer.poll_in_asyncio", "iter_batches"}
    assert found == {"README", *docstrings}
