"""What a producer compresses a consumer reads; what nobody can read stays as it is, with the reason."""

from hypothesis import given
from hypothesis import strategies as st

from rmqha.client.compression import ZLIB_SYS_FLAG, compress_body, decompress_body


@given(st.binary(min_size=1))
def test_what_we_compress_we_read(body: bytes) -> None:
    assert decompress_body(compress_body(body), ZLIB_SYS_FLAG, size_max=len(body)) == (body, "")


def test_what_cannot_be_read_stays_as_it_is() -> None:
    cut = compress_body(b"x" * 1000)[:-3]
    assert decompress_body(cut, ZLIB_SYS_FLAG, size_max=1000) == (
        cut,
        "the body is damaged: what is compressed ends too early",
    )
