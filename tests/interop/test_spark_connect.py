"""Spark Connect: a client without Java replays, reads and sends through a server's session."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from tests.client.on_loopback import broker_on_loopback
from tests.e2e.processes import CHECKOUT
from tests.interop.fetched import LOCKS, PeerMissingError, fetched, run_fetching
from tests.spark.cluster import spark_home, start
from tests.spark.logs import LogWriter

pytest.importorskip("pyspark")
pytestmark = pytest.mark.timeout(900)

COUNT = 500
QUERIES = """
import sys
from pyspark.sql import SparkSession
from rmqha.spark.datasource import RmqhaDataSource
url, store, address = sys.argv[1:]
spark = SparkSession.builder.remote(url).getOrCreate()
spark.dataSource.register(RmqhaDataSource)
messages = spark.read.format("rmqha").option("layout", "kafka").load(store)
rows = messages.selectExpr("cast(value as string) as text", "cast(key as string) as key").collect()
print("READ", len(rows), len({row.text for row in rows}), {row.key for row in rows})
sink = messages.select("key", "value").write.format("rmqha").mode("append")
sink.option("addresses", address).option("topic", "copies").save()
assert SparkSession._instantiatedSession is None
"""


def _client_packages() -> Path:
    lock = LOCKS / "spark-connect.txt"

    def fetch(directory: Path) -> None:
        pip = (sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--only-binary=:all:", "--require-hashes")
        run_fetching([*pip, "--target", str(directory), "-r", str(lock)], cwd=directory, what="Spark Connect's client")

    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return fetched(f"spark-connect-4-python{python}", fetch)


@pytest.fixture(scope="module")
def client() -> dict[str, str]:
    """A client's environment: Spark Connect's packages, and no Java."""
    try:
        packages = _client_packages()
    except PeerMissingError as missing:
        pytest.skip(str(missing))
    return {"PYTHONPATH": f"{CHECKOUT}:{packages}", "PATH": "/nowhere", "JAVA_HOME": "/nowhere"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server's, on two cores of this machine; its Python is ours, without Spark Connect's packages."""
    submit = str(spark_home() / "bin" / "spark-submit")
    server = [submit, "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]"]
    conf = [
        "spark.connect.grpc.binding.address=127.0.0.1",
        "spark.connect.grpc.binding.port=0",
        "spark.ui.enabled=false",
    ]
    command = [*server, *(word for one in conf for word in ("--conf", one)), "spark-internal"]
    place = tmp_path_factory.mktemp("connect")
    process = start(command, place / "server.log", PYSPARK_PYTHON=sys.executable, PYTHONPATH=str(CHECKOUT))
    try:
        port = process.wait_for(r"Spark Connect server started at:? \S*?:(\d+)")
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.kill()


def _store(root: Path) -> LogWriter:
    log = LogWriter(root)
    for number in range(COUNT):
        log.append(b"%d" % number * 30, topic=b"t%d" % (number % 3))
    return log


def _run(client: dict[str, str], *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], env=client, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_a_replay_through_connect_writes_each_message_once(client: dict[str, str], url: str, tmp_path: Path) -> None:
    log, out = _store(tmp_path / "store"), tmp_path / "out"
    _run(client, "-m", "rmqha", "replay", log.root, "--out", out, "--master", url)
    rows = ds.dataset([str(path) for path in out.glob("topic=*/*.parquet")]).to_table().to_pylist()
    assert sorted(row["physicalOffset"] for row in rows) == log.offsets
    assert sorted(row["body"] for row in rows) == sorted(b"%d" % number * 30 for number in range(COUNT))
    assert "othing new" in _run(client, "-m", "rmqha", "replay", log.root, "--out", out, "--master", url)


def test_the_data_source_reads_and_sends_through_connect(client: dict[str, str], url: str, tmp_path: Path) -> None:
    log = _store(tmp_path / "store")
    with broker_on_loopback() as broker:
        told = _run(client, "-c", QUERIES, url, log.root, broker.address)
        assert f"READ {COUNT} {COUNT} {{'k1 k2'}}" in told
        copies = [message for queue in range(8) for message in broker.messages("copies", queue)]
    assert sorted(message.body for message in copies) == sorted(b"%d" % number * 30 for number in range(COUNT))
    assert {message.properties["KEYS"] for message in copies} == {"k1 k2"}
