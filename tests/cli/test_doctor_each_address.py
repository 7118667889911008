"""`rmqha doctor`: what is said of an address is said whatever others answer that are named beside it."""

from collections.abc import Callable, Iterable
from itertools import permutations
from typing import Final

import pytest

from rmqha.cli.doctor_peers import check_name_servers, check_peers
from rmqha.cli.finding import Finding
from rmqha.codec.codes import STATUS_KEY, RequestCode
from rmqha.config import BrokerConfig, load_config
from tests.cli.fake_brokers import Answer, FakeBrokers, answer, runtime

RUNTIME, CLUSTER = RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_BROKER_CLUSTER_INFO
Answers = dict[RequestCode, Answer]


def names(address: str = "127.0.0.1:10911", *, cluster: str = "DefaultCluster") -> Answers:
    """A name server at which the broker ``a`` is registered."""
    known = {"a": {"brokerName": "a", "cluster": cluster, "brokerAddrs": {"0": address}}}
    return {CLUSTER: answer({"brokerAddrTable": known, "clusterAddrTable": {cluster: ["a"]}})}


REFUSES: Final[Answers] = {RUNTIME: answer(code=1, remark="AclException: No account")}
NO_TABLE: Final[Answers] = {RUNTIME: answer({"table": 7})}
NO_FACTS: Final[Answers] = {RUNTIME: answer({"table": {STATUS_KEY: "[1]"}})}
ANOTHER: Final[Answers] = {RUNTIME: runtime(broker_name="b", broker_id=5)}
REPLICA: Final[Answers] = {RUNTIME: runtime(role="SLAVE", broker_id=1)}
NAME_SERVERS: Final[dict[str, Answers | None]] = {
    "10.0.0.1": None,
    "10.0.0.2": names(),
    "10.0.0.3": names("10.0.0.7:10911"),
    "10.0.0.4": names(cluster="other"),
    "10.0.0.5": REFUSES,
    "10.0.0.6": ANOTHER,
    "10.0.0.7": NO_TABLE,
    "10.0.0.8": NO_FACTS,
}
PEERS: Final[dict[str, Answers | None]] = {
    "10.0.0.1": None,
    "10.0.0.2": REPLICA,
    "10.0.0.3": names(),
    "10.0.0.4": REFUSES,
    "10.0.0.5": ANOTHER,
    "10.0.0.6": NO_TABLE,
    "10.0.0.7": NO_FACTS,
}
"""What answers at each host; None: nobody."""


def of_name_servers(hosts: Iterable[str]) -> list[Finding]:
    return [*check_name_servers(config("namesrvAddr", hosts, 9876), timeout_s=1)]


def of_peers(hosts: Iterable[str]) -> list[Finding]:
    return [*check_peers(config("haPeers", hosts, 10912), is_empty=False, timeout_s=1)]


def config(key: str, hosts: Iterable[str], port: int) -> BrokerConfig:
    return load_config(None, {"brokerName": "a", key: ";".join(f"{host}:{port}" for host in hosts)})


@pytest.mark.parametrize(
    ("check", "answers", "port"),
    [(of_name_servers, NAME_SERVERS, 9876), (of_peers, PEERS, 10911)],
    ids=["namesrvAddr", "haPeers"],
)
def test_each_address_is_looked_at_in_whatever_order_they_are_named(
    check: Callable[[Iterable[str]], list[Finding]],
    answers: dict[str, Answers | None],
    port: int,
    fake_brokers: FakeBrokers,
) -> None:
    fake_brokers.answers = {f"{host}:{port}": told for host, told in answers.items() if told is not None}
    alone = {host: check([host]) for host in answers}
    assert all(findings and all(host in one.what for one in findings) for host, findings in alone.items())
    assert len({one.what.replace(host, "") for host, findings in alone.items() for one in findings}) > len(answers) // 2
    for hosts in permutations(answers, 2):
        assert check(hosts) == [finding for host in hosts for finding in alone[host]], hosts
    assert check([*answers]) == [finding for findings in alone.values() for finding in findings]
