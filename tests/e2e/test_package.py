"""What is published: the source archive has all that a checkout has, and its wheel runs where nothing else is."""

import json
import shutil
import subprocess
import sys
import tarfile
from configparser import ConfigParser
from pathlib import Path
from venv import EnvBuilder
from zipfile import ZipFile

import pytest

from tests.e2e.processes import CHECKOUT, Child, free_ports, give_back

pytestmark = pytest.mark.e2e
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}


def tracked() -> list[str]:
    """The files of the checkout, without what was made in it."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, check=True, capture_output=True, text=True)
    return listed.stdout.split("\0")[:-1]


def run(*arguments: str | Path, cwd: Path) -> str:
    """Its output; nothing of this environment helps it."""
    env = ENVIRONMENT | {"HOME": str(cwd)}
    done = subprocess.run(arguments, cwd=cwd, env=env, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source archive, and the wheel that is made of it and not of the checkout."""
    source_tree, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in tracked():
        (source_tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(CHECKOUT / name, source_tree / name)
    command = [sys.executable, "-m", "build", "--outdir", str(out), str(source_tree)]
    made = subprocess.run(command, check=False, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    assert "Deprecat" not in made.stdout + made.stderr
    (source,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return source, wheel


def test_the_source_archive_has_all_that_is_tracked(archives: tuple[Path, Path]) -> None:
    with tarfile.open(archives[0]) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert set(tracked()) - packed <= {".gitignore"}


def test_the_wheel_has_the_files_of_the_dashboard(archives: tuple[Path, Path]) -> None:
    with ZipFile(archives[1]) as wheel:
        packed = {name for name in wheel.namelist() if name.startswith("rmqha/dashboard/static/")}
    assert packed == {name for name in tracked() if name.startswith("rmqha/dashboard/static/")}
    assert len(packed) > 4


def test_the_wheel_has_the_pages_and_what_a_monitor_takes(archives: tuple[Path, Path]) -> None:
    """Reasons name pages, and an operator has the wheel alone; links among them lead where they do in a checkout."""
    with ZipFile(archives[1]) as wheel:
        packed = {name.partition("/data/share/doc/rmqha/")[2] for name in wheel.namelist()} - {""}
    pages = {name for name in tracked() if name.startswith(("docs/", "conf/"))}
    ours = {name for name in pages if not name.startswith("docs/reference/")}  # of which tox makes pages
    assert packed == ours | {"ARCHITECTURE.md", "CHANGELOG.md", "README.md"}


def test_the_extra_all_has_all_that_users_want() -> None:
    setup = ConfigParser()
    setup.read(CHECKOUT / "setup.cfg")
    extras = set(setup["options.extras_require"])
    wanted = setup["options.extras_require"]["all"].removeprefix("rmqha[").removesuffix("]").split(",")
    assert set(wanted) == extras - {"all", "dev", "fuzz", "reference"}
    assert all(f"[{extra}]" in (CHECKOUT / "README.md").read_text() for extra in ("all", "spark"))
    assert "'.[web,acl," in (CHECKOUT / "README.md").read_text()


async def test_the_wheel_runs_where_nothing_else_is(archives: tuple[Path, Path], tmp_path: Path) -> None:
    """No extra is installed, and no checkout is near."""
    EnvBuilder(with_pip=True).create(tmp_path / "venv")
    bin_directory = tmp_path / "venv" / "bin"
    run(bin_directory / "pip", "install", "--quiet", archives[1], cwd=tmp_path)
    rmqha = bin_directory / "rmqha"
    assert "rmqha, version" in run(rmqha, "--version", cwd=tmp_path)
    ports = free_ports()
    address = f"127.0.0.1:{ports.listen}"
    store = ("--store", str(tmp_path / "store"), "--set", "brokerRole=ASYNC_MASTER")
    listen = ("--set", f"listenPort={ports.listen}", "--set", f"haListenPort={ports.ha}")
    master = Child([str(rmqha), "master", *store, *listen], log=tmp_path / "master.log")
    try:
        await master.wait_output("broker.started")
        assert "SEND_OK" in run(rmqha, "send", "orders", "--count", "10", "-b", address, cwd=tmp_path)
        (topic,) = run(rmqha, "topics", "list", "-b", address, "--format", "json", cwd=tmp_path).splitlines()
        assert json.loads(topic)["topic"] == "orders"
        assert await master.stop() == 0
    finally:
        master.reap()
        give_back(ports)


def test_what_the_image_copies_makes_the_wheel(archives: tuple[Path, Path], tmp_path: Path) -> None:
    """It lacked the pages, which belong to the wheel since reasons name them: no image could be built."""
    for line in (CHECKOUT / "deploy" / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            *names, target = line.split()[1:]
            for name in (one for one in tracked() if one in names or one.split("/")[0] in names):
                place = tmp_path / target.strip("/")
                copy = place / (name if len(names) > 1 else name.partition("/")[2])
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(CHECKOUT / name, copy)
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", "made", "./source", cwd=tmp_path)
    (made,) = (tmp_path / "made").glob("*.whl")
    with ZipFile(made) as image, ZipFile(archives[1]) as wheel:
        assert set(image.namelist()) == set(wheel.namelist())
