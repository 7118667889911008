"""What a TLS certificate says, as Python's ssl gives it."""

from typing import Any


def names_of(certificate: dict[str, Any]) -> set[str]:
    """Everything a certificate says its owner is called: DNS names, addresses, common names."""
    names = {str(value) for _, value in certificate.get("subjectAltName", ())}
    for part in certificate.get("subject", ()):
        names |= {str(value) for kind, value in part if kind == "commonName"}
    return names
