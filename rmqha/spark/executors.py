"""Whether executors have the packages of the driver. What asks them travels whole: it works where rmqha is missing.

cloudpickle carries a function within a function by its code, so these import all they need themselves.
"""

import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy
import pyarrow

import rmqha
from rmqha.errors import StoreError

Check = Callable[[], str]


def packages() -> dict[str, str]:
    """Name to version of what must be the same on both sides, here."""
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    ours = _describing()(rmqha)
    return {"python": python, "rmqha": ours, "pyarrow": pyarrow.__version__, "numpy": numpy.__version__}


def _describing() -> Callable[[Any], str]:
    """A function that gives the version of a package whose clones all have the same one, and a digest of its sources.

    These are its modules wherever they lie, in a zip file too; they are read once in a process.
    """

    def describe(package: Any) -> str:
        from hashlib import sha256  # noqa: PLC0415 - see above
        from importlib import resources  # noqa: PLC0415

        if (known := package.__dict__.get("__described__")) is not None:
            return str(known)
        digest, todo = sha256(), [("", resources.files(package.__name__))]
        while todo:
            place, one = todo.pop()
            if any(one.joinpath(name).is_file() for name in ("__init__.py", "__init__.pyc")):
                todo += sorted((f"{place}/{below.name}", below) for below in one.iterdir())
            elif place.endswith((".py", ".pyc")) and one.is_file():
                content = one.read_bytes()[16 if place.endswith(".pyc") else 0 :]  # behind when it was compiled
                digest.update(b"%s %d\n" % (place.encode(), len(content)) + content)
        package.__described__ = f"{package.__version__} with sources {digest.hexdigest()[:12]}"
        return str(package.__described__)

    return describe


def checking(wanted: Mapping[str, str]) -> Check:
    """A function that says, where it runs, what differs from ``wanted`` and what to install; empty: nothing."""
    describe = _describing()

    def check() -> str:
        import importlib  # noqa: PLC0415 - see above
        import socket  # noqa: PLC0415
        import sys  # noqa: PLC0415

        differing = []
        for name, version in wanted.items():
            try:
                if name == "python":
                    found = f"{sys.version_info[0]}.{sys.version_info[1]}"
                else:
                    module = importlib.import_module(name)
                    found = describe(module) if name == "rmqha" else str(module.__version__)
            except Exception as error:  # noqa: BLE001 - a package that is broken may raise anything
                differing.append(f"{name} cannot be imported ({error})")
                continue
            if found != version:
                differing.append(f"{name} is {found}, not {version}")
        if not differing:
            return ""
        interpreter = sys.executable
        if any(problem.startswith("python ") for problem in differing):
            interpreter = f"python{wanted['python']}"
        of_pypi = {name: version for name, version in wanted.items() if name not in {"python", "rmqha"}}
        install = " ".join(f"{name}=={version}" for name, version in of_pypi.items())
        if any(problem.startswith("rmqha ") for problem in differing):
            install += (
                f", and from a clone of rmqha {wanted['rmqha']}, which is not on PyPI: rm -rf build && "
                f"{interpreter} -m pip install ."
            )
        problems = ", ".join(differing)
        return (
            f"executor on {socket.gethostname()}: {sys.executable}: {problems}; {interpreter} -m pip install {install}"
        )

    return check


def guarded(function: Callable[[Any], Any], check: Check) -> Callable[[Iterable[bytes]], Iterator[Any]]:
    """``function`` over pickled items, on an executor that passes the check."""
    pickled = pickle.dumps(function)

    def run(items: Iterable[bytes]) -> Iterator[Any]:
        import pickle  # noqa: PLC0415

        if problem := check():
            raise RuntimeError(problem)
        work = pickle.loads(pickled)  # noqa: S301 - of our own driver
        for item in items:
            yield work(pickle.loads(item))  # noqa: S301

    return run


def check_here(wanted: Mapping[str, str]) -> None:
    """On an executor that has rmqha at all.

    Raises:
        StoreError: it has other packages than the driver.
    """
    if problem := checking(wanted)():
        raise StoreError(problem)
