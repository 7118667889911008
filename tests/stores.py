"""Stores recorded from RocketMQ 4.9.8: unpacked for a test, with what RocketMQ itself said about them."""

import gzip
import json
import shutil
import tarfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

needs_compression = pytest.mark.skipif(find_spec("lz4") is None, reason="lz4 is in the extra [compression]")
"""For what reads the compressed bodies of the store ``basic``."""

GOLDEN = Path(__file__).parent / "golden"

STORES = ["basic", "odd", "crashed", "rolled", "burned", "endblank", "trimmed", "v6", "bench", "empty"]
SIDES = [*STORES, "slave/master", "slave/slave"]
"""``store-slave`` holds two stores."""


def unpack(name: str, directory: Path) -> Path:
    """Path of a fresh copy of the store; ``name`` is one of SIDES."""
    store, _, side = name.partition("/")
    with tarfile.open(GOLDEN / "stores" / f"store-{store}" / f"store-{store}.tar.gz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.0 to 3.11.3 have none
        archive.extractall(directory)
    return directory / (side or "store")


def settings(name: str) -> dict[str, Any]:
    """The broker's properties."""
    store, _, side = name.partition("/")
    loaded = json.loads((GOLDEN / "stores" / f"store-{store}" / "settings.json").read_text())
    loaded = loaded[side] if side else loaded
    return dict(loaded[0] if isinstance(loaded, list) else loaded)


def _expected(name: str, kind: str) -> Path:
    store, _, side = name.partition("/")
    return GOLDEN / "stores" / f"store-{store}" / f"expected-{side + '-' if side else ''}{kind}"


def expected_log(name: str) -> dict[str, Any]:
    return dict(json.loads(_expected(name, "log.json").read_text()))


def expected_queues(name: str) -> dict[str, Any]:
    """``TOPIC -> QUEUE -> {min, max, maxPhysicOffset, entries}``."""
    return dict(json.loads(_expected(name, "queues.json").read_text()))


def expected_index(name: str) -> dict[str, list[int]]:
    """``TOPIC#KEY -> offsets``, newest first, at most 64, before the keys are compared."""
    return dict(json.loads(gzip.decompress(_expected(name, "index.json.gz").read_bytes())))


def expected_messages(name: str) -> list[dict[str, Any]]:
    store, _, side = name.partition("/")
    file = GOLDEN / "stores" / f"store-{store}" / f"expected{'-' + side if side else ''}.jsonl.gz"
    return [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]


def recovery_cases() -> list[dict[str, Any]]:
    """Damages, and what RocketMQ made of them at the next start."""
    raw = gzip.decompress((GOLDEN / "recovery" / "cases.jsonl.gz").read_bytes())
    return [json.loads(line) for line in raw.splitlines()]


def damage(root: Path, ops: list[dict[str, Any]]) -> None:
    """Apply a case's operations; paths in them begin with ``store/``, which is ``root``."""
    for op in ops:
        path = root.parent / op["path"]
        if op["op"] == "delete":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        elif op["op"] == "create":
            path.write_bytes(bytes(op["length"]))
        else:
            data = bytes.fromhex(op["hex"]) if op["op"] == "write" else bytes(op["length"])
            with path.open("r+b") as file:
                file.seek(op["offset"])
                file.write(data)
