"""In which order files go: whatever a crash leaves of a list is what an earlier list was, or nothing."""

from collections.abc import Callable

import pytest

from rmqha.dledger.mmap_file_list import MmapFileList
from rmqha.store.open_files import OpenFiles
from tests.sim.sim_disk import SimDisk, Step

SIZE = 256


@pytest.mark.parametrize(
    ("act", "gone"),
    [
        (lambda files: files.truncate_offset(SIZE + 10), [3, 2]),
        (lambda files: files.destroy(), [3, 2, 1, 0]),
        (lambda files: files.rebuild_with_pos(10 * SIZE), [3, 2, 1, 0]),
        (lambda files: files.reset_offset(2 * SIZE), [0, 1]),
    ],
    ids=["cut", "drop", "begin anew", "expire"],
)
def test_files_go_from_an_end_of_the_list(act: Callable[[MmapFileList], None], gone: list[int]) -> None:
    """A log that is cut, or begins anew, goes from its end: one without its beginning would pass for all there is."""
    disk = SimDisk(latency_s=(0, 0))
    files = MmapFileList(disk.mount(), "/store/data", mapped_file_size=SIZE, open_files=OpenFiles(), size_key="theSize")
    for _ in range(4):
        files.append(b"\x11" * SIZE, use_blank=False)
    steps = list[Step]()
    disk.trace = steps
    act(files)
    assert [int(path.rpartition("/")[2]) // SIZE for kind, path, _, _ in steps if kind == "unlink"] == gone
