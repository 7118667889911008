"""What an executor is asked before it works, and how Spark's stories about it are told."""

import compileall
import os
import re
import shutil
import socket
import subprocess
import sys
import venv
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import rmqha
from rmqha.errors import StoreError
from rmqha.spark.executors import check_here, checking, guarded, packages
from rmqha.spark.replay import ReplayOptions, replay
from rmqha.spark.replay.runner import in_a_line
from tests import stores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_same_packages_are_no_problem() -> None:
    assert checking(packages())() == ""
    assert packages()["python"] == ".".join(map(str, sys.version_info[:2]))


def test_each_difference_is_told_with_host_interpreter_and_what_to_install() -> None:
    wanted = {"python": "3.99", "rmqha": "9.9", "numpy": packages()["numpy"], "nosuchpackage": "1.0"}
    told = checking(wanted)()
    assert told.startswith(f"executor on {socket.gethostname()}: {sys.executable}: python is 3.")
    assert f"rmqha is {packages()['rmqha']}, not 9.9" in told
    assert "nosuchpackage cannot be imported (No module named 'nosuchpackage')" in told
    assert told.endswith(
        f"; python3.99 -m pip install numpy=={wanted['numpy']} nosuchpackage==1.0, and from a clone of rmqha 9.9, "
        "which is not on PyPI: rm -rf build && python3.99 -m pip install ."
    )
    assert "from a clone" not in checking({"python": packages()["python"], "numpy": "9.9"})()
    assert "\n" not in told
    with pytest.raises(StoreError, match="rmqha is"):
        check_here(wanted)


@pytest.mark.parametrize("is_zip", [False, True])
def test_a_clone_that_is_another_one_is_told(is_zip: bool, tmp_path: Path) -> None:
    """All of them are of one version: a worker with an older one replayed as that one does, and nobody was told."""
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    copy = tmp_path / "copy"
    shutil.copytree(Path(rmqha.__file__).parent, copy / "rmqha", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "rmqha" / "notes").mkdir()
    (copy / "rmqha" / "notes" / "of_nobody.py").write_text("# of no package\n")
    (copy / "rmqha" / ".#records.py").symlink_to("an editor's lock")

    def asked() -> bytes:
        place = shutil.make_archive(str(tmp_path / "packed"), "zip", copy) if is_zip else str(copy)
        pickled = cloudpickle.dumps(guarded(len, checking(packages())))
        code = "import pickle, sys; sys.path.insert(0, sys.argv[1]); print(list(pickle.load(sys.stdin.buffer)([])))"
        command = [sys.executable, "-Bc", code, place]
        done = subprocess.run(command, input=pickled, capture_output=True, check=False, cwd=tmp_path)
        said: bytes = done.stdout + done.stderr
        return said

    assert asked() == b"[]\n"
    with (copy / "rmqha" / "store" / "index_file.py").open("a") as module:
        module.write("# another one\n")
    assert re.search(rb"rmqha is 0\.1\.0 with sources \w{12}, not 0\.1\.0 with sources \w{12};", asked())


def test_clones_without_sources_differ_too(tmp_path: Path) -> None:
    code = "from rmqha.spark.executors import packages; print(packages()['rmqha'])"
    told = []
    for name in ("one", "newer", "other"):
        copy = tmp_path / name / "rmqha"
        shutil.copytree(Path(rmqha.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
        if name == "other":
            with (copy / "spark" / "records.py").open("a") as module:
                module.write("_ANOTHER = 1\n")
        if name == "newer":
            for source in copy.rglob("*.py"):
                os.utime(source)
        compileall.compile_dir(copy, ddir="/clone/rmqha", quiet=1, legacy=True)
        for source in copy.rglob("*.py"):
            source.unlink()
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-Bc", code], capture_output=True, check=True, text=True, cwd=tmp_path / name
            )
            told.append(done.stdout)
    one, other = told[0], told[-1]
    assert told == [one, one, one, one, other, other], "not by when they were compiled"
    assert one != other


def test_nothing_is_done_on_an_executor_that_fails_the_check() -> None:
    assert list(guarded(len, lambda: "")([b"\x80\x05]."])) == [0]
    with pytest.raises(RuntimeError, match="executor on"):
        list(guarded(len, lambda: "executor on x: y")([b"no pickle"]))


def test_what_asks_needs_no_rmqha_there(tmp_path: Path) -> None:
    """Python without any packages but pyspark's cloudpickle."""
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    for package in ("pyspark", "py4j"):
        (tmp_path / package).symlink_to(Path(import_module(package).__file__ or "").parent)
    pickled = cloudpickle.dumps(guarded(len, checking(packages())))
    code = "import pickle, sys; sys.path.append(sys.argv[1]); list(pickle.load(sys.stdin.buffer)([b'']))"
    done = subprocess.run(
        [sys.executable, "-ISc", code, str(tmp_path)], input=pickled, capture_output=True, check=False
    )
    assert b"RuntimeError: executor on " in done.stderr
    assert b"rmqha cannot be imported (No module named 'rmqha')" in done.stderr


LOST = "Job aborted: Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.2 executor 1): "
MISMATCH = "pyspark.errors.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9"


@pytest.mark.parametrize(
    ("story", "told"),
    [
        (
            LOST + 'java.io.IOException: Cannot run program "/opt/p/bin/python": error=2, No such file\n\tat x',
            "executor on 10.0.0.2 has no /opt/p/bin/python: install there what is here, or name its PYSPARK_PYTHON",
        ),
        (
            LOST + "org.apache.PythonException: Traceback:\n  File x\nRuntimeError: executor on w7: /p: numpy is 1\n",
            "executor on w7: /p: numpy is 1",
        ),
        (
            LOST + f"Traceback:\n  File x\n{MISMATCH}\n\nDriver stacktrace:",
            f"a Spark task failed on 10.0.0.2: {MISMATCH}",
        ),
        ("something\n\tat x", "a Spark task failed: something"),
        ("", "a Spark task failed: "),
    ],
)
def test_a_story_in_a_line(story: str, told: str) -> None:
    assert in_a_line(story) == told


@pytest.mark.spark
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("python", ["bare", "none"])
def test_a_cluster_without_the_packages_is_told_of_before_anything_is_read(
    python: str, spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    interpreter = str(tmp_path / python / "bin" / "python")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", interpreter)
    told = {"bare": "pyarrow cannot be imported", "none": f"has no {interpreter}"}[python]
    with pytest.raises(StoreError, match=rf"^executor on \S+ .*{told}") as caught:
        replay(ReplayOptions(str(stores.unpack("basic", tmp_path)), str(tmp_path / "out")))
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "out" / "_rmqha").glob("staging-*"))
