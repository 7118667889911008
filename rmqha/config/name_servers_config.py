"""The keys by which a broker is registered with name servers."""

from dataclasses import dataclass

from rmqha.config.key import key
from rmqha.config.kinds import ADDRESSES, BOOLEAN, MILLISECONDS


@dataclass(frozen=True, kw_only=True)
class NameServersConfig:
    """Source: rocketmq-all-4.9.8 BrokerConfig.java; spec remoting §5.4."""

    namesrv_addr: tuple[str, ...] = key(
        "namesrvAddr",
        ADDRESSES,
        "",
        meaning="Name servers, rmqha's or RocketMQ's, host:port separated by semicolons: this broker is registered "
        "with each of them, where clients find it, and a slave without haMasterAddress its master. Any broker is a "
        "name server for its group, too.",
    )
    register_name_server_period_s: float = key(
        "registerNameServerPeriod",
        MILLISECONDS,
        "30000",
        low=10_000,
        high=60_000,
        meaning="Pause between two registrations of which nothing has changed; what changes is told at once.",
    )
    namesrv_tls_enable: bool = key(
        "namesrvTlsEnable",
        BOOLEAN,
        "",
        derived="true with tlsMode=enforcing, otherwise false",
        ours=True,
        meaning="Speak TLS with name servers, by the files of the section TLS.",
    )
