"""Options of a member's parts: DLedger's defaults, which stand in the table of keys, and what a test changes."""

from pathlib import Path
from typing import Any, Final, TypeVar

from rmqha.config.load_dledger import load_dledger_settings
from rmqha.config.same_settings import same_settings
from rmqha.dledger.dledger_config import DLedgerConfig
from rmqha.dledger.dledger_entry_pusher import PusherOptions
from rmqha.dledger.entry_dispatcher import PushOptions

_SETTINGS: Final = load_dledger_settings({})
_Options = TypeVar("_Options")


def default(kind: type[_Options], **changes: Any) -> _Options:
    """Options of ``kind``."""
    return same_settings(kind, _SETTINGS, **changes)


def store_config(base: Path | str, self_id: str = "n0", *, acks_flushed: bool = True, **changes: Any) -> DLedgerConfig:
    """Of the store in ``base/dledger-ID``."""
    others = {"store_base_dir": str(base), "self_id": self_id, "acks_flushed": acks_flushed}
    return default(DLedgerConfig, **others, **changes)


def pusher_options(*, acks_flushed: bool = True, **changes: Any) -> PusherOptions:
    """With DLedger's defaults for the pushes, too."""
    return default(PusherOptions, acks_flushed=acks_flushed, **{"push": default(PushOptions), **changes})
