"""ElectorOptions: the timers of an election."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ElectorOptions:
    """In seconds (spec: dledger §4.2)."""

    heart_beat_time_interval_s: float = 2.0
    max_heart_beat_leak: int = 3
    min_vote_interval_s: float = 0.3
    max_vote_interval_s: float = 1.0
    min_take_leadership_vote_interval_s: float = 0.03
    max_take_leadership_vote_interval_s: float = 0.1

    @property
    def leak_s(self) -> float:
        """So long without its leader, or a quorum, and a member is a candidate."""
        return self.heart_beat_time_interval_s * self.max_heart_beat_leak
