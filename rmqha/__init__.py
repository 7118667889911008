"""rmqha: a master/slave HA commitlog server, compatible with Apache RocketMQ 4.9 on disk and on the wire."""

__version__ = "0.1.0"
