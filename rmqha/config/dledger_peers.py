"""The members of a DLedger group, as they are named to it: ``n0-host:port;n1-host:port;n2-host:port``.

Source: spec: dledger §4.1.
"""

from rmqha.config.kinds import split_address


def check_name(name: str) -> str:
    """The name of a member or a group; a member's directory is ``dledger-NAME``.

    Raises:
        ValueError: it would lead elsewhere, or nobody could read it.
    """
    if not name:
        raise ValueError("the name is empty")
    if "/" in name or "\\" in name or ".." in name:
        raise ValueError(f"{name!r} holds '/', '\\' or '..', and would lead out of the store's directory")
    if not name.isprintable():
        raise ValueError(f"{name!r} holds characters that cannot be printed")
    return name


def parse_peers(text: str) -> dict[str, str]:
    """Each member's id and its ``host:port``, in the order of the list; an id ends at the first ``-``.

    Raises:
        ValueError: one part is no such member, or an id or an address stands twice; the text says which.
    """
    peers: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        member_id, _, address = part.partition("-")
        if not member_id or not address:
            raise ValueError(f"{part!r} is not ID-HOST:PORT, such as n0-localhost:20911")
        check_name(member_id)
        try:
            split_address(address)
        except ValueError as error:
            raise ValueError(f"{part!r} is not ID-HOST:PORT: {error}") from None
        if member_id in peers:
            raise ValueError(f"two members have the id {member_id}: {peers[member_id]} and {address}")
        if address in peers.values():
            raise ValueError(f"two members have the address {address}")
        peers[member_id] = address
    if not peers:
        raise ValueError("it names no member: ID-HOST:PORT;ID-HOST:PORT...")
    return peers
