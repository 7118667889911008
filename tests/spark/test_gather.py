"""Values cut out of a block, short and long ones."""

import random

import numpy as np
import pyarrow as pa
import pytest

from rmqha.spark import gather


@pytest.mark.parametrize("shortest", [0, 1, 12, 13, 1000])
def test_values_of_any_length_are_cut_out(shortest: int) -> None:
    """Above 12 bytes they go by way of views, which hold shorter values in another form."""
    chance = random.Random(shortest)
    block = chance.randbytes(64 << 10)
    begins, ends, at = list[int](), list[int](), 0
    while at + shortest + 40 < len(block):
        begins.append(at + chance.randint(0, 9))
        ends.append(begins[-1] + shortest + chance.randint(0, 30) * (len(begins) > 1))
        at = ends[-1]
    found = gather.binary(pa.py_buffer(block), np.array(begins), np.array(ends))
    found.validate(full=True)
    assert found.to_pylist() == [block[begin:end] for begin, end in zip(begins, ends, strict=True)]


def test_the_values_outlive_their_block() -> None:
    block = bytearray(b"x" * 200)
    found = gather.binary(pa.py_buffer(block), np.array([0, 100]), np.array([50, 150]))
    block[:] = b"y" * 200
    assert found.to_pylist() == [b"x" * 50, b"x" * 50]
