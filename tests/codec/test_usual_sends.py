"""Sends that are looked up say the same as sends that are decoded, whatever came before and wherever it is cut."""

import pytest

from rmqha.codec.frame_decoder import Frame, FrameDecoder, StreamDecoder
from rmqha.codec.remoting import FRAME_SIZE_MAX, HEADER_SIZE_MAX, RemotingCommand, SerializeType
from rmqha.codec.send_headers import SendMessageRequestDecoder, SendMessageRequestHeader
from rmqha.codec.usual import sends
from rmqha.codec.usual.decoder import RequestDecoder
from rmqha.codec.usual.sends import Request, UsualSend, UsualSends
from rmqha.errors import RemoteProtocolError
from tests.any_sends import cuts, requests

SEEDS = range(24)


def request_decoder(usual: UsualSends) -> RequestDecoder:
    return RequestDecoder(usual, frame_size_max=FRAME_SIZE_MAX, header_size_max=HEADER_SIZE_MAX)


def decode_all(decoder: StreamDecoder[Frame], chunks: list[bytes]) -> tuple[list[Frame], str]:
    """Everything there is before the stream breaks, and why it breaks."""
    frames: list[Frame] = []
    try:
        for chunk in chunks:
            frames += decoder.receive_data(chunk)
    except RemoteProtocolError as error:
        return frames, str(error)
    return frames, ""


def said_by(request: UsualSend) -> SendMessageRequestHeader:
    """What was looked up."""
    properties = request.properties
    if request.shape is not None:
        properties = request.shape.before + request.key + request.shape.after
    return request.head.header._replace(born_timestamp_ms=request.born_timestamp_ms, properties=properties)


def check_same(request: Request, command: RemotingCommand) -> None:
    whole = request.command
    assert (whole.encode(), whole.size) == (command.encode(), command.size)
    assert (request.code, request.opaque, request.flag) == (command.code, command.opaque, command.flag)
    assert request.serialize == command.serialize
    if isinstance(request, UsualSend):
        assert said_by(request) == SendMessageRequestDecoder().decode(command)
        assert request.body == command.body


@pytest.mark.parametrize("seed", SEEDS)
def test_every_frame_means_the_same(seed: int) -> None:
    frames = requests(seed, 400)
    usual, taken_bytes, all_bytes = UsualSends(), 0, 0
    while frames:  # over a new connection where the one before broke
        chunks = list(cuts(seed, b"".join(frames), size_max=3000))
        expected, broken = decode_all(FrameDecoder(), chunks)
        found, also_broken = decode_all(request_decoder(usual), chunks)
        assert also_broken == broken
        assert len(found) == len(expected)
        for request, command in zip(found, expected, strict=True):
            check_same(request, command)
            taken_bytes += command.size if isinstance(request, UsualSend) else 0
            all_bytes += command.size
        frames = frames[len(expected) + 1 :] if broken else []


def test_most_bytes_are_looked_up() -> None:
    taken = total = 0
    for seed in SEEDS:
        usual = UsualSends()
        for request in decode_all(request_decoder(usual), requests(seed, 400, odd=0.02))[0]:
            taken += request.command.size if isinstance(request, UsualSend) else 0
            total += request.command.size
    assert taken > total / 2


BORN, KEY = "1700000000000", "0A" * 16
FIELDS = (
    f'"a":"g","b":"t","c":"TBW102","d":"4","e":"0","f":"0","g":"{BORN}","h":"0",'
    f'"i":"UNIQ_KEY\\u0001{KEY}\\u0002TAGS\\u0001x","j":"0"'
)


def json_frame(fields: str, *, opaque: str = "100000001", more: str = "") -> bytes:
    header = f'{{"code":310,"extFields":{{{fields}}},"flag":0,"language":"JAVA","opaque":{opaque}{more}}}'.encode()
    return (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header


def binary_frame(fields: dict[str, str]) -> bytes:
    return RemotingCommand(310, 7, ext_fields=fields, serialize=SerializeType.ROCKETMQ).encode()


def is_looked_up(frame: bytes, *, after: bytes) -> bool:
    """Whether it is, when the one before it came several times; and it has to mean what it means otherwise."""
    frames = [after, after, after, frame]
    expected, broken = decode_all(FrameDecoder(), frames)
    found, also_broken = decode_all(request_decoder(UsualSends()), frames)
    assert also_broken == broken
    assert len(found) == len(expected)
    for request, command in zip(found, expected, strict=True):
        check_same(request, command)
    return len(found) == len(frames) and isinstance(found[-1], UsualSend)


def test_what_changes_from_message_to_message_may_change() -> None:
    usual = json_frame(FIELDS)
    changed = json_frame(FIELDS.replace(KEY, "1B" * 16).replace(BORN, "1700000000999"), opaque="999999999")
    assert is_looked_up(changed, after=usual)
    assert is_looked_up(json_frame(FIELDS.replace("TAGS", "KEYS")), after=usual)


@pytest.mark.parametrize(
    "frame",
    [
        json_frame(FIELDS, opaque="012345678"),
        json_frame(FIELDS, opaque="-12345678"),
        json_frame(FIELDS, opaque="1234567.8"),
        json_frame(FIELDS, opaque="12345678 "),
        json_frame(FIELDS.replace(BORN, "0700000000000")),
        json_frame(FIELDS.replace(BORN, "-170000000000")),
        json_frame(FIELDS.replace(BORN, "1_00000000000")),
        json_frame(FIELDS.replace(KEY, KEY[:-1] + "\n")),
        json_frame(FIELDS.replace(KEY, KEY[:-1] + '"')),
        json_frame(FIELDS.replace(KEY, KEY[:-6] + "\\ud800")),
        json_frame(FIELDS.replace(KEY, KEY[:-6] + "\\u00e4")),
        json_frame(FIELDS.replace(KEY, KEY[:-2] + "\\a")),
        json_frame(FIELDS.replace(KEY, KEY[:-2] + "\xe4")),
        json_frame(FIELDS.replace('"b":"t"', '"b":"u"')),
    ],
)
def test_what_does_not_fit_goes_the_general_way(frame: bytes) -> None:
    assert not is_looked_up(frame, after=json_frame(FIELDS))


@pytest.mark.parametrize("escape", ["\\\\", "\\/", '\\"', "\\n", "\\u0003", "\\u0000", "\\u0001", "\\u0002", "\\u0041"])
def test_properties_may_be_written_with_any_escape(escape: str) -> None:
    assert is_looked_up(json_frame(FIELDS.replace(KEY, KEY[: -len(escape)] + escape)), after=json_frame(FIELDS))
    behind = json_frame(FIELDS.replace("x", "x" * len(escape)))
    assert is_looked_up(json_frame(FIELDS.replace("TAGS\\u0001x", "TAGS\\u0001" + escape)), after=behind)


def test_a_backslash_that_is_escaped_escapes_nothing() -> None:
    assert is_looked_up(json_frame(FIELDS.replace(KEY, KEY[:-1] + "\\")), after=json_frame(FIELDS))


@pytest.mark.parametrize("tail", ["\\", "\\u", "\\u000"])
def test_an_escape_that_the_properties_do_not_end(tail: str) -> None:
    behind = json_frame(FIELDS.replace("x", "x" * len(tail)))
    assert not is_looked_up(json_frame(FIELDS.replace("x", tail)), after=behind)


def test_ten_digits_may_be_too_many_for_an_opaque() -> None:
    usual = json_frame(FIELDS, opaque="1000000000")
    assert is_looked_up(json_frame(FIELDS, opaque="2147483647"), after=usual)
    assert not is_looked_up(json_frame(FIELDS, opaque="2147483648"), after=usual)


@pytest.mark.parametrize(
    ("fields", "more"),
    [
        (FIELDS.replace(f'"{BORN}"', BORN), ""),
        (FIELDS, ',"extFields":{"b":"t"}'),
        (FIELDS + ',"\\u0069":"TAGS\\u0001other"', ""),
        (FIELDS + ',"\\u0067":"5"', ""),
        (FIELDS, ',"\\u006fpaque":5'),
        (FIELDS, ',"opaque":5'),
        (FIELDS, ',"more":{"g":"1700000000001"}'),
        (FIELDS.replace('"g"', '"z"'), f',"more":{{"g":"{BORN}"}}'),
        (FIELDS, ',"flag":2'),
        (FIELDS, ',"code":320'),
        (FIELDS + ',"m":"true"', ""),
    ],
)
def test_a_header_that_says_something_twice_or_elsewhere(fields: str, more: str) -> None:
    for born in ("1700000000999", "0700000000999"):
        is_looked_up(json_frame(fields.replace(BORN, born), more=more), after=json_frame(fields, more=more))
        changed = json_frame(fields.replace(KEY, "1B" * 16), opaque="123456789", more=more)
        is_looked_up(changed, after=json_frame(fields, more=more))


@pytest.mark.parametrize(
    ("fields", "more"),
    [
        (FIELDS.replace("UNIQ_KEY\\u0001", "") + ',"\\u0069":"' + "K" * (len(KEY) + 12) + '"', ""),
        (FIELDS.replace(f"UNIQ_KEY\\u0001{KEY}\\u0002TAGS\\u0001x", "abcd") + ',"\\u0069":"KKKK"', ""),
        (FIELDS + ',"\\u0067":"2211111111111"', ""),
        (FIELDS + ',"g"  :"2211111111111"', ""),
        (FIELDS, ',"\\u006fpaque":211111112'),
    ],
)
def test_what_is_said_elsewhere_may_be_just_what_the_student_expects(fields: str, more: str) -> None:
    frame = json_frame(fields, more=more)
    is_looked_up(frame, after=frame)


def test_binary_headers_with_pairs_that_stand_twice() -> None:
    fields = {"a": "g", "b": "t", "c": "d", "d": "4", "e": "0", "f": "0", "g": BORN, "h": "0"}
    usual = binary_frame(fields | {"i": f"UNIQ_KEY\x01{KEY}", "j": "0"})
    assert is_looked_up(usual, after=usual)
    hidden = binary_frame(fields | {"i": f"UNIQ_KEY\x01{KEY}\x00\x01j\x00\x00\x00\x015"})
    is_looked_up(hidden, after=hidden)
    said_in_another = binary_frame(fields | {"n": f"\x00\x01i\x00\x00\x00\x20{KEY}"})
    is_looked_up(said_in_another, after=said_in_another)


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """When there is no room others are not learned, and after a while all is forgotten."""
    monkeypatch.setattr(sends, "KNOWN_MAX", 500)
    monkeypatch.setattr(sends, "_FORGET_AFTER", 2_000)
    usual, known = UsualSends(), list[int]()
    decoder = request_decoder(usual)
    for number in range(5_000):
        decoder.receive_data(json_frame(FIELDS.replace('"b":"t"', f'"b":"{number:05d}"')))
        known.append(usual.known)
    assert max(known) <= 502
    assert min(known[1_000:]) < 3


def test_properties_that_never_come_again_are_not_kept() -> None:
    usual = UsualSends()
    decoder = request_decoder(usual)
    for number in range(5_000):
        decoder.receive_data(json_frame(FIELDS.replace("TAGS", f"TAG{number:06d}")))
    assert usual.taken == 4_999
    assert usual.known == 2


def taken_of(decoder: RequestDecoder, usual: UsualSends, frame: bytes, *, times: int) -> int:
    before = usual.taken
    for _ in range(times):
        decoder.receive_data(frame)
    return usual.taken - before


def test_a_few_layouts_alike_do_not_keep_all_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sends, "_FORGET_AFTER", 2_000)
    usual, honest = UsualSends(), json_frame(FIELDS.replace('"a":"g"', '"a":"group123"'))
    decoder = request_decoder(usual)
    for size in range(4):  # as long as the honest one, with all that changes elsewhere
        odd = FIELDS.replace('"a":"g"', f'"a":"{"g" * (1 + size)}"').replace('"j":"0"', f'"j":"{"0" * (8 - size)}"')
        assert len(json_frame(odd)) == len(honest)
        assert taken_of(decoder, usual, json_frame(odd), times=2) == 1
    assert taken_of(decoder, usual, honest, times=1_000) == 0
    taken_of(decoder, usual, honest, times=1_100)
    assert taken_of(decoder, usual, honest, times=100) == 100


def test_what_is_forgotten_is_not_held_by_sends_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sends, "KNOWN_MAX", 2)
    monkeypatch.setattr(sends, "_FORGET_AFTER", 10)
    decoder = request_decoder(UsualSends())
    _, waiting = decode_all(decoder, [json_frame(FIELDS)] * 2)[0]
    assert isinstance(waiting, UsualSend)
    assert waiting.layout.heads
    decode_all(decoder, [json_frame(FIELDS.replace('"b":"t"', '"b":"u"'))] * 20)
    assert not waiting.layout.heads
    check_same(waiting, decode_all(FrameDecoder(), [json_frame(FIELDS)] * 2)[0][1])


def test_what_is_known_is_not_counted_again() -> None:
    """Though something in the properties, or in the place of the key, has each of them decoded."""
    usual = UsualSends()
    decoder = request_decoder(usual)
    known = list[int]()
    for times in (4, 100):
        for text in (KEY, KEY[:-6] + "\\u00fc", KEY[:-1] + "-"):
            taken_of(decoder, usual, json_frame(FIELDS.replace(KEY, text)), times=times)
        known.append(usual.known)
    assert known[0] == known[1]


def test_studying_counts_as_decoding() -> None:
    """So that no more of the event loop is held at once."""
    frames = [json_frame(FIELDS.replace('"a":"g"', f'"a":"{"g" * 600}{number:03d}"')) for number in range(200)]
    decoder = RequestDecoder(
        UsualSends(), frame_size_max=FRAME_SIZE_MAX, header_size_max=HEADER_SIZE_MAX, commands_max=256
    )
    at_once = len(decoder.receive_data(b"".join(frames)))
    assert at_once * 4 * len(frames[0]) < 64 * 1024 + 4 * len(frames[0])
    while decoder.more:
        at_once += len(decoder.decode_more())
    assert at_once == len(frames)
