"""The keys of TLS: of a broker's ports, and of a name server's.

The modes are RocketMQ's; its own settings are JVM properties, no keys.
"""

from dataclasses import dataclass

from rmqha.choices import TlsMode
from rmqha.config.key import key
from rmqha.config.kinds import BOOLEAN, NAMES, PATH, choice


@dataclass(frozen=True, kw_only=True)
class ListenerTlsConfig:
    """Of a port for clients. Source: spec remoting §4.2; RocketMQ's TlsSystemConfig.java for the modes."""

    tls_mode: TlsMode = key(
        "tlsMode",
        choice(TlsMode),
        "disabled",
        ours=True,
        meaning="TLS for clients, on each port that serves them: disabled, permissive (both kinds on one port), or "
        "enforcing (plain connections are closed).",
    )
    tls_cert_path: str = key(
        "tlsCertPath", PATH, "", ours=True, meaning="The certificate that clients are shown, with its chain, as PEM."
    )
    tls_key_path: str = key("tlsKeyPath", PATH, "", ours=True, meaning="The key of tlsCertPath, as PEM, not encrypted.")
    tls_trust_cert_path: str = key(
        "tlsTrustCertPath",
        PATH,
        "",
        ours=True,
        meaning="Authorities whose certificates clients may present, and the brokers that this process asks.",
    )
    tls_need_client_auth: bool = key(
        "tlsNeedClientAuth",
        BOOLEAN,
        "true",
        ours=True,
        meaning="Clients must present a certificate from tlsTrustCertPath. false: anybody who reaches the port can "
        "read and write everything, though nobody else can listen.",
    )
    tls_peer_names: tuple[str, ...] = key(
        "tlsPeerNames",
        NAMES,
        "",
        ours=True,
        meaning="Names (DNS, IP or common name) of which a client's certificate must carry one, separated by commas. "
        "Empty: any certificate of tlsTrustCertPath.",
    )


@dataclass(frozen=True, kw_only=True)
class TlsConfig(ListenerTlsConfig):
    """Of both ports of a broker."""

    ha_tls_mode: TlsMode = key(
        "haTlsMode",
        choice(TlsMode),
        "disabled",
        ours=True,
        meaning="Mutual TLS between rmqha brokers on the HA port. permissive serves both kinds and connects without "
        "TLS, for the time of a change; RocketMQ slaves need disabled or permissive.",
    )
    ha_tls_cert_path: str = key(
        "haTlsCertPath", PATH, "", ours=True, meaning="This broker's certificate for other brokers, as PEM."
    )
    ha_tls_key_path: str = key(
        "haTlsKeyPath", PATH, "", ours=True, meaning="The key of haTlsCertPath, as PEM, not encrypted."
    )
    ha_tls_trust_cert_path: str = key(
        "haTlsTrustCertPath", PATH, "", ours=True, meaning="Authorities that other brokers' certificates come from."
    )
    ha_tls_peer_names: tuple[str, ...] = key(
        "haTlsPeerNames",
        NAMES,
        "",
        ours=True,
        meaning="Names of which another broker's certificate must carry one, both for connecting and for being "
        "connected to. Empty: a slave checks that the master's is for the address it connects to, a master takes any "
        "certificate of haTlsTrustCertPath.",
    )
