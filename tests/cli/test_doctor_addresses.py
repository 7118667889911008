"""`rmqha doctor`: addresses that name the wrong port, and a master that is about to begin a new log."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from rmqha.cli import doctor_peers
from rmqha.cli.doctor_addresses import check_addresses
from rmqha.cli.errors import UnreachableError
from rmqha.cli.finding import Finding
from rmqha.codec.acl import ACCESS_KEY
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import FLAG_RESPONSE, RemotingCommand
from rmqha.config import BrokerConfig, load_config
from tests.cli.fake_brokers import Answer, FakeBrokers, answer, runtime

RUNTIME, CLUSTER = RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_BROKER_CLUSTER_INFO
NAME_SERVER: dict[RequestCode, Answer] = {CLUSTER: answer({"brokerAddrTable": {}})}
MASTER = {"connections": [], "refused": [], "port": 10912}


def slave(**settings: str) -> BrokerConfig:
    keys = {"brokerName": "a", "brokerRole": "SLAVE", "brokerId": "1", "listenPort": "10921", "allowInsecure": "true"}
    return load_config(None, keys | {"haMasterAddress": "10.0.0.1:10912"} | settings)


def master(**settings: str) -> BrokerConfig:
    return load_config(None, {"brokerName": "a", "listenPort": "10911", "allowInsecure": "true"} | settings)


def bad(findings: Iterable[Finding]) -> list[tuple[str, str, str]]:
    return [(finding.level, finding.area, finding.what) for finding in findings if finding.level != "ok"]


@pytest.mark.parametrize(
    ("config", "area", "said"),
    [
        (slave(masterAddress="10.0.0.1:10911", namesrvAddr="10.0.0.1:9876"), "", ""),
        (master(haPeers="127.0.0.1:10922"), "", ""),
        (slave(haMasterAddress="127.0.0.1:10921"), "haMasterAddress", "this broker's own listenPort"),
        (slave(haMasterAddress="localhost:10919"), "haMasterAddress", "this broker's own listenPort - 2"),
        (slave(masterAddress="127.0.0.1:10922"), "masterAddress", "this broker's own haListenPort"),
        (slave(masterAddress="10.0.0.1:10912"), "haMasterAddress", "haMasterAddress and masterAddress both name"),
        (slave(masterAddress="10.0.0.1:10911", namesrvAddr="10.0.0.1:10911;127.0.0.1:10921"), "", ""),
        (
            master(haPeers="10.0.0.2:10922;127.0.0.1:10911"),
            "haPeers",
            "127.0.0.1:10911 is this broker's own listenPort",
        ),
        (master(brokerIP1="10.0.0.1", haPeers="10.0.0.1:10911"), "haPeers", "this broker's own listenPort"),
        (
            master(brokerIP1="10.0.0.1", bindAddress="0.0.0.0", haPeers="127.0.0.1:10911"),
            "haPeers",
            "this broker's own listenPort",
        ),
        (
            master(brokerIP1="10.0.0.1", haBindAddress="0.0.0.0", namesrvAddr="localhost:10912"),
            "namesrvAddr",
            "this broker's own haListenPort",
        ),
        (
            slave(brokerIP1="10.0.0.2", metricsListen="0.0.0.0:9100", masterAddress="127.0.0.1:9100"),
            "masterAddress",
            "this broker's own metricsListen",
        ),
        (master(brokerIP1="10.0.0.1", bindAddress="0.0.0.0", haPeers="10.0.0.2:10911"), "", ""),
        (master(namesrvAddr="127.0.0.1:10911;10.0.0.2:10911"), "", ""),
        (master(namesrvAddr="127.0.0.1:10912"), "namesrvAddr", "this broker's own haListenPort"),
        (master(namesrvAddr="127.0.0.1:9100", metricsListen="9100"), "namesrvAddr", "this broker's own metricsListen"),
    ],
)
def test_one_file_shows_a_port_that_is_none_of_the_kind(config: BrokerConfig, area: str, said: str) -> None:
    found = bad(check_addresses(config))
    assert [(level, where) for level, where, _ in found] == ([("fail", area)] if said else [])
    assert all(said in what for _, _, what in found)


@pytest.mark.parametrize("key", ["haMasterAddress", "haPeers"])
def test_an_ha_address_that_answers_as_a_listen_port(key: str, fake_brokers: FakeBrokers) -> None:
    """It said only that nobody answers, one port below."""
    fake_brokers.answers = {"10.0.0.1:10911": {RUNTIME: runtime(ha=MASTER)}}
    config = slave(haMasterAddress="10.0.0.1:10911") if key == "haMasterAddress" else master(haPeers="10.0.0.1:10911")
    (finding,) = [one for one in doctor_peers.check_peers(config, is_empty=False, timeout_s=1) if one.level != "ok"]
    assert (finding.level, finding.area) == ("fail", key)
    assert "10.0.0.1:10911: it answers as a broker's listenPort (SYNC_MASTER a)" in finding.what
    assert finding.next == "name its HA port: port 10912"


def test_a_master_address_that_is_an_ha_port_or_a_name_server(fake_brokers: FakeBrokers) -> None:
    fake_brokers.answers = {"10.0.0.1:10911": {RUNTIME: runtime(ha=MASTER)}}
    config = slave(masterAddress="10.0.0.1:10912")
    assert bad(doctor_peers.check_peers(config, is_empty=False, timeout_s=1)) == [
        ("fail", "masterAddress", "10.0.0.1:10912: it is the HA port of SYNC_MASTER a")
    ]
    fake_brokers.answers["10.0.0.9:9876"] = NAME_SERVER
    config = slave(masterAddress="10.0.0.9:9876", haMasterAddress="10.0.0.9:9876")
    found = bad(doctor_peers.check_peers(config, is_empty=False, timeout_s=1))
    assert [(level, area) for level, area, _ in found] == [("fail", "haMasterAddress"), ("fail", "masterAddress")]
    assert all("it is a name server" in what for _, _, what in found)


def test_an_address_that_nobody_answers_at_stays_a_warning(fake_brokers: FakeBrokers) -> None:
    config = slave(masterAddress="10.0.0.1:10911")
    found = bad(doctor_peers.check_peers(config, is_empty=False, timeout_s=1))
    assert [(level, area) for level, area, _ in found] == [("warn", "haMasterAddress"), ("warn", "masterAddress")]


def test_a_broker_that_does_not_know_this_account_is_asked_nothing_else(fake_brokers: FakeBrokers) -> None:
    """Its HA port was tried next: it told for a minute that it turns a replica away, and was said not to run."""
    refusal = RemotingCommand(ResponseCode.SYSTEM_ERROR, 0, FLAG_RESPONSE, remark="AclException: no accessKey")
    fake_brokers.answers = {"10.0.0.1:10911": {RUNTIME: refusal}}
    fake_brokers.answers["10.0.0.1:10912"] = fake_brokers.answers["10.0.0.1:10910"] = {}
    config = slave(masterAddress="10.0.0.1:10911")
    found = [one for one in doctor_peers.check_peers(config, is_empty=False, timeout_s=1) if one.level != "ok"]
    assert [finding.level for finding in found] == ["warn", "warn"]
    assert all("no accessKey" in finding.what and "RMQHA_CREDENTIALS" in finding.next for finding in found)
    assert {address for address, _, _ in fake_brokers.asked} == {"10.0.0.1:10911"}


def test_a_master_that_refuses_what_this_broker_will_ask_fails(fake_brokers: FakeBrokers, tmp_path: Path) -> None:
    """It followed, took over no topics and no offsets, and doctor had said that all is well: an operator may ask."""
    refusal = RemotingCommand(ResponseCode.SYSTEM_ERROR, 0, FLAG_RESPONSE, remark="AclException: no such account")
    signed_by = list[str]()

    def answer_offsets(fields: dict[str, str]) -> RemotingCommand:
        signed_by.append(fields.get(ACCESS_KEY, ""))
        return answer({"offsetTable": {}}) if signed_by[-1] == "replica" else refusal

    there: dict[RequestCode, Answer] = {RUNTIME: runtime(ha=MASTER), RequestCode.GET_ALL_DELAY_OFFSET: answer_offsets}
    fake_brokers.answers = {"10.0.0.1:10911": there}
    tools = tmp_path / "tools.yml"
    for account, said in (("", "without an account"), ("gone", f"account of {tools}"), ("replica", "")):
        tools.write_text(f"accessKey: {account}\nsecretKey: 12345678\n")
        config = slave(masterAddress="10.0.0.1:10911", aclCredentialsPath=str(tools) if account else "")
        found = list(doctor_peers.check_peers(config, is_empty=False, timeout_s=1))
        assert [finding.level for finding in found] == ["ok", "ok", "fail" if said else "ok"]
        assert said in found[-1].what
    assert signed_by == ["", "gone", "replica"]


def test_a_master_that_refuses_this_broker_and_who_runs_doctor_fails(fake_brokers: FakeBrokers) -> None:
    """That the one was not told its status said nothing of the other, and was a warning."""
    refusal = RemotingCommand(ResponseCode.SYSTEM_ERROR, 0, FLAG_RESPONSE, remark="AclException: no accessKey")
    fake_brokers.answers = {"10.0.0.1:10911": {RUNTIME: refusal, RequestCode.GET_ALL_DELAY_OFFSET: refusal}}
    config = slave(masterAddress="10.0.0.1:10911")
    *_, (level, area, what) = bad(doctor_peers.check_peers(config, is_empty=False, timeout_s=1))
    assert (level, area) == ("fail", "masterAddress")
    assert "10.0.0.1:10911: it refuses a broker without an account" in what


def test_a_name_server_that_is_a_broker(fake_brokers: FakeBrokers) -> None:
    """A broker is a name server for its own group, and only for that."""
    known = {"a": {"brokerName": "a", "cluster": "DefaultCluster", "brokerAddrs": {}}}
    broker: dict[RequestCode, Answer] = {RUNTIME: runtime(), CLUSTER: answer({"brokerAddrTable": known})}
    fake_brokers.answers = {"10.0.0.1:10911": broker}
    config = slave(namesrvAddr="10.0.0.1:10911")
    assert bad(doctor_peers.check_name_servers(config, timeout_s=1)) == []
    broker[RUNTIME] = runtime(broker_name="b")
    ((level, _, what),) = bad(doctor_peers.check_name_servers(config, timeout_s=1))
    assert (level, "answers as a broker's listenPort (SYNC_MASTER b)" in what) == ("fail", True)


def test_a_name_server_with_which_tls_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was called a broker, and asked whether it runs."""

    def fails(address: str, *, timeout_s: float) -> dict[str, str]:
        assert timeout_s
        raise UnreachableError(address, "[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred")

    monkeypatch.setattr(doctor_peers, "runtime_table", fails)
    (finding,) = doctor_peers.check_name_servers(slave(namesrvAddr="10.0.0.1:9876"), timeout_s=1)
    assert "the name server at 10.0.0.1:9876 runs, and TLS with it fails" in finding.what
    assert "namesrvTlsEnable" in finding.next


def test_a_name_server_that_is_silent_is_not_said_to_speak_tls(fake_brokers: FakeBrokers) -> None:
    (finding,) = doctor_peers.check_name_servers(slave(namesrvAddr="10.0.0.1:9876"), timeout_s=1)
    assert "the name server at 10.0.0.1:9876 cannot be reached: Connection refused" in finding.what
    assert (finding.level, finding.next) == ("warn", "is it running, and is this its address?")
    assert fake_brokers.asked == []


def test_a_master_that_would_begin_a_new_log_while_its_peers_are_away(fake_brokers: FakeBrokers) -> None:
    config = master(haPeers="10.0.0.2:10922")
    _, (level, area, what) = bad(doctor_peers.check_peers(config, is_empty=True, timeout_s=1))
    assert (level, area) == ("warn", "haPeers")
    assert "the log here is empty, and what 10.0.0.2:10922 may hold is unknown" in what
    assert len(bad(doctor_peers.check_peers(config, is_empty=False, timeout_s=1))) == 1
    careful = master(haPeers="10.0.0.2:10922", haCatchUpAtStart="require")
    assert len(bad(doctor_peers.check_peers(careful, is_empty=True, timeout_s=1))) == 1
    fake_brokers.answers = {"10.0.0.2:10921": {RUNTIME: answer(code=1, remark="AclException: no accessKey")}}
    found = bad(doctor_peers.check_peers(config, is_empty=True, timeout_s=1))
    assert [what for *_, what in found if "may hold is unknown" in what], "it tells nothing of what it holds"
    fake_brokers.answers = {"10.0.0.2:10921": {RUNTIME: runtime(broker_id=1, role="SLAVE")}}
    assert bad(doctor_peers.check_peers(config, is_empty=True, timeout_s=1)) == []
    fake_brokers.answers = {}
    follower = slave(haPeers="10.0.0.2:10922")
    found = bad(doctor_peers.check_peers(follower, is_empty=True, timeout_s=1))
    assert not [what for *_, what in found if "may hold is unknown" in what], "a slave takes no sends"


@pytest.mark.parametrize(("addresses", "said"), [({}, "free"), ({"0": "127.0.0.1:10911"}, "registered")])
def test_a_place_at_a_name_server_is_free_or_taken_by_this_broker(
    addresses: dict[str, str], said: str, fake_brokers: FakeBrokers
) -> None:
    known = {"a": {"brokerName": "a", "cluster": "DefaultCluster", "brokerAddrs": addresses}}
    fake_brokers.answers = {"10.0.0.9:9876": {CLUSTER: answer({"brokerAddrTable": known})}}
    config = load_config(None, {"brokerName": "a", "namesrvAddr": "10.0.0.9:9876"})
    (finding,) = doctor_peers.check_name_servers(config, timeout_s=1)
    assert (finding.level, finding.what) == ("ok", f"10.0.0.9:9876: a with brokerId 0 is {said}")


def test_a_broker_that_runs_says_how_it_is(fake_brokers: FakeBrokers) -> None:
    config = master(brokerIP1="10.0.0.1", bindAddress="0.0.0.0")
    fake_brokers.answers = {"127.0.0.1:10911": {RUNTIME: runtime(doubt="nobody knows")}}
    ((level, area, what),) = bad(doctor_peers.check_own(config, timeout_s=1))
    assert (level, area, what.startswith("degraded: "), "nobody knows" in what) == ("warn", "status", True, True)
    fake_brokers.answers = {"127.0.0.1:10911": {RUNTIME: runtime(write_refusal="disk full")}}
    assert [level for level, _, _ in bad(doctor_peers.check_own(config, timeout_s=1))] == ["fail"]
    fake_brokers.answers = {}
    assert [level for level, _, _ in bad(doctor_peers.check_own(config, timeout_s=1))] == ["fail"], "it runs elsewhere"
