"""MultiPathMmapFileList: data files spread over several directories, perhaps of several disks."""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from rmqha.dledger.mmap_file_list import MmapFileList
from rmqha.store.disk import Disk
from rmqha.store.open_files import OpenFiles


class MultiPathMmapFileList(MmapFileList):
    """Files are found wherever they lie; new ones go to the directories in turn (spec: dledger §1.6).

    Not to read-only ones, and to full ones only if all are full, or no other can take a file at present.
    """

    def __init__(
        self,
        disk: Disk,
        store_paths: Sequence[str],
        *,
        read_only_paths: Sequence[str],
        full_store_paths: Callable[[], AbstractSet[str]],
        mapped_file_size: int,
        open_files: OpenFiles,
        size_key: str,
    ) -> None:
        """As :class:`MmapFileList`.

        Args:
            disk: where the directories are.
            store_paths: dataStorePath.
            read_only_paths: readOnlyDataStoreDirs, which may be among them.
            full_store_paths: the clean-space service's: where too little is left.
            mapped_file_size: of each file, in bytes.
            open_files: shared by all that compete for descriptors.
            size_key: the option of that size.
        """
        super().__init__(
            disk, store_paths[0], mapped_file_size=mapped_file_size, open_files=open_files, size_key=size_key
        )
        self._writable: Final = sorted(set(store_paths) - set(read_only_paths))
        self._directories: Final = sorted({*store_paths, *read_only_paths})
        self._full_store_paths = full_store_paths
        assert self._writable, "the configuration names one"

    @property
    def directories(self) -> list[str]:
        """Where files may lie."""
        return self._directories

    def _directories_for(self, offset: int) -> Sequence[str]:
        full = self._full_store_paths()
        candidates = [path for path in self._writable if path not in full] or self._writable
        first = offset // self.mapped_file_size % len(candidates)
        others = [path for path in self._writable if path not in candidates]
        return [*candidates[first:], *candidates[:first], *others]
