"""Credentials for the commands that talk to a broker with aclEnable, from the environment: all can see a command line.

RMQHA_CREDENTIALS names a file like mqadmin's tools.yml, with accessKey and secretKey; or RMQHA_ACCESS_KEY and
RMQHA_SECRET_KEY hold them. None of them: requests are not signed.
"""

import os
from typing import TYPE_CHECKING, Final

from rmqha.errors import ConfigError

if TYPE_CHECKING:
    from rmqha.codec.acl import SessionCredentials


_REFUSAL: Final = "AclException"
_SOURCES: Final = ("RMQHA_CREDENTIALS", "RMQHA_ACCESS_KEY")


def is_of_accounts(reason: str | None) -> bool:
    """Whether this is why a broker refuses to answer: who asks, or with which account."""
    return _REFUSAL in (reason or "")


def sign_in_hint(reason: str | None, *, otherwise: str) -> str:
    """What to do next when a broker has answered an error for this reason."""
    if not is_of_accounts(reason):
        return otherwise
    used = next((name for name in _SOURCES if os.environ.get(name)), None)
    if used is not None:
        return (
            f"it does not let the account of {used} do this: is its accessKey and secretKey one of its plain_acl.yml, "
            "with the permission, or admin: true for what operators change?"
        )
    return "it has accounts (aclEnable): name yours by RMQHA_CREDENTIALS, a file like mqadmin's tools.yml"


def client_credentials() -> "SessionCredentials | None":
    """By which requests are signed.

    Raises:
        ConfigError: the file cannot be used, or one of the two is missing.
    """
    path, access_key, secret_key = (
        os.environ.get(f"RMQHA_{name}", "") for name in ("CREDENTIALS", "ACCESS_KEY", "SECRET_KEY")
    )
    if path:
        from rmqha.remoting.credentials import read_credentials  # noqa: PLC0415 - brings the event loop with it

        return read_credentials(path)
    if not access_key and not secret_key:
        return None
    if not (access_key and secret_key):
        raise ConfigError("RMQHA_ACCESS_KEY and RMQHA_SECRET_KEY belong together: one of them is empty")
    from rmqha.codec.acl import SessionCredentials  # noqa: PLC0415

    return SessionCredentials(access_key, secret_key)
