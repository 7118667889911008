"""How a request is signed, and whether its signature is right.

    content    the values of all header fields, in the order of their names, without separators; then the body
    Signature  base64 of HMAC-SHA1 over the content, keyed by the secret

The fields ``AccessKey`` and ``SecurityToken`` are signed like all others; ``Signature`` is not. As nothing stands
between the values, one signature fits all requests whose values join to the same text, and it never expires: TLS keeps
a peer in the middle from making use of that.

Source: spec: remoting §4.1; rocketmq-all-4.9.8 AclClientRPCHook.java, AclUtils.java, AclSigner.java.
"""

import hmac
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final, Protocol

from rmqha.codec.remoting import RemotingCommand, decode_frames

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"  # noqa: S105 - the name of a field
SIGNATURE: Final = "Signature"
UNIQUE_MSG_QUERY_FLAG: Final = "_UNIQUE_KEY_QUERY"
_MAYBE_SIGNED: Final = (UNIQUE_MSG_QUERY_FLAG, SECURITY_TOKEN)
"""Java's clients sign the first, and its brokers leave it out; Go's clients leave the second out. Neither says what a
request may do; one with the first has no body."""


def cal_signature(fields: Mapping[str, str], body: bytes, *, secret_key: str, unsigned: tuple[str, ...] = ()) -> str:
    """The signature of a request with these header fields, of which ``unsigned`` are left out."""
    left_out = {SIGNATURE, *unsigned}
    content = "".join([fields[name] for name in sorted(fields) if name not in left_out])
    mac = hmac.new(secret_key.encode(errors="replace"), content.encode(errors="replace"), "sha1")
    mac.update(body)
    return b64encode(mac.digest()).decode()


def without_credentials(fields: Mapping[str, str]) -> dict[str, str]:
    """What others may see of a request: with its signature they could ask for other things in its sender's name."""
    return {name: value for name, value in fields.items() if name not in {ACCESS_KEY, SECURITY_TOKEN, SIGNATURE}}


def is_signed(fields: Mapping[str, str], body: bytes, *, secret_key: str) -> bool:
    """Whether the signature that is among the fields is that of one who knows the secret."""
    signature = fields.get(SIGNATURE, "").encode(errors="replace")
    maybe_signed = (SECURITY_TOKEN,) if body else _MAYBE_SIGNED
    absent = [name for name in maybe_signed if name in fields]
    ways = [unsigned for count in range(len(absent) + 1) for unsigned in combinations(absent, count)]
    expected = (cal_signature(fields, body, secret_key=secret_key, unsigned=way).encode() for way in ways)
    return any(hmac.compare_digest(one, signature) for one in expected)


class Signer(Protocol):
    """What signs requests: credentials, or a file that holds them."""

    def sign(self, request: RemotingCommand) -> None:
        """See :meth:`SessionCredentials.sign`."""
        ...

    def sign_frames(self, frames: bytes) -> bytes:
        """See :meth:`SessionCredentials.sign_frames`."""
        ...


@dataclass(frozen=True)
class SessionCredentials:
    """By which a client signs what it asks."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def sign(self, request: RemotingCommand) -> None:
        """Add who asks, and the signature; one of an earlier attempt is replaced."""
        fields = dict(request.ext_fields)
        fields[ACCESS_KEY] = self.access_key
        if self.security_token is not None:
            fields[SECURITY_TOKEN] = self.security_token
        fields[SIGNATURE] = cal_signature(fields, request.body, secret_key=self.secret_key)
        request.replace_ext_fields(fields)

    def sign_frames(self, frames: bytes) -> bytes:
        """The same of whole requests that are encoded already."""
        requests, _ = decode_frames(frames)
        for request in requests:
            self.sign(request)
        return b"".join([request.encode() for request in requests])
