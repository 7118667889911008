"""The patterns of addresses that RocketMQ's plain_acl.yml knows."""

import pytest

from rmqha.broker.acl.remote_address_strategy import RemoteAddressStrategy, parts_of


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        (None, [], ["10.0.0.1", "::1"]),
        ("  ", [], ["10.0.0.1", "::1", "nobody"]),
        ("*", ["10.0.0.1", "::1", "nobody"], []),
        ("*.*.*.*", ["10.0.0.1", "::1"], []),
        ("*:*:*:*:*:*:*:*", ["10.0.0.1", "::1"], []),
        ("192.168.0.1", ["192.168.0.1", "::ffff:192.168.0.1"], ["192.168.0.2", "192.168.0.10", "::1", "nobody"]),
        ("192.168.0.*", ["192.168.0.1", "192.168.0.255"], ["192.168.1.1"]),
        ("192.168.*.*", ["192.168.7.1"], ["192.169.0.1"]),
        ("192.*.*.*", ["192.1.2.3"], ["193.1.2.3"]),
        ("192.168.1-10.*", ["192.168.1.9", "192.168.10.9"], ["192.168.0.9", "192.168.11.9", "192.168.100.9"]),
        ("192.168.1.20-30", ["192.168.1.20", "192.168.1.30"], ["192.168.1.2", "192.168.1.31"]),
        ("192.168.1.{1,2, 3}", ["192.168.1.1", "192.168.1.3"], ["192.168.1.4", "192.168.1.12"]),
        ("10.0.0.1,10.0.0.9", ["10.0.0.1", "10.0.0.9"], ["10.0.0.2"]),
        ("2001:db8::1", ["2001:DB8:0:0:0:0:0:1", "2001:db8::1%eth0"], ["2001:db8::2", "10.0.0.1"]),
        ("1050::5:600:300c:*", ["1050::5:600:300c:1", "1050::5:600:300c:ffff"], ["1050::5:600:300d:1"]),
        ("2::ac5:78:1-200:*", ["2::ac5:78:1:9", "2::ac5:78:200:9"], ["2::ac5:78:201:9"]),
        ("2001:db8::{1,2}", ["2001:db8::1", "2001:db8::2"], ["2001:db8::3"]),
        ("fe80:*", ["fe80::1"], ["fe81::1"]),
        ("::1", ["::1"], ["::2"]),
    ],
)
def test_a_pattern_stands_for_these_and_not_for_those(pattern: str, inside: list[str], outside: list[str]) -> None:
    strategy = RemoteAddressStrategy(pattern)
    assert [host for host in inside if not strategy.match(parts_of(host))] == []
    assert [host for host in outside if strategy.match(parts_of(host))] == []


MALFORMED = (
    "192.168.0 192.168.* 192.168.0.256 192.168.0.9-1 192.168.0.-1 192.168.0.{1,2 192.168.{1,2}.1 192.168.0{1,2} host "
    "1, 1:2:3 ::1::2 1:2:3:4:5:6:7:8:9 1::2:3:4:5:6:7:8 ::10000"
)


@pytest.mark.parametrize("pattern", MALFORMED.split())
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"192|host|:|1,"):
        RemoteAddressStrategy(pattern)
