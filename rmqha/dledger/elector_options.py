"""ElectorOptions: the timers of an election."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ElectorOptions:
    """In seconds (spec: dledger §4.2)."""

    heart_beat_time_interval_s: float
    max_heart_beat_leak: int
    min_vote_interval_s: float
    max_vote_interval_s: float
    min_take_leadership_vote_interval_s: float
    max_take_leadership_vote_interval_s: float

    @property
    def leak_s(self) -> float:
        """So long without its leader, or a quorum, and a member is a candidate."""
        return self.heart_beat_time_interval_s * self.max_heart_beat_leak
