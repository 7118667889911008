"""How a command ends, for scripts and service managers."""

from typing import Final

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
"""A broker that ends so could not start: the reason is the last line on stderr."""
EXIT_USAGE: Final = 2
EXIT_CRITICAL: Final = 2
"""Of ``rmqha status --crit-lag``: what monitoring plugins call critical."""
EXIT_UNREACHABLE: Final = 3
EXIT_STORE_FAILED: Final = 4
"""A broker ran, but its disk failed, or its log could not be dispatched: from then on it took no sends (decision 3)."""
EXIT_REPLICATION_ENDED: Final = 5
"""A slave ran, and could not follow its master any more: the logs diverged, or its own cannot be read on."""
EXIT_INTERRUPTED: Final = 130
"""Of a broker: a second signal cut the drain short. Nothing acknowledged is lost; the next start recovers."""
