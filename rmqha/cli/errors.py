"""What the operator is told when something fails: what, where, why, and what to do next; and with which exit code."""

import sys
from typing import IO, Any, Final

import click

from rmqha.cli.pages import Page
from rmqha.exit_codes import EXIT_FAILED, EXIT_UNREACHABLE

_OF_TLS: Final = ("certificate", "[ssl")
"""In what Python's ssl says of a handshake."""
_SPEAKS_TLS: Final = "it speaks TLS"
"""As describe_answer (rmqha/codec/strangers.py) has it."""
_WANTS_CERTIFICATE: Final = "certificate_required"
_CLIENT_CERTIFICATE_HINT: Final = (
    f"it takes clients with a certificate alone: name yours by RMQHA_TLS_CERT and RMQHA_TLS_KEY: {Page.CERTIFICATES}"
)
_PLAIN_HINT: Final = (
    "name the authority of its certificate by RMQHA_TLS_TRUST (PEM), and, if it takes clients with a certificate "
    f"alone, yours by RMQHA_TLS_CERT and RMQHA_TLS_KEY: {Page.CERTIFICATES}"
)
_TLS_HINT: Final = f"compare its certificate with what RMQHA_TLS_TRUST names here, and their dates: {Page.CERTIFICATES}"


class CliError(click.ClickException):
    """One failure in the operator's words.

    Attributes:
        why: the cause, if the message does not already say it.
        hint: what to do next.
        is_broker: that there is one at the address, which does not let this command ask it.
    """

    exit_code = EXIT_FAILED
    is_broker = False

    def __init__(self, what: str, *, why: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.why = why
        self.hint = hint

    def show(self, file: IO[Any] | None = None) -> None:
        """Write it to stderr, one line for each part."""
        target = file if file is not None else sys.stderr
        click.echo(f"{click.style('Error:', fg='red')} {self.message}", file=target)
        for name, text in (("Why: ", self.why), ("Next:", self.hint)):
            if text:
                click.echo(f"{name}  {text}", file=target)


class UnreachableError(CliError):
    """Nothing answers at a broker's address.

    Args:
        address: which the command was given.
        why: in the words of the system or the client.
        broker: whose address the one that was asked has named; empty: it is that of the command.
    """

    exit_code = EXIT_UNREACHABLE

    def __init__(self, address: str, why: str, *, broker: str = "") -> None:
        if _SPEAKS_TLS in why:
            super().__init__(f"the broker at {broker or address} runs, and takes TLS alone", why=why, hint=_PLAIN_HINT)
            self.is_broker = True
        elif _WANTS_CERTIFICATE in why.lower():
            told = f"the broker at {broker or address} runs, and TLS with it fails"
            super().__init__(told, why=why, hint=_CLIENT_CERTIFICATE_HINT)
            self.is_broker = True
        elif any(word in why.lower() for word in _OF_TLS):
            super().__init__(f"the broker at {broker or address} runs, and TLS with it fails", why=why, hint=_TLS_HINT)
            self.is_broker = True
        elif broker in ("", address):
            super().__init__(
                f"the broker at {address} cannot be reached",
                why=why,
                hint="is it running, is this its listenPort (the HA port is another, mostly the one above it), and has "
                "it room for another client (maxConnections)? Name another with --broker HOST:PORT",
            )
        else:
            super().__init__(
                f"the broker at {broker}, which {address} named, cannot be reached",
                why=why,
                hint=f"is it running, and is this its address from here? 'rmqha status -b {broker}' asks it",
            )


def unreadable(address: str, why: str) -> CliError:
    """What to tell of a broker that answers what cannot be read."""
    hint = "is it of a newer version than this command, or no broker at all?"
    return CliError(f"the answer of the broker at {address} cannot be read", why=why, hint=hint)


class SilentError(UnreachableError):
    """No answer came in time, though nobody refuses: a process or a disk may stand still."""
