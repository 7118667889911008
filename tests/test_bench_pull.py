"""The benchmark's consumers write pulls that a broker reads, and find what is delivered in any answer."""

import socket

from rmqha.codec.headers import PullMessageRequestHeader, PullMessageResponseHeader, decode_header, encode_header
from rmqha.codec.remoting import FLAG_RESPONSE, RemotingCommand, decode_frames
from scripts.bench_pull import Flow, Group, split_answers


def answer(queue_id: int, code: int, next_offset: int) -> bytes:
    fields = encode_header(PullMessageResponseHeader(0, next_offset, 0, next_offset))
    body = b'"code":7,"opaque":9' * 20
    return RemotingCommand(code, queue_id, FLAG_RESPONSE, ext_fields=fields, body=body).encode()


def test_answers_may_be_cut_anywhere() -> None:
    data, headers, rest = b"".join(answer(queue_id, 0, 5) for queue_id in range(4)), list[bytes](), b""
    for at in range(0, len(data), 7):
        some, rest = split_answers(rest + data[at : at + 7])
        headers += some
    assert (len(headers), rest) == (4, b"")
    assert all(header.startswith(b"{") and header.endswith(b"}") for header in headers)


def test_a_group_pulls_on_from_what_it_was_delivered() -> None:
    flow = Flow([10, 20, 30, 40], [[0.0] * 5 for _ in range(4)], [])
    with socket.create_server(("127.0.0.1", 0)) as server:
        group = Group(server.getsockname()[1], b"g", flow)
        broker, _ = server.accept()
        with broker, group.sock:
            first = pulls(broker, 4)
            assert [(pull.consumer_group, pull.queue_id, pull.queue_offset) for pull in first] == [
                ("g", queue_id, flow.begins[queue_id]) for queue_id in range(4)
            ]
            broker.sendall(answer(2, 0, 33) + answer(1, 19, 20))
            group.receive()
            assert [(pull.queue_id, pull.queue_offset) for pull in pulls(broker, 2)] == [(2, 33), (1, 20)]
            assert (group.delivered, len(flow.latencies_s)) == (3, 3)


def pulls(broker: socket.socket, count: int) -> list[PullMessageRequestHeader]:
    data = b""
    while True:
        data += broker.recv(65_536)
        frames, _ = decode_frames(data, frame_size_max=1 << 20, header_size_max=1 << 16)
        if len(frames) == count:
            return [decode_header(PullMessageRequestHeader, frame) for frame in frames]
