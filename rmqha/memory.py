"""Memory for bytes on their way between a socket and a file."""

import mmap

BytesLike = bytes | bytearray | memoryview


def new_buffer(size: int) -> memoryview:
    """``size`` zero bytes in a private mapping of their own, freed with the last view of them.

    PyPy's garbage collector may move a ``bytearray``: system calls and checksums work on a copy of it there, and moves
    within it go byte by byte (docs/decisions/0010-pypy.md). A mapping stays where it is. On CPython both are as fast.
    """
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
