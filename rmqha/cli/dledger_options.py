"""Options that the commands of a DLedger group share."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from rmqha.cli.errors import CliError
from rmqha.exit_codes import EXIT_UNREACHABLE

if TYPE_CHECKING:
    from rmqha.dledger.dledger_client import DLedgerClient

Answer = TypeVar("Answer")
F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_GROUP: Final = "default"
DEFAULT_PEERS: Final = "n0-localhost:20911"


def _peers(_ctx: click.Context, param: click.Parameter, value: str) -> dict[str, str]:
    from rmqha.config.dledger_peers import parse_peers  # noqa: PLC0415 - not for --help

    try:
        return parse_peers(value)
    except ValueError as error:
        raise click.BadParameter(str(error), param=param) from None


def group_options(command: F) -> F:
    """Add ``--group`` and ``--peers``; the peers arrive as a dictionary of ids to addresses."""
    group = click.option(
        "-g", "--group", metavar="NAME", default=DEFAULT_GROUP, show_default=True, help="The group's name."
    )
    peers = click.option(
        "-p", "--peers", metavar="ID-HOST:PORT;...", default=DEFAULT_PEERS, show_default=True, callback=_peers,
        help="Its members, with ';' between them.",
    )  # fmt: skip
    return group(peers(command))


class GroupUnreachableError(CliError):
    """No member of a group answers."""

    exit_code = EXIT_UNREACHABLE

    def __init__(self, group: str, why: str) -> None:
        super().__init__(
            f"no member of the group {group} can be reached",
            why=why,
            hint="are they running? Name them with --peers ID-HOST:PORT;ID-HOST:PORT",
        )


def ask_group(group: str, peers: dict[str, str], question: "Callable[[DLedgerClient], Awaitable[Answer]]") -> Answer:
    """Ask with a client of the group; over TLS, if the environment says so.

    Raises:
        GroupUnreachableError: no member answers.
    """
    import trio  # noqa: PLC0415 - not for --help

    from rmqha.cli.tls import client_network  # noqa: PLC0415
    from rmqha.dledger.dledger_client import open_dledger_client  # noqa: PLC0415
    from rmqha.errors import RemotingConnectError  # noqa: PLC0415

    async def ask() -> Answer:
        async with open_dledger_client(group=group, peers=peers, network=client_network()) as client:
            return await question(client)

    try:
        return trio.run(ask)
    except RemotingConnectError as error:
        raise GroupUnreachableError(group, str(error)) from None
