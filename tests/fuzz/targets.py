"""Every decoder that sees bytes of strangers or of a damaged disk, as a function of bytes that raises on a finding.

Four oracles: only an error of ours may come out; what was taken does not depend on how it was chopped; what decodes
encodes to itself again; and no more memory is used than the bytes justify (checked by the caller, see
:data:`Target.memory_bytes_max`). Hypothesis and atheris drive the same functions.
"""

import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupTable
from rmqha.codec import headers, java_json, namesrv_headers
from rmqha.codec.batch import BatchEntry, encode_batch
from rmqha.codec.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from rmqha.codec.compression import inflate
from rmqha.codec.consume_queue import decode_units, encode_units
from rmqha.codec.frame_decoder import FrameDecoder
from rmqha.codec.heartbeat import decode_checked_subscription, decode_heartbeat, encode_heartbeat
from rmqha.codec.host import parse_host
from rmqha.codec.lock_batch import decode_lock_batch
from rmqha.codec.message_id import decode_message_id, encode_message_id
from rmqha.codec.properties import find_property, format_properties, parse_properties
from rmqha.codec.record.dispatch import read_dispatch
from rmqha.codec.record.encoder import prepare
from rmqha.codec.record.layout import BLANK_MAGIC, BLANK_SIZE_MIN, encode_blank
from rmqha.codec.record.message import decode_scanned
from rmqha.codec.record.resync import find_record
from rmqha.codec.record.scan import Stop, scan_records
from rmqha.codec.remoting import RemotingCommand, decode_frames
from rmqha.codec.route import decode_route, encode_route
from rmqha.codec.send_answers import decode_send_response
from rmqha.codec.send_headers import SendMessageRequestDecoder
from rmqha.codec.strangers import describe_on_ha_port, describe_on_remoting_port
from rmqha.codec.transfer import (
    FRAME_HEADER_SIZE,
    ReportDecoder,
    decode_frame_header,
    encode_frame_header,
    encode_report,
)
from rmqha.errors import CorruptLogError, LocalProtocolError, ProtocolError, RemoteProtocolError
from rmqha.replication.master_session import LogRange, MasterSession, RefusedSlaveError
from rmqha.replication.overlap import StreamStart
from rmqha.replication.slave_session import AppendChunk, SlaveSession
from rmqha.store.log_recovery import DurableKnowledge, recover_commit_log
from rmqha.store.mapped_file_queue import MappedFileQueue
from rmqha.store.os_disk import OsDisk
from tests.batches import decode_batch
from tests.settings import master_settings

FILE_SIZE = 1024
INFLATED_SIZE_MAX = 64 * 1024
FRAME_SIZE_MAX = 4096
GOLDEN = Path(__file__).parent.parent / "golden"
BLANK_BYTES = BLANK_MAGIC.to_bytes(4, "big", signed=True)
HOST = parse_host("127.0.0.1:10911")
HEADERS = [
    kind
    for name, kind in (vars(headers) | vars(namesrv_headers)).items()
    if name.endswith("Header") and isinstance(kind, type)
]


@dataclass(frozen=True)
class Target:
    """``run`` raises on a finding; ``seeds`` are good inputs to start from."""

    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    memory_bytes_max: int = 2 << 20


def pieces(data: bytes, step: int) -> list[bytes]:
    return [data[at : at + step] for at in range(0, len(data), step)]


def run_reports(data: bytes) -> None:
    decoder = ReportDecoder()
    whole = decoder.receive_data(data)
    assert b"".join(map(encode_report, whole)) == data[: len(whole) * 8]
    for step in (1, 3, 8, 13):
        chopped = ReportDecoder()
        assert [report for piece in pieces(data, step) for report in chopped.receive_data(piece)] == whole
        assert chopped.unfinished_size == decoder.unfinished_size == len(data) % 8
    who = describe_on_ha_port(data)
    begun = [int.from_bytes(data[len(whole) * 8 :].ljust(8, b"\0"))] if len(data) % 8 else []
    assert who is None or not is_possible(whole + begun), "a slave was taken for a stranger"
    describe_on_remoting_port(data)


def is_possible(reports: list[int]) -> bool:
    """Whether these may be a slave's: they never fall, and no log is as long as 2**48."""
    return reports == sorted(reports) and all(0 <= offset < 1 << 48 for offset in reports)


def run_master_session(data: bytes) -> None:
    """Whatever is reported: nothing counts that was not sent, nothing falls, nothing lies outside of the log."""
    log = LogRange(1000, 5000)
    session = MasterSession(master_settings(FILE_SIZE), now=0.0)
    for number, offset in enumerate(ReportDecoder().receive_data(data)):
        before = session.slave_ack_offset
        try:
            session.on_report(offset, log=log)
        except RefusedSlaveError:
            assert session.slave_ack_offset == before
            return
        assert max(before, 0) <= session.slave_ack_offset == offset <= session.next_transfer_from_where <= 5000
        session.next_action(now=float(number), min_offset=log.min_offset, limit=log.max_offset)


def run_frame_header(data: bytes) -> None:
    if len(data) < FRAME_HEADER_SIZE:
        return
    try:
        header = decode_frame_header(data)
    except RemoteProtocolError:
        return
    assert encode_frame_header(*header) == data[:FRAME_HEADER_SIZE]


def slave_takes(data: bytes, step: int) -> tuple[bytes, int, bool]:
    """What a slave session gives out of a stream: the bytes to append, where it stands, and whether it refused."""
    session = SlaveSession(StreamStart(0), file_size=FILE_SIZE, buffer_size=4 * FILE_SIZE)
    taken = bytearray()
    at = 0
    try:
        while at < len(data):
            space = session.space()
            size = min(len(space), len(data) - at, step)
            assert size > 0, "space() is never empty"
            space[:size] = data[at : at + size]
            at += size
            session.on_received(size)
            while (chunk := session.next_chunk()) is not None:
                assert isinstance(chunk, AppendChunk)
                assert chunk.phy_offset == session.verified_offset - len(chunk.data)
                taken += chunk.data
    except RemoteProtocolError:
        return bytes(taken), session.verified_offset, True
    return bytes(taken), session.verified_offset, False


def run_slave_session(data: bytes) -> None:
    """The same for every chopping, and never anything but whole, good records and blanks."""
    taken, verified, refused = slave_takes(data, 1 << 20)
    for step in (1, 7, 64):
        chopped, _, is_refused = slave_takes(data, step)
        assert is_refused == refused
        assert chopped == taken or (refused and chopped.startswith(taken))  # good records just before a bad header
    base = verified - len(taken)
    at = 0
    while at < len(taken):
        file_end = at + FILE_SIZE - (base + at) % FILE_SIZE
        scan = scan_records(taken, at, min(len(taken), file_end), phy_offset_base=base, file_end=file_end)
        assert scan.stop in {Stop.END, Stop.BLANK}, (scan, "a slave gave out what is no record")
        at = file_end if scan.stop is Stop.BLANK else scan.end


def decoded(data: bytes, step: int) -> tuple[list[bytes], int, bool]:
    decoder = FrameDecoder(frame_size_max=FRAME_SIZE_MAX, header_size_max=FRAME_SIZE_MAX // 2)
    commands: list[bytes] = []
    try:
        for piece in pieces(data, step):
            commands += [image(command) for command in decoder.receive_data(piece)]
            assert decoder.pending_size < max(FRAME_SIZE_MAX, 8), "a decoder held more than one frame"
    except RemoteProtocolError:
        return commands, 0, True
    return commands, decoder.pending_size, False


def image(command: RemotingCommand) -> bytes:
    """All that a command says, as text."""
    try:
        fields: object = command.ext_fields
    except RemoteProtocolError as error:
        fields = str(error)
    values = (command.code, command.opaque, command.flag, command.version, command.language, command.remark)
    return repr((values, fields, command.body, command.serialize, command.size)).encode()


def run_remoting(data: bytes) -> None:
    """Frames of both forms: every chopping is the same, and what was decoded survives another round."""
    whole, pending, refused = decoded(data, len(data) or 1)
    for step in (1, 5, 64):
        commands, rest, is_refused = decoded(data, step)
        assert is_refused == refused
        assert commands[: len(whole)] == whole  # one that comes before a refusal may be seen when chopped
        assert refused or (commands, rest) == (whole, pending)
    with suppress(ProtocolError):
        for command in decode_frames(data, frame_size_max=FRAME_SIZE_MAX)[0]:
            again = RemotingCommand(
                command.code,
                command.opaque,
                command.flag,
                command.version,
                command.language,
                command.remark,
                command.ext_fields,
                command.body,
                command.serialize,
            )
            (back,), _ = decode_frames(again.encode())
            assert (back.code, back.opaque, back.flag, back.remark) == (
                again.code,
                again.opaque,
                again.flag,
                again.remark,
            )
            assert (back.ext_fields, back.body) == (again.ext_fields, again.body)


def run_headers(data: bytes) -> None:
    """Every typed header from every frame; the fast decoder of sends agrees with itself when it knows the parts."""
    with suppress(RemoteProtocolError):
        commands, _ = decode_frames(data, frame_size_max=FRAME_SIZE_MAX)
        for command in commands:
            for kind in HEADERS:
                with suppress(RemoteProtocolError):
                    header: object = headers.decode_header(kind, command)
                    again = RemotingCommand(command.code, ext_fields=headers.encode_header(header))
                    assert headers.decode_header(kind, again) == header
            decoder = SendMessageRequestDecoder()
            results = []
            for _ in range(3):
                try:
                    results.append(repr(decoder.decode(command)))
                except RemoteProtocolError:
                    results.append("refused")
            assert len(set(results)) == 1, "what a decoder remembers changes what it reads"
            with suppress(RemoteProtocolError):
                decode_send_response(command)


def run_scan(data: bytes) -> None:
    """Records at an offset: whatever counts as good can be decoded, and encodes to the same bytes."""
    base = 4096
    scan = scan_records(data, 0, len(data), phy_offset_base=base)
    assert 0 <= scan.end <= len(data)
    at = 0
    while at < scan.end:
        message = decode_scanned(memoryview(data), at)
        assert message.physical_offset == base + at
        assert message.encode() == data[at : at + message.store_size]
        _ = (message.properties, message.tags_code, message.born_host, message.msg_id)
        at += message.store_size
    assert at == scan.end
    requests, end = read_dispatch(data, 0, len(data), phy_offset_base=base)
    assert end >= scan.end
    assert len(requests) >= scan.records
    find_record(data, 0, len(data), phy_offset_base=base)


def run_batch(data: bytes) -> None:
    with suppress(RemoteProtocolError):
        entries = decode_batch(data)
        assert decode_batch(encode_batch(entries)) == entries


def run_properties(data: bytes) -> None:
    properties = parse_properties(data)
    with suppress(LocalProtocolError):
        assert parse_properties(format_properties(properties)) == properties
    find_property(data, b"TAGS")


def run_java_json(data: bytes) -> None:
    with suppress(RemoteProtocolError):
        value = java_json.loads(data)
        if b"$ref" not in data:
            assert java_json.loads(java_json.dumps(value)) == value


def run_group_bodies(data: bytes) -> None:
    """Of 41, 42, 46, 200 and 201."""
    for decode in (decode_lock_batch, decode_checked_subscription, _decode_groups):
        with suppress(RemoteProtocolError):
            decode(data)


def _decode_groups(data: bytes) -> object:
    value = java_json.loads(data)
    return SubscriptionGroupTable.from_json(value) if isinstance(value, dict) else None


def run_heartbeat(data: bytes) -> None:
    with suppress(RemoteProtocolError):
        heartbeat = decode_heartbeat(data)
        assert decode_heartbeat(encode_heartbeat(heartbeat)).client_id == heartbeat.client_id


def run_route(data: bytes) -> None:
    with suppress(RemoteProtocolError):
        route = decode_route(data)
        for version in (0, 401, 413):
            assert decode_route(encode_route(route, version=version)) == route


def run_checkpoint(data: bytes) -> None:
    checkpoint = decode_checkpoint(data)
    assert checkpoint.min_timestamp_ms >= 0
    assert decode_checkpoint(encode_checkpoint(checkpoint)) == checkpoint


def run_message_id(data: bytes) -> None:
    text = str(data, "latin-1")
    with suppress(ProtocolError):  # a port may be negative there
        host, offset = decode_message_id(text)
        assert len(text) > 32 or encode_message_id(parse_host(host), offset) == text.upper()


def run_units(data: bytes) -> None:
    units = decode_units(data)
    assert encode_units(units) == data[: len(units) * 20]


def run_inflate(data: bytes) -> None:
    for sys_flag in (0x1, 0x101, 0x201, 0x301, 0x701):
        with suppress(ProtocolError):
            assert len(inflate(data, sys_flag, size_max=INFLATED_SIZE_MAX)) <= INFLATED_SIZE_MAX


def run_recovery(data: bytes) -> None:
    """Segments of anything: recovery ends or refuses; what it keeps it keeps unchanged; a second one agrees."""
    files = pieces(data, FILE_SIZE)[:4]
    known = DurableKnowledge(clean=bool(data[:1] and data[0] & 1), checkpoint=Checkpoint())
    with TemporaryDirectory(prefix="rmqha-fuzz-") as directory:
        for number, content in enumerate(files):
            Path(directory, f"{number * FILE_SIZE:020d}").write_bytes(content.ljust(FILE_SIZE, b"\0"))
        before = b"".join(content.ljust(FILE_SIZE, b"\0") for content in files)
        try:
            end = recover(directory, known)
        except CorruptLogError:
            assert contents(directory) == before, "recovery refused, and changed something"
            return
        after = contents(directory)
        assert after.startswith(before[:end]) or BLANK_BYTES in after[:end], "bytes of the log were changed"
        assert not any(after[end:]), "what was cut is still there"
        assert recover(directory, known) == end
        assert contents(directory) == after


def recover(directory: str, known: DurableKnowledge) -> int:
    queue = MappedFileQueue(OsDisk(), directory, file_size=FILE_SIZE)
    queue.load()
    try:
        return recover_commit_log(queue, known=known).end
    finally:
        queue.close()


def contents(directory: str) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(Path(directory).iterdir()))


def records(count: int, *, base: int = 0, file_size: int = 0) -> bytes:
    """Good records, with the blanks that keep them inside files of ``file_size``."""
    log = b""
    for number in range(count):
        prepared = prepare(
            "TopicTest",
            b"body %d" % number * 5,
            queue_id=number % 4,
            born_timestamp_ms=1_700_000_000_000,
            born_host_raw=HOST,
            store_host_raw=HOST,
            properties_raw=b"TAGS\x01a\x02KEYS\x01k%d" % number,
        )
        room = file_size - (base + len(log)) % file_size if file_size else prepared.size + BLANK_SIZE_MIN
        if prepared.size + BLANK_SIZE_MIN > room:
            log += encode_blank(room).ljust(room, b"\0")
        log += prepared.pack(queue_offset=number, physical_offset=base + len(log), store_timestamp_ms=1_000 + number)
    return log


def stream() -> bytes:
    """What a master sends of two files, in frames of up to 300 bytes, and a heartbeat."""
    log = records(12, file_size=FILE_SIZE)
    wire = b""
    for file_at in range(0, len(log), FILE_SIZE):
        for at in range(file_at, min(file_at + FILE_SIZE, len(log)), 300):
            body = log[at : min(at + 300, file_at + FILE_SIZE)]
            wire += encode_frame_header(at, len(body)) + body
    return wire + encode_frame_header(len(log), 0)


def golden(pattern: str, *, size_max: int = 4000) -> list[bytes]:
    return [path.read_bytes()[:size_max] for path in sorted(GOLDEN.glob(pattern))]


def recorded_bodies() -> list[bytes]:
    """The bodies of all recorded frames: heartbeats, routes, tables, batches."""
    bodies: dict[bytes, None] = {}
    for data in golden("remoting/*/conn-*/*.bin", size_max=1 << 20):
        with suppress(RemoteProtocolError):
            bodies |= dict.fromkeys(command.body for command in decode_frames(data)[0] if command.body)
    return [body for body in bodies if len(body) < 2000]


def remoting_seeds() -> list[bytes]:
    return golden("remoting/*/conn-*/*.bin", size_max=1500)


TARGETS = {
    "reports": Target(run_reports, lambda: golden("ha/*/conn-*/slave_to_master.bin")),
    "master-session": Target(run_master_session, lambda: [b"".join(map(encode_report, (0, 1024, 2048, 5000)))]),
    "frame-header": Target(run_frame_header, lambda: [encode_frame_header(1024, 100)]),
    "slave-session": Target(run_slave_session, lambda: [stream()]),
    "remoting": Target(run_remoting, remoting_seeds),
    "headers": Target(run_headers, remoting_seeds),
    "scan": Target(run_scan, lambda: [records(4, base=4096)]),
    "batch": Target(run_batch, lambda: [encode_batch([BatchEntry(0, b"a", b""), BatchEntry(1, b"b", b"K\x01v")])]),
    "properties": Target(run_properties, lambda: [b"TAGS\x01a\x02KEYS\x01b\x02"]),
    "java-json": Target(run_java_json, lambda: [*recorded_bodies(), b'{"a":{0:1},{"b":1}:[{"$ref":"$.a"}]}']),
    "group bodies": Target(run_group_bodies, recorded_bodies),
    "heartbeat": Target(run_heartbeat, recorded_bodies),
    "route": Target(run_route, recorded_bodies),
    "checkpoint": Target(run_checkpoint, lambda: [encode_checkpoint(Checkpoint(1, 2, 3, 4, 5))]),
    "message-id": Target(run_message_id, lambda: [encode_message_id(HOST, 4711).encode()]),
    "queue-units": Target(run_units, lambda: [encode_units([(0, 100, 5), (100, 200, -1)])]),
    "inflate": Target(run_inflate, lambda: [zlib.compress(bytes(1 << 22))]),
    "recovery": Target(run_recovery, lambda: [records(16, file_size=FILE_SIZE)]),
}
