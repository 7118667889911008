"""Bodies of all kinds are decompressed, bombs and damaged ones are not."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.client.compression import ZLIB_SYS_FLAG, compress_body, decompress_body

lz4_frame = pytest.importorskip("lz4.frame", reason="lz4 is in the extra [compression]")
zstandard = pytest.importorskip("zstandard", reason="zstandard is in the extra [compression]")

PLAIN = b"RocketMQ " * 1000
FORMS = {
    0x001: zlib.compress(PLAIN),
    0x301: zlib.compress(PLAIN, 9),
    0x101: lz4_frame.compress(PLAIN),
    0x201: zstandard.compress(PLAIN),
}


@pytest.mark.parametrize("sys_flag", FORMS)
def test_every_form_is_read(sys_flag: int) -> None:
    assert decompress_body(FORMS[sys_flag], sys_flag, size_max=len(PLAIN)) == (PLAIN, "")
    assert decompress_body(FORMS[sys_flag], sys_flag | 0x10, size_max=1 << 20) == (PLAIN, "")


@pytest.mark.parametrize("sys_flag", FORMS)
def test_a_bomb_is_not_unfolded(sys_flag: int) -> None:
    body, problem = decompress_body(FORMS[sys_flag], sys_flag, size_max=len(PLAIN) - 1)
    assert body == FORMS[sys_flag]
    assert "more than 8999 bytes" in problem


@pytest.mark.parametrize("sys_flag", FORMS)
def test_a_cut_or_damaged_body_stays_as_it_is(sys_flag: int) -> None:
    for damaged in (FORMS[sys_flag][:-3], b"", b"nonsense", b"\0" * 50):
        body, problem = decompress_body(damaged, sys_flag, size_max=1 << 20)
        assert body == damaged
        assert "damaged" in problem


def test_an_unknown_type_and_a_plain_body() -> None:
    assert decompress_body(b"x", 0x701, size_max=9) == (b"x", "compression type 7 is unknown")
    assert decompress_body(b"x", 0x300, size_max=9) == (b"x", "")


@given(st.binary(max_size=300), st.sampled_from(list(FORMS)))
def test_hostile_bodies_raise_nothing(body: bytes, sys_flag: int) -> None:
    decompress_body(body, sys_flag, size_max=1000)
    decompress_body(FORMS[sys_flag][:20] + body, sys_flag, size_max=1000)


@given(st.binary(min_size=1))
def test_what_we_compress_we_read(body: bytes) -> None:
    assert decompress_body(compress_body(body), ZLIB_SYS_FLAG, size_max=len(body)) == (body, "")
