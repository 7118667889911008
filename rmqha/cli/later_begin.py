"""What a slave says that its log lacks at its begin. Pure: no network, no clock."""

from typing import Any

from rmqha.cli.span import span


def begins_later(facts: dict[str, Any]) -> str:
    """What a slave's log lacks at its begin, in a sentence; empty if it has all that its master's has."""
    if not (later := facts.get("begins_later")):
        return ""
    lacks = f"its log begins {later['bytes']:,} bytes later than its master's, and what lacks has not expired"
    return (
        f"{lacks} ({span(later['expires_in_s'])} left): as a master it would pass over what groups have not had of it"
    )
