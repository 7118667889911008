"""A store in an object store is read, and replayed into it, without any Hadoop: through an S3 server on loopback."""

import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from tests import stores

pytest.importorskip("pyarrow", reason="pyarrow is in the extra [spark]")
from rmqha.spark import ReadOptions, iter_batches
from rmqha.spark.replay import ReplayOptions, replay
from rmqha.spark.segments import open_filesystem
from tests.spark.in_process import in_process

server = pytest.importorskip("moto.server", reason="moto is in the extra [dev]")
pytestmark = pytest.mark.filterwarnings("default")

ACCESS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_EC2_METADATA_DISABLED": "true"}


@pytest.fixture
def bucket() -> Iterator[str]:
    """A URI pattern for paths in an empty bucket."""
    with patch.dict(os.environ, ACCESS):
        s3 = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        s3.start()
        try:
            host, port = s3.get_host_and_port()
            query = f"endpoint_override={host}:{port}&scheme=http&region=us-east-1&allow_bucket_creation=true"
            filesystem, _ = open_filesystem(f"s3://bucket?{query}")
            filesystem.create_dir("bucket")
            yield f"s3://bucket/%s?{query}"
        finally:
            s3.stop()


def upload(root: Path, uri: str) -> None:
    filesystem, path = open_filesystem(uri)
    for file in (root / "commitlog").iterdir():
        with filesystem.open_output_stream(f"{path}/commitlog/{file.name}") as stream:
            stream.write(file.read_bytes())


def test_a_store_in_s3_is_read_and_replayed(bucket: str, tmp_path: Path) -> None:
    """The same messages as from disk; the second run finds nothing new; the output is read back from S3."""
    store, out = bucket % "store", bucket % "lake"
    upload(stores.unpack("basic", tmp_path), store)
    read = ReadOptions(include_system_topics=True)
    offsets = [offset for batch in iter_batches(store, read) for offset in batch.column("physicalOffset").to_pylist()]
    assert offsets == [message["physicalOffset"] for message in stores.expected_messages("basic")]
    options = ReplayOptions(store, out, read)
    report = replay(options, start=in_process)
    assert report.messages == len(offsets)
    assert replay(options, start=in_process).manifest is None
    filesystem, path = open_filesystem(out)
    for file in report.files:
        assert filesystem.get_file_info(f"{path}/{file.path}").size == file.bytes
