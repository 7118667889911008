"""Whichever library computes it, the CRC is zlib's."""

import zlib

from hypothesis import given
from hypothesis import strategies as st

from rmqha.codec.crc import crc32


@given(st.binary(max_size=5000))
def test_it_is_the_crc_of_zlib(data: bytes) -> None:
    assert crc32(data) == crc32(memoryview(data)) == crc32(bytearray(data)) == zlib.crc32(data)


def test_the_vector_of_the_format() -> None:
    assert crc32(b"123456789") == 0xCBF43926
