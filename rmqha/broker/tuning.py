"""Tuning: sizes and times that no operator decides. Tests that run many brokers at once make them small."""

from dataclasses import dataclass

from rmqha.ha.options import HAClientOptions
from rmqha.remoting.limits import RemotingLimits
from rmqha.store.cleaner import CleanOptions
from rmqha.store.open_files import FILES_MAX


@dataclass(frozen=True, slots=True)
class Tuning:
    """What a broker sets aside for each connection, and when it begins to clean up."""

    overlap_size: int = HAClientOptions().overlap_size
    """A slave that reconnects has at least so many bytes of its log compared."""
    stream_buffer_size: int = HAClientOptions().stream_buffer_size
    """A slave receives into so many bytes, to begin with; they grow with the records."""
    receive_size: int = RemotingLimits().receive_size
    """So many bytes of clients' requests are received at once."""
    clean_first_after_s: float = CleanOptions().first_after_s
    """The first cleaning comes so long after the start."""
    open_files_max: int = FILES_MAX
    """So many files of the store are open at one time, besides those that are written."""
