"""CredentialsFile: by which a broker signs what it asks others, as the file of ``aclCredentialsPath`` says now."""

import os
from pathlib import Path
from typing import Final

import structlog

from rmqha.codec.acl import SessionCredentials
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import ConfigError
from rmqha.remoting.credentials import read_credentials

logger = structlog.get_logger()


class CredentialsFile:
    """Signs by what the file holds now; one that cannot be used, or is gone, changes nothing.

    A broker asks others every few seconds, and its operator corrects an account without a restart.

    Attributes:
        not_read: why what the file holds now does not count; empty: it does.
    """

    def __init__(self, path: str) -> None:
        """Raises ConfigError: as :func:`read_credentials`; or it is no file that can be read again."""
        self._path: Final = path
        self._seen = self._fingerprint()
        self._check_file()
        self._credentials = read_credentials(path)
        self.not_read = ""

    def sign(self, request: RemotingCommand) -> None:
        """See :meth:`SessionCredentials.sign`."""
        self._look_again().sign(request)

    def sign_frames(self, frames: bytes) -> bytes:
        """See :meth:`SessionCredentials.sign_frames`."""
        return self._look_again().sign_frames(frames)

    def _look_again(self) -> SessionCredentials:
        if (seen := self._fingerprint()) != self._seen:
            self._seen = seen
            try:
                self._check_file()
                self._credentials = read_credentials(self._path)
            except ConfigError as error:
                self.not_read = str(error)
                logger.warning("credentials.not_read_again", reason=self.not_read)
            else:
                self.not_read = ""
                logger.info("credentials.read", path=self._path, access_key=self._credentials.access_key)
        return self._credentials

    def _check_file(self) -> None:
        """Raises ConfigError: it is a pipe, say, whose reader waits for somebody to write, and with it this broker."""
        if (path := Path(self._path)).exists() and not path.is_file():
            raise ConfigError(f"{self._path}: no credentials can be read here: it is no regular file")

    def _fingerprint(self) -> tuple[int, ...]:
        """What changes when the file does; empty if it cannot be looked at."""
        try:
            status = os.stat(self._path)  # noqa: PTH116 - a millionth of a second, on the event loop
        except OSError:
            return ()
        return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
