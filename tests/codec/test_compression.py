"""The one inflater: every form, whole or not at all, and never more than the bound."""

import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.codec.compression import inflate
from rmqha.errors import LocalProtocolError, ProtocolError, RemoteProtocolError

lz4_frame = pytest.importorskip("lz4.frame", reason="lz4 is in the extra [compression]")
zstandard = pytest.importorskip("zstandard", reason="zstandard is in the extra [compression]")

PLAIN = b"some body, some body, some body" * 100
FORMS = {
    0x001: zlib.compress(PLAIN),
    0x301: zlib.compress(PLAIN, 9),
    0x101: lz4_frame.compress(PLAIN),
    0x201: zstandard.compress(PLAIN),
}
each_form = pytest.mark.parametrize("flag", FORMS, ids=hex)


@each_form
def test_every_form_is_read(flag: int) -> None:
    assert inflate(FORMS[flag], flag) == PLAIN
    assert inflate(FORMS[flag], flag | 0x30, size_max=len(PLAIN)) == PLAIN


def test_what_is_not_flagged_is_left_alone() -> None:
    assert inflate(b"x", 0x300) == b"x"


@each_form
def test_no_prefix_passes_for_the_whole(flag: int) -> None:
    for size in range(len(FORMS[flag])):
        with pytest.raises(RemoteProtocolError, match="damaged"):
            inflate(FORMS[flag][:size], flag)


@each_form
@pytest.mark.parametrize("more", [b"?", bytes(300), b"again"])
def test_nothing_may_stand_behind_it(flag: int, more: bytes) -> None:
    behind = FORMS[flag] if more == b"again" else more
    with pytest.raises(RemoteProtocolError, match=f"damaged: {len(behind)} bytes stand behind"):
        inflate(FORMS[flag] + behind, flag)


@each_form
def test_a_bomb_is_not_unfolded(flag: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"inflates to more than {len(PLAIN) - 1} bytes"):
        inflate(FORMS[flag], flag, size_max=len(PLAIN) - 1)


@each_form
def test_something_else_is_damaged(flag: int) -> None:
    for body in (b"", b"nonsense", bytes(50), b"?" + FORMS[flag]):
        with pytest.raises(RemoteProtocolError, match="damaged"):
            inflate(body, flag)


@pytest.mark.parametrize("kind", [4, 5, 6, 7])
def test_an_unknown_kind_is_named(kind: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"compression type {kind} is unknown"):
        inflate(b"x", 0x001 | kind << 8)


@pytest.mark.parametrize(
    ("flag", "module", "form"), [(0x101, "lz4.frame", "an LZ4 frame"), (0x201, "zstandard", "a Zstandard frame")]
)
def test_a_missing_library_is_named_with_where_to_get_it(
    flag: int, module: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(LocalProtocolError, match=rf"{form}, .* pip install 'rmqha\[compression\]'"):
        inflate(FORMS[flag], flag)


@given(body=st.binary(max_size=300), flag=st.sampled_from(list(FORMS)), begins_well=st.booleans())
def test_hostile_bodies_raise_nothing_else_and_stay_within_the_bound(body: bytes, flag: int, begins_well: bool) -> None:
    hostile = FORMS[flag][:20] + body if begins_well else body
    try:
        assert len(inflate(hostile, flag, size_max=1000)) <= 1000
    except ProtocolError:
        return
