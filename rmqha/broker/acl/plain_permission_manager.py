"""PlainPermissionManager: the accounts as they are at present, and whether one of them may do what is asked.

Files that change are read again once they have been still for a second; what cannot be used is told once, and what was
read before counts.

Source: rocketmq-all-4.9.8 PlainPermissionManager.java, AclFileWatchService.java.
"""

from collections.abc import Callable, Mapping
from typing import Final

import structlog
import trio

from rmqha.broker.acl.asker import Asker
from rmqha.broker.acl.needed_permissions import Need
from rmqha.broker.acl.plain_access_resource import PlainAccessResource
from rmqha.broker.acl.plain_acl import PlainAcl, acl_files, read_plain_acl
from rmqha.broker.acl.plain_acl_edit import Change
from rmqha.broker.acl.refused_tables import RefusedTables
from rmqha.broker.acl.remote_address_strategy import parts_of
from rmqha.codec.acl import ACCESS_KEY, is_signed
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import ConfigError, RemoteProtocolError
from rmqha.threads import needing_a_thread

logger = structlog.get_logger()

_LOOKS_AGAIN_S: Final = 1.0
_SHOWN_SIZE_MAX: Final = 100
_PROBLEMS_TOLD: Final = 5
_REASON_SIZE_MAX: Final = 500

_Fingerprint = tuple[tuple[str, int, int, int, int], ...]


class AclError(RemoteProtocolError):
    """The request is not for its sender. RocketMQ's clients know it by these words, with code 1, SYSTEM_ERROR."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"org.apache.rocketmq.acl.common.AclException: {reason}")


class PlainPermissionManager:
    """Reads the files below ``home`` now, and again when they change.

    Attributes:
        on_read: called when accounts may have other permissions than before.
        refused_tables: which slaves are not let in with their questions.
    """

    def __init__(self, home: str) -> None:
        """Raises ConfigError: see :func:`~rmqha.broker.acl.plain_acl.read_plain_acl`."""
        self._home: Final = home
        self._seen = self._read_at = self._counts = _fingerprint_of(home)
        self._acl: PlainAcl = read_plain_acl(home)
        self._told = ""
        """Why files could not be read again, the last time."""
        self.on_read: Callable[[], None] = lambda: None
        self.refused_tables: Final = RefusedTables()
        self._looking: Final = trio.Lock()
        _tell(self._acl)

    def is_white(self, host: str) -> bool:
        """Whether all requests from there are taken."""
        return self._acl.is_white(parts_of(host))

    def is_account(self, access_key: str) -> bool:
        """Whether there is an account with this key."""
        return access_key in self._acl.accounts

    def why_not(self, asker: Asker, needs: list[Need]) -> str:
        """Why somebody who asked earlier may not do this, as the accounts are now; empty if it is allowed."""
        if self.is_white(asker.host):
            return ""
        account = self._acl.accounts.get(asker.access_key)
        if account is None:
            return f"No acl config for {asker.access_key}"
        return "" if account.white_remote_address.match(parts_of(asker.host)) else account.lacks(needs)

    def authenticate(self, request: RemotingCommand, host: str) -> PlainAccessResource | None:
        """Whose request it is; None if nothing has to be allowed to an account that is asked for from there.

        Raises:
            AclError: it is nobody's.
        """
        access_key = request.ext_fields.get(ACCESS_KEY)
        if access_key is None:
            raise AclError("No accessKey is configured")
        account = self._acl.accounts.get(access_key)
        if account is None:
            raise AclError(f"No acl config for {access_key[:_SHOWN_SIZE_MAX]}")
        if account.white_remote_address.match(parts_of(host)):
            return None
        if not is_signed(request.ext_fields, request.body, secret_key=account.secret_key):
            raise AclError(f"Check signature failed for accessKey={access_key}")
        return account

    @staticmethod
    def check_perm(account: PlainAccessResource, code: int, needs: list[Need]) -> None:
        """Raises AclError if the account may not do what needs this."""
        if reason := account.why_not(code, needs):
            raise AclError(reason)

    def check_administrator(self, asker: Asker, code: int) -> None:
        """Who may change accounts: an address of the account's own is not enough, as it may grant itself everything.

        Raises:
            AclError: it is no administrator, and does not come from an address from where all is taken.
        """
        if self.is_white(asker.host):
            return
        account = self._acl.accounts.get(asker.access_key)
        if reason := f"No acl config for {asker.access_key}" if account is None else account.why_not(code, []):
            raise AclError(reason)

    async def run(self) -> None:
        """Read files that change, until cancelled."""
        while True:
            await trio.sleep(_LOOKS_AGAIN_S)
            try:
                async with self._looking:
                    with needing_a_thread():
                        has_changed = await trio.to_thread.run_sync(self.look_again)
            except OSError as error:  # the next look may get one
                self._tell_not_read(ConfigError(f"account files cannot be looked at: {error}"))
                continue
            if has_changed:
                self.on_read()

    @property
    def not_read(self) -> str:
        """Why the files that are there now do not count; empty: they do."""
        return "; ".join(self._told.splitlines())[:_REASON_SIZE_MAX]

    @property
    def versions(self) -> Mapping[str, Mapping[str, int]]:
        """See :attr:`PlainAcl.versions`."""
        return self._acl.versions

    async def change(self, change: Change, *, now_ms: int) -> None:
        """Change a file; when this returns the change is durable, and counts. One at a time.

        The next look reads it as any other change, and tells what is to be noted.

        Raises:
            ConfigError: it cannot be made, or nobody knows whether it is durable.
        """
        async with self._looking:
            try:
                with needing_a_thread():
                    self._acl = await trio.to_thread.run_sync(change, self._home, now_ms)
            except OSError as error:
                raise ConfigError(f"account files cannot be changed: {error}") from None
        self.on_read()

    def look_again(self) -> bool:
        """Read the files if they have changed, and have not since the last look: who is writing one gets done.

        Returns:
            Whether the accounts are others now.
        """
        try:
            found, before = _fingerprint_of(self._home), self._seen
            self._seen = found
            if found == self._counts:  # what was read is there again
                self._told = ""
            if found != before or found == self._read_at:
                return False
            self._read_at = found
            self._acl = read_plain_acl(self._home)
        except ConfigError as error:
            self._tell_not_read(error)
            return False
        self._told, self._counts = "", found
        _tell(self._acl)
        return True

    def _tell_not_read(self, error: ConfigError) -> None:
        """Once, however often it is met; the accounts stay what they are."""
        if str(error) != self._told:
            reason = "; ".join(error.problems[:_PROBLEMS_TOLD])
            more = len(error.problems) - _PROBLEMS_TOLD
            logger.warning(
                "acl.not_read_again",
                reason=f"{reason}; and {more} more ('rmqha config check' tells all)" if more > 0 else reason,
                accounts=len(self._acl.accounts),
            )
        self._told = str(error)


def _fingerprint_of(home: str) -> _Fingerprint:
    """What changes when a file does, its content, owner or mode. Raises as :func:`acl_files`."""
    found = []
    for path in acl_files(home):
        try:
            status = path.stat()
        except OSError:
            continue
        found.append((str(path), status.st_ctime_ns, status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)


def _tell(acl: PlainAcl) -> None:
    for note in acl.notes:
        logger.warning("acl.noted", note=note)
    logger.info("acl.read", accounts=len(acl.accounts), white_addresses=len(acl.white_addresses))
