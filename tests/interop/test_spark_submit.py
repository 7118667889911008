"""What docs/spark-clusters.md says of spark-submit, run as it stands there, on a cluster of two workers on loopback."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from rmqha.spark.java import use_java
from tests.e2e.processes import CHECKOUT
from tests.interop.fetched import PeerMissingError, run_fetching
from tests.spark.cluster import cluster, spark_home
from tests.spark.logs import LogWriter

pytest.importorskip("pyspark")
pytestmark = pytest.mark.timeout(900)

PAGE = CHECKOUT / "docs" / "spark-clusters.md"


@dataclass(frozen=True)
class Reader:
    """Who follows the page in a clone of the repository; Spark is on the PATH."""

    clone: Path
    shared: Path
    work: Path
    url: str

    def command(self, block: str) -> str:
        """With the names of this machine for the page's."""
        names = {
            "spark://10.0.0.7:7077": self.url,
            "/opt/rmqha/bin/python": sys.executable,
            "/shared": str(self.shared),
        }
        for name, ours in names.items():
            block = block.replace(name, ours)
        return f"set -e\n{block}"

    def submit(self, block: str) -> list[int]:
        """The physical offsets of what the replay wrote."""
        done = subprocess.run(
            ["sh", "-c", self.command(block)], cwd=self.clone, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        files = [str(path) for path in (self.shared / "lake").glob("topic=*/*.parquet")]
        rows = ds.dataset(files).to_table().to_pylist()
        shutil.rmtree(self.shared / "lake")
        return sorted(row["physicalOffset"] for row in rows)


def blocks() -> list[str]:
    """Of the page's section on spark-submit."""
    section = PAGE.read_text().partition("\n## spark-submit\n")[2].partition("\n## ")[0]
    return re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    use_java()
    place = tmp_path_factory.mktemp("submit")
    clone, conf = place / "clone", place / "conf"
    for name in ("rmqha", "scripts", "docs", "conf"):
        shutil.copytree(CHECKOUT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy2(CHECKOUT / name, clone / name)
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text("spark.executor.memory 512m\nspark.ui.enabled false\n")
    with pytest.MonkeyPatch.context() as environ:
        environ.delenv("PYTHONPATH", raising=False)  # nothing of this checkout helps the executors
        environ.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        environ.setenv("SPARK_HOME", str(spark_home()))
        environ.setenv("SPARK_CONF_DIR", str(conf))
        environ.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        with cluster(place / "cluster") as started:
            yield Reader(clone, place / "shared", place / "cluster", started.url)


@pytest.fixture
def log(reader: Reader) -> LogWriter:
    log = LogWriter(reader.shared / "store")
    for number in range(300):
        log.append(b"%d" % number)
    return log


def test_with_an_environment_that_all_machines_have(reader: Reader, log: LogWriter) -> None:
    shared, _, _ = blocks()
    assert reader.submit(shared) == log.offsets


def test_with_an_environment_that_travels(reader: Reader, log: LogWriter) -> None:
    _, pack, travels = blocks()
    try:
        run_fetching(["sh", "-c", reader.command(pack)], cwd=reader.clone, what="the packages to pack")
    except PeerMissingError as missing:
        pytest.skip(str(missing))
    assert reader.submit(travels) == log.offsets
    assert list(reader.work.glob("worker*/app-*/*/env/bin/python"))
    shutil.rmtree(reader.clone / "pack")  # 400 MB with what the workers unpacked
    for unpacked in reader.work.glob("worker*/app-*"):
        shutil.rmtree(unpacked)
