"""Tuning: sizes and times that no operator decides. Tests that run many brokers at once make them small."""

from dataclasses import dataclass

from rmqha.replication.slave_session import BUFFER_SIZE
from rmqha.store.open_files import FILES_MAX


@dataclass(frozen=True, slots=True)
class Tuning:
    """What a broker sets aside for each connection, and when it begins to clean up."""

    overlap_size: int = 64 * 1024
    """A slave that reconnects has at least so many bytes of its log compared."""
    stream_buffer_size: int = BUFFER_SIZE
    """A slave receives into so many bytes, to begin with; they grow with the records."""
    receive_size: int = 256 * 1024
    """So many bytes of clients' requests are received at once."""
    clean_first_after_s: float = 60.0
    """The first cleaning comes so long after the start."""
    open_files_max: int = FILES_MAX
    """So many files of the store are open at one time, besides those that are written."""
