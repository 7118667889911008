"""Which failures of the disk pass by themselves, so that what failed is worth another try.

    lacking   ENOSPC EDQUOT EMFILE ENFILE ENOMEM EAGAIN EINTR   space, descriptors, memory, a thread may come back
    missing   ENOENT EACCES                                     a file was taken away, perhaps for a moment

All others end what they hit: what a device could not write, or a file system refuses, a second try does not mend. Nor
does one mend fdatasync, whatever it says: the kernel has then forgotten what it did not write.
"""

import errno
from typing import Final

from rmqha.errors import StoreError, StoreReadError, StoreWriteError

_LACKING: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR}
)
_MISSING: Final = frozenset({errno.ENOENT, errno.EACCES})


def is_lack(error: StoreReadError | StoreWriteError) -> bool:
    """Whether all that failed is that something is not there at present, as for making a file of the log."""
    return error.errno in _LACKING and error.operation != "fdatasync"


def may_pass(error: StoreError) -> bool:
    """Whether what failed can be done again later, where nothing but derived files is at stake."""
    if isinstance(error, StoreWriteError):
        return is_lack(error) or (error.errno in _MISSING and error.operation != "fdatasync")
    return isinstance(error, StoreReadError)
