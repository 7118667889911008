"""The recorded replication of two RocketMQ 4.9.8 brokers."""

import hashlib
import json
import tarfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from rmqha.codec.transfer import FRAME_HEADER_SIZE, decode_frame_header

GOLDEN = Path(__file__).parent.parent / "golden" / "ha"


class Step(NamedTuple):
    """At ``t`` seconds after the connection was made, ``data`` had gone one way."""

    t: float
    data: bytes


class Capture:
    """One scenario."""

    def __init__(self, name: str) -> None:
        self.directory = GOLDEN / name
        self.expected: dict[str, Any] = json.loads((self.directory / "expected.json").read_text())
        self.file_size: int = self.expected.get("fileSize", 65536)

    def connection(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = self.expected["connections"][number - 1]
        return found

    def sent(self, number: int, direction: str) -> bytes:
        return (self.directory / f"conn-{number}" / f"{direction}.bin").read_bytes()

    def steps(self, number: int, direction: str) -> list[Step]:
        data, steps, at = self.sent(number, direction), [], 0
        for line in (self.directory / f"conn-{number}" / "timeline.jsonl").read_text().splitlines():
            event = json.loads(line)
            if event["dir"] == direction and "bytes" in event:
                steps.append(Step(event["t"], data[at : at + event["bytes"]]))
                at += event["bytes"]
        assert at == len(data)
        return steps

    def ends(self, number: int) -> list[tuple[float, int]]:
        """When the recorded master began to send bytes up to which offset, so that they were in its log."""
        ends, header_at, received = [], 0, 0
        wire = self.sent(number, "master_to_slave")
        for step in self.steps(number, "master_to_slave"):
            received += len(step.data)
            while header_at + FRAME_HEADER_SIZE <= received:
                offset, size = decode_frame_header(wire, header_at)
                ends.append((step.t, offset + size))
                header_at += FRAME_HEADER_SIZE + size
        return ends

    def ended_at(self, number: int) -> float:
        return max(float(end["t"]) for end in self.connection(number)["ended"])

    def master_log(self) -> tuple[int, bytes]:
        """Where the master's log begins, and all its bytes."""
        with tarfile.open(self.directory / "master-commitlog.tar.gz") as tar:
            files = {
                int(Path(member.name).name): content.read()
                for member in tar.getmembers()
                if (content := tar.extractfile(member)) is not None
            }
        start = min(files)
        whole = b"".join(data for _, data in sorted(files.items()))
        return start, whole[: self.expected["masterMaxOffset"] - start]

    def file_hashes(self, side: str) -> dict[int, str]:
        return {int(file["name"]): file["sha256"] for file in self.expected[side]}


@cache
def capture(name: str) -> Capture:
    return Capture(name)


def sha256(data: bytes | bytearray) -> str:
    return hashlib.sha256(data).hexdigest()


def hashes_of(content: bytes | bytearray, *, start: int, file_size: int) -> dict[int, str]:
    """As the files on disk: each filled up with zeros."""
    return {
        start + at: sha256(content[at : at + file_size].ljust(file_size, b"\0"))
        for at in range(0, len(content), file_size)
    }
