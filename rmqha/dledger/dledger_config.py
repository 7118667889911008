"""DLedgerConfig: what of a member's configuration its store has to know."""

from dataclasses import dataclass
from os.path import normpath
from typing import Final

MULTI_PATH_SPLITTER: Final = ","


@dataclass(frozen=True, slots=True)
class DLedgerConfig:
    """Options under DLedger's names; times in seconds (spec: dledger §8)."""

    store_base_dir: str
    self_id: str
    data_store_path: str
    """Several directories with :data:`MULTI_PATH_SPLITTER` between them; none: ``data`` beside the index."""
    read_only_data_store_dirs: str
    mapped_file_size_for_entry_data: int
    mapped_file_size_for_entry_index: int
    flush_file_interval_s: float
    check_point_interval_s: float
    file_reserved_hours: int
    delete_when: tuple[int, ...]
    """Hours of the day."""
    disk_space_ratio_to_check_expired: float
    disk_space_ratio_to_force_clean: float
    enable_disk_force_clean: bool
    acks_flushed: bool
    """``dledgerAck=flushed``: an entry counts as stored once its data and its unit of the index are durable."""

    @property
    def default_path(self) -> str:
        """The member's directory."""
        return f"{self.store_base_dir}/dledger-{self.self_id}"

    @property
    def index_store_path(self) -> str:
        """Where the index files are."""
        return f"{self.default_path}/index"

    @property
    def data_store_paths(self) -> list[str]:
        """Where data files are made."""
        return _split(self.data_store_path) or [f"{self.default_path}/data"]

    @property
    def read_only_paths(self) -> list[str]:
        """Where data files are, and no new ones are made."""
        return _split(self.read_only_data_store_dirs)

    @property
    def disk_full_ratio(self) -> float:
        """Above it nothing is appended; a little more than where files are deleted by force."""
        return min(0.95, self.disk_space_ratio_to_force_clean + 0.05)

    @property
    def force_clean_ratio(self) -> float:
        """Above it the oldest files are deleted whatever their age."""
        return max(0.50, self.disk_space_ratio_to_force_clean)

    @property
    def file_reserved_time_s(self) -> float:
        """How long after its last write a file is kept."""
        return max(1, self.file_reserved_hours) * 3600.0


def _split(paths: str) -> list[str]:
    """Each directory once, however it is written."""
    named = [path.strip() for path in paths.split(MULTI_PATH_SPLITTER)]
    return list(dict.fromkeys(normpath(path) for path in named if path))
