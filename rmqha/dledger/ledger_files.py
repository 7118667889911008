"""The two lists of files that a log consists of, as the configuration wants them."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet

from rmqha.dledger.dledger_config import DLedgerConfig
from rmqha.dledger.mmap_file_list import MmapFileList
from rmqha.dledger.multi_path_mmap_file_list import MultiPathMmapFileList
from rmqha.store.disk import Disk
from rmqha.store.open_files import OpenFiles


def make_data_file_list(
    config: DLedgerConfig, disk: Disk, *, open_files: OpenFiles, full_store_paths: Callable[[], AbstractSet[str]]
) -> MmapFileList:
    """The list of the data files, in one directory or in several."""
    size, size_key = config.mapped_file_size_for_entry_data, "mappedFileSizeForEntryData"
    if len(config.data_store_paths) == 1 and not config.read_only_paths:
        return MmapFileList(
            disk, config.data_store_paths[0], mapped_file_size=size, open_files=open_files, size_key=size_key
        )
    return MultiPathMmapFileList(
        disk,
        config.data_store_paths,
        read_only_paths=config.read_only_paths,
        full_store_paths=full_store_paths,
        mapped_file_size=size,
        open_files=open_files,
        size_key=size_key,
    )


def make_index_file_list(config: DLedgerConfig, disk: Disk, *, open_files: OpenFiles) -> MmapFileList:
    """The list of the index files: always in one directory."""
    return MmapFileList(
        disk,
        config.index_store_path,
        mapped_file_size=config.mapped_file_size_for_entry_index,
        open_files=open_files,
        size_key="mappedFileSizeForEntryIndex",
    )
