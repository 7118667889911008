"""AppendHook: what changes an entry's bytes once its place is known (spec: dledger §2.4 step 7, §6.1).

DLedger's broker writes a message's physical offset so. The broker here knows the place before it appends
(:mod:`rmqha.dledger.ledger_puts`) and adds no hook: the list is there for programs that put something
else on this store, as on DLedger's.
"""

from collections.abc import Callable, Sequence

from rmqha.codec.dledger_entry import BODY_OFFSET, DLedgerEntry

AppendHook = Callable[[DLedgerEntry, memoryview, int], None]
"""Called with an entry, its bytes, and where its body begins in them: may change the bytes, not the entry."""


def hooked(hooks: Sequence[AppendHook], entry: DLedgerEntry, data: bytes) -> bytes:
    """Return an entry's bytes as the hooks leave them: these are stored, and sent to followers."""
    if not hooks:
        return data
    buffer = bytearray(data)
    for do_hook in hooks:
        do_hook(entry, memoryview(buffer), BODY_OFFSET)
    return bytes(buffer)
