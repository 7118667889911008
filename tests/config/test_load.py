import re
from pathlib import Path

import pytest

from rmqha.choices import BrokerRole, FlushDiskType
from rmqha.config import KEYS, BrokerConfig, load_config, split_address
from rmqha.config.reference import as_properties, reference_page, shown_config
from rmqha.config.rocketmq_keys import REFUSED, UNUSED
from rmqha.errors import ConfigError

ROOT = Path(__file__).parents[2]


def conf(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text(text, encoding="utf-8")
    return path


def problems(**overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(None, overrides)
    return caught.value.problems


def test_defaults_are_safe_and_need_no_file() -> None:
    config = load_config(None)
    assert (config.bind_address, config.ha_bind_address) == ("127.0.0.1", "127.0.0.1")
    assert (config.listen_port, config.ha_listen_port) == (10911, 10912)
    assert (config.broker_role, config.in_sync_replicas) == (BrokerRole.ASYNC_MASTER, 1)
    assert config.store_path_commit_log == config.store_path_root_dir + "/commitlog"
    assert config.notes == ()


def test_times_in_the_file_become_seconds(tmp_path: Path) -> None:
    text = "slaveTimeout=250\nfileReservedTime=48\nserverChannelMaxIdleTimeSeconds=9\nmessageDelayLevel=2s 1m 3h 1d\n"
    config = load_config(conf(tmp_path, text))
    assert config.slave_timeout_s == pytest.approx(0.25)
    assert config.file_reserved_time_s == 48 * 3600
    assert config.server_channel_max_idle_time_s == 9
    assert config.message_delay_level == (2, 60, 10800, 86400)


@pytest.mark.parametrize("level", ["9" * 400 + "d", "9" * 5000 + "s", "99999999999999999999d", "2\N{SUPERSCRIPT TWO}s"])
def test_a_delay_that_no_time_can_have_is_a_problem(tmp_path: Path, level: str) -> None:
    """The first was a traceback, and messages of such a level were delivered at once."""
    with pytest.raises(ConfigError, match=r"messageDelayLevel: .* is (more than 100000000d|not a number)"):
        load_config(conf(tmp_path, f"messageDelayLevel=1s {level}\n"))


def test_every_problem_is_told_with_its_line_and_the_nearest_key(tmp_path: Path) -> None:
    path = conf(tmp_path, "listnPort=1\nlistenPort=ten\n\nslaveTimeout=0\nbrokerRole=KING\nzzzzzzzzzz=1\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert caught.value.problems == [
        f"{path}:1: unknown key 'listnPort'; nearest known key: listenPort",
        f"{path}:2: listenPort: 'ten' is not a whole number",
        f"{path}:4: slaveTimeout: 0 is outside 1..600000",
        f"{path}:5: brokerRole: 'KING' is not one of ASYNC_MASTER, SYNC_MASTER, SLAVE",
        f"{path}:6: unknown key 'zzzzzzzzzz'",
    ]


def test_a_file_that_cannot_be_read_is_one_problem(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.conf: cannot be read: No such file"):
        load_config(tmp_path / "nowhere.conf")


def test_a_broker_conf_of_a_rocketmq_user_is_accepted_and_unused_keys_are_said_once(tmp_path: Path) -> None:
    path = conf(
        tmp_path,
        "brokerClusterName = DefaultCluster\nbrokerName = broker-a\nbrokerId = 0\ndeleteWhen = 04;16\n"
        "fileReservedTime = 48\nbrokerRole = SYNC_MASTER\nflushDiskType = SYNC_FLUSH\n"
        "namesrvAddr = 10.0.0.1:9876\nsendMessageThreadPoolNums=64\naclEnable=false\nuseTLS=false\n",
    )
    config = load_config(path)
    assert (config.delete_when, config.flush_disk_type) == ((4, 16), FlushDiskType.SYNC_FLUSH)
    assert (config.in_sync_replicas, config.ha_send_durable_only) == (2, True)
    (unused,) = config.notes
    assert f"sendMessageThreadPoolNums ({path}:9), useTLS ({path}:11)" in unused
    assert config.namesrv_addr == ("10.0.0.1:9876",)


def test_what_many_a_broker_conf_still_has_from_early_versions_is_accepted(tmp_path: Path) -> None:
    path = conf(
        tmp_path,
        "storePathConsumeQueue=/s/consumequeue\nstorePathIndex=/s/index\nstoreCheckpoint=/s/checkpoint\n"
        "abortFile=/s/abort\ncheckTransactionMessageEnable=false\n",
    )
    (note,) = load_config(path).notes
    assert f"no effect here: storePathConsumeQueue ({path}:1), storePathIndex ({path}:2)" in note
    assert (
        "early RocketMQ versions: the key is mappedFileSizeCommitLog now"
        in problems(mapedFileSizeCommitLog="1073741824")[0]
    )
    assert "the key is mappedFileSizeConsumeQueue now" in problems(mapedFileSizeConsumeQueue="6000000")[0]


def test_a_slave_on_the_masters_machine_or_another_can_have_any_other_port() -> None:
    for address in ("127.0.0.1:10914", "127.0.0.2:10912", "10.1.2.3:10912", "[::1]:10912"):
        assert load_config(None, {"brokerRole": "SLAVE", "haMasterAddress": address}).is_slave


def test_access_control_is_never_left_out_in_silence() -> None:
    (problem,) = problems(aclEnable="true", rocketmqHome="")
    assert "aclEnable=true needs rocketmqHome" in problem


def test_accounts_are_where_rocketmq_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETMQ_HOME", "/opt/rocketmq")
    assert load_config(None, {"aclEnable": "true"}).rocketmq_home == "/opt/rocketmq"
    assert load_config(None, {"aclEnable": "true", "rocketmqHome": "/etc/mq"}).rocketmq_home == "/etc/mq"


def test_the_command_line_wins_over_the_file_and_the_file_over_a_commands_defaults(tmp_path: Path) -> None:
    path = conf(tmp_path, "listenPort=11\nbrokerName=file\n")
    config = load_config(path, {"listenPort": "22000"}, defaults={"brokerName": "d", "brokerClusterName": "d"})
    assert (config.listen_port, config.broker_name, config.broker_cluster_name) == (22000, "file", "d")
    assert config.origins == {"listenPort": "command line", "brokerName": f"{path}:2"}


def test_a_key_set_twice_is_said(tmp_path: Path) -> None:
    config = load_config(conf(tmp_path, "brokerName=a\nbrokerName=b\n"))
    assert config.broker_name == "b"
    assert "set a second time" in config.notes[0]


def test_a_small_file_lowers_the_message_size_unless_it_was_asked_for() -> None:
    config = load_config(None, {"mappedFileSizeCommitLog": "65536"})
    assert config.max_message_size == 65536 - 1024
    assert "maxMessageSize is lowered" in config.notes[0]
    (problem,) = problems(mappedFileSizeCommitLog="65536", maxMessageSize="65536")
    assert "cannot fit in a file" in problem


def test_the_consume_queue_file_is_rounded_up_to_whole_units() -> None:
    assert load_config(None, {"mappedFileSizeConsumeQueue": "1001"}).mapped_file_size_consume_queue == 1020


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"brokerRole": "SLAVE", "haMasterAddress": "h:1", "brokerId": "0"}, "brokerId=0 means master"),
        ({"brokerRole": "SLAVE"}, "needs haMasterAddress"),
        ({"brokerRole": "SLAVE", "namesrvAddr": "h:9876"}, "and so it needs its brokerName"),
        ({"brokerId": "1"}, "brokerId=1 means slave"),
        ({"brokerRole": "SYNC_MASTER", "inSyncReplicas": "1"}, "would not wait for any slave"),
        ({"inSyncReplicas": "2"}, "has no effect on an ASYNC_MASTER"),
        ({"brokerRole": "SYNC_MASTER", "minInSyncReplicas": "3"}, "is more than inSyncReplicas=2"),
        ({"haSendHeartbeatInterval": "20000"}, "must be less than haHousekeepingInterval"),
        ({"brokerRole": "SYNC_MASTER", "slaveTimeout": "20001"}, "must not exceed haHousekeepingInterval"),
        ({"diskSpaceCleanForciblyRatio": "91"}, "must not exceed diskSpaceWarningLevelRatio"),
        ({"haTransferSizeMax": "1000"}, "must not exceed haTransferSizeMax"),
        ({"maxInFlightBytes": "1048576"}, "must not exceed maxInFlightBytes"),
        ({"haListenPort": "10909"}, "is taken by the client listeners"),
        ({"listenPort": "65535"}, "leaves no room"),
        ({"brokerIP1": "127.0.0.1", "bindAddress": "0.0.0.0"}, "bindAddress=0.0.0.0 would listen beyond this machine"),
        ({"haBindAddress": "somewhere"}, "haBindAddress=somewhere would listen"),
        ({"metricsListen": "0.0.0.0:9100"}, "metricsListen=0.0.0.0:9100 would listen beyond this machine"),
        ({"brokerIP1": "10.1.2.3"}, "brokerIP1=10.1.2.3 would listen"),
        ({"tlsMode": "enforcing", "tlsTrustCertPath": "/a"}, "needs tlsCertPath and tlsKeyPath"),
        ({"tlsMode": "permissive", "tlsCertPath": "/a", "tlsKeyPath": "/b"}, "tlsTrustCertPath is needed"),
        ({"tlsNeedClientAuth": "false", "tlsPeerNames": "a"}, "tlsPeerNames has no effect"),
        ({"haTlsMode": "permissive", "haTlsCertPath": "/a"}, "both sides prove who they are"),
        ({"haMasterAddress": "host"}, "is not host:port"),
        ({"haMasterAddress": "host:99999"}, "'host:99999' is not host:port: ports are 1 to 65535"),
        ({"haMasterAddress": f"host:{'9' * 5000}"}, "ports are 1 to 65535"),
        ({"haMasterAddress": "::1:10912"}, r"write an IPv6 address as [address]:port"),
        ({"haAllow": "10.0.0.0/33"}, "10.0.0.0/33"),
        ({"deleteWhen": "24"}, "hours 00..23"),
        ({"messageDelayLevel": "1x"}, "followed by s, m, h or d"),
        ({"storePathCommitLog": "/a,/b"}, "several directories"),
        ({"storePathRootDir": " "}, "storePathRootDir is empty"),
        ({"storePathRootDir": "/a", "storePathCommitLog": "/a/"}, "must be a directory of its own"),
        ({"brokerRole": "SLAVE", "haMasterAddress": "127.0.0.1:10912"}, "is this broker's own HA port"),
        ({"brokerRole": "SLAVE", "haMasterAddress": "localhost:9", "haListenPort": "9"}, "name the master's"),
        (
            {"brokerRole": "SLAVE", "haMasterAddress": "10.0.0.2:10912", "masterAddress": "127.0.0.1:10911"},
            "masterAddress=127.0.0.1:10911 is this broker's own listenPort",
        ),
        ({"haPeers": "10.0.0.2:10912,127.0.0.1:10912"}, "haPeers names 127.0.0.1:10912, this broker's own HA port"),
        ({"haPeers": "10.0.0.2:10912,10.0.0.2:10912"}, "names 10.0.0.2:10912 twice: each replica counts once"),
        ({"haPeers": "127.0.0.2:10912", "brokerIP1": "127.0.0.2"}, "own HA port; name the other replicas only"),
        (
            {"haPeers": "127.0.0.3:10912", "brokerIP1": "127.0.0.2", "brokerIP2": "127.0.0.3"}
            | {"haBindAddress": "0.0.0.0", "allowInsecure": "true"},
            "own HA port; name the other replicas only",
        ),
        ({"longPollingEnable": "yes"}, "neither true nor false"),
        ({"traceTopicEnable": "true", "msgTraceTopicName": "a b"}, "msgTraceTopicName=a b is no topic"),
        ({"traceTopicEnable": "true", "msgTraceTopicName": "t" * 128}, "1 to 127 of the characters"),
        ({"traceTopicEnable": "true", "msgTraceTopicName": ""}, "leave it out for RMQ_SYS_TRACE_TOPIC"),
        ({"traceTopicEnable": "true", "msgTraceTopicName": "Spuren\u00e4"}, "is no topic"),
    ],
)
def test_what_cannot_work_is_refused_with_its_reason(overrides: dict[str, str], reason: str) -> None:
    (problem,) = problems(**overrides)
    assert problem.startswith("command line: ")
    assert reason in problem


@pytest.mark.parametrize("key", sorted(REFUSED))
@pytest.mark.parametrize("value", ["true", "TRUE", "/fast/log:/slow/log"])
def test_a_key_without_which_data_would_be_elsewhere_is_refused_whatever_it_says(key: str, value: str) -> None:
    """Some are switches, others name directories or classes; as one without effect it would be passed over."""
    (problem,) = problems(**{key: value})
    assert problem == f"command line: {key}={value}: {REFUSED[key]}; remove the line to run without it"
    for off in ("", " False "):
        assert key in "".join(load_config(None, {key: off}).notes)


def test_listening_beyond_the_machine_is_possible_when_asked_for() -> None:
    config = load_config(None, {"brokerIP1": "10.1.2.3", "bindAddress": "0.0.0.0", "allowInsecure": "true"})
    assert (config.bind_address, config.ha_bind_address) == ("0.0.0.0", "10.1.2.3")


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"brokerIP1": "0.0.0.0"}, "brokerIP1=0.0.0.0 is told to clients"),
        ({"brokerIP1": "::", "bindAddress": "::"}, "brokerIP1=:: is told to clients"),
        ({"brokerIP1": "broker-a.example"}, "must be one IP address"),
        ({"bindAddress": "0.0.0.0"}, "clients would be told to connect to 127.0.0.1; set brokerIP1"),
        ({"bindAddress": "10.1.2.3", "haBindAddress": "10.1.2.3"}, "set brokerIP1"),
    ],
)
def test_an_address_that_clients_could_not_use_is_refused(overrides: dict[str, str], reason: str) -> None:
    (problem,) = problems(allowInsecure="true", **overrides)
    assert reason in problem


def test_no_address_is_guessed_from_the_machine() -> None:
    """#4140, #1057: out of the box this machine alone; a slave's two addresses are both given, or none is made up."""
    config = load_config(None, {})
    addresses = (config.broker_ip1, config.broker_ip2, config.bind_address, config.ha_bind_address)
    assert addresses == ("127.0.0.1",) * 4
    slave = load_config(None, {"brokerRole": "SLAVE", "haMasterAddress": "10.0.0.7:10912"})
    assert (slave.ha_master_address, slave.master_address) == ("10.0.0.7:10912", "")


def test_enforced_tls_needs_no_permission_and_permissive_tls_does() -> None:
    files = {
        f"{prefix}{name}": "/a.pem" for prefix in ("tls", "haTls") for name in ("CertPath", "KeyPath", "TrustCertPath")
    }
    config = load_config(None, {"brokerIP1": "10.1.2.3", "tlsMode": "enforcing", "haTlsMode": "enforcing", **files})
    assert (config.bind_address, config.ha_bind_address) == ("10.1.2.3", "10.1.2.3")
    (problem,) = problems(brokerIP1="10.1.2.3", tlsMode="enforcing", haTlsMode="permissive", **files)
    assert "would listen beyond this machine" in problem


@pytest.mark.parametrize("mode", ["disabled", "permissive", "enforcing"])
@pytest.mark.parametrize(
    ("prefix", "listening"),
    [
        ("tls", {"brokerIP1": "10.1.2.3", "brokerIP2": "127.0.0.1"}),
        ("haTls", {"haBindAddress": "10.1.2.3"}),
        ("tls", {"metricsListen": "10.1.2.3:9100"}),
    ],
    ids=["clients", "replicas", "monitoring"],
)
def test_each_port_beyond_the_machine_needs_tls_that_nobody_can_leave_out(
    prefix: str, listening: dict[str, str], mode: str
) -> None:
    """With permissive TLS who speaks without it is served as well."""
    files = {f"{prefix}{name}": "/a.pem" for name in ("CertPath", "KeyPath", "TrustCertPath")}
    keys = listening | files | {f"{prefix}Mode": mode}
    if mode == "enforcing":
        assert load_config(None, keys).notes == ()
    else:
        (problem,) = problems(**keys)
        assert "would listen beyond this machine" in problem
    assert load_config(None, keys | {"allowInsecure": "true"}).notes == ()


def test_loopback_needs_no_permission() -> None:
    config = load_config(None, {"bindAddress": "localhost", "haBindAddress": "::1"})
    assert config.ha_bind_address == "::1"


@pytest.mark.parametrize("name", ["master", "slave"])
def test_the_shipped_files_work_as_they_are(name: str) -> None:
    config = load_config(ROOT / "conf" / f"{name}.conf")
    assert config.is_slave == (name == "slave")
    assert config.notes == ()


def test_the_shipped_file_of_a_group_works_for_each_of_its_members() -> None:
    for number in range(3):
        config = load_config(ROOT / "conf" / "dledger-n0.conf", {"dLegerSelfId": f"n{number}"})
        assert (config.broker_id, config.d_leger_group, config.notes) == (number + 1, "RaftNode00", ())


@pytest.mark.parametrize("name", ["master", "slave", "dledger-n0"])
def test_the_shipped_files_say_how_they_are_monitored(name: str, tmp_path: Path) -> None:
    text = (ROOT / "conf" / f"{name}.conf").read_text(encoding="utf-8")
    config = load_config(conf(tmp_path, text.replace("# metricsListen=", "metricsListen=")))
    assert ":910" in f":{config.metrics_listen}"


def test_the_shipped_slave_follows_the_shipped_master() -> None:
    master, slave = (load_config(ROOT / "conf" / f"{name}.conf") for name in ("master", "slave"))
    assert split_address(slave.ha_master_address) == (master.broker_ip2, master.ha_listen_port)
    assert split_address(slave.master_address) == (master.broker_ip1, master.listen_port)
    assert slave.mapped_file_size_commit_log == master.mapped_file_size_commit_log
    assert slave.store_path_root_dir != master.store_path_root_dir


def test_every_value_shown_reads_back_as_itself(tmp_path: Path) -> None:
    text = (
        "brokerRole=SLAVE\nhaMasterAddress=[::1]:10912\nhaPeers=a:1,b:2\nhaAllow=10.0.0.1,fe80::/10\nbrokerName=a b\n"
    )
    config = load_config(conf(tmp_path, text))
    again = load_config(conf(tmp_path, as_properties(config)))
    assert again == config


def test_show_tells_where_each_value_comes_from(tmp_path: Path) -> None:
    path = conf(tmp_path, "slaveTimeout=1500\n")
    shown = {key.name: (value, origin) for key, value, origin in shown_config(load_config(path))}
    assert shown["slaveTimeout"] == ("1500", f"{path}:1")
    assert shown["listenPort"] == ("10911", "default")
    assert shown["haListenPort"] == ("10912", "default")


def test_the_reference_page_is_current() -> None:
    """Run ``rmqha config reference > docs/configuration.md`` when this fails."""
    assert (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8") == reference_page()


def test_the_table_is_sound() -> None:
    config = load_config(None)
    assert not (UNUSED | set(REFUSED)) & set(KEYS)
    for key in KEYS.values():
        assert key.meaning.endswith((".", ")")), key.name
        assert key.kind.scale is None or (key.low is not None and key.high is not None), key.name
        assert hasattr(config, key.attribute)
        assert bool(key.default) + bool(key.derived) <= 1, key.name
        if key.kind.name in ("ms", "s", "hours"):
            assert key.attribute.endswith("_s"), key.name


def test_every_key_has_an_effect() -> None:
    """A key that nothing reads would be a promise that nobody keeps: it belongs among RocketMQ's unused ones."""
    package = ROOT / "rmqha"
    readers = [
        *(package / "broker").rglob("*.py"),
        # their options are the settings of the same names
        *(package / "store").glob("*.py"),
        *(package / "ha").glob("*.py"),
        *(package / "remoting").glob("*.py"),
        *(package / "dledger").glob("*.py"),
        *(package / "metrics").glob("*.py"),
        package / "config" / "derive.py",
        package / "config" / "derive_dledger.py",
        package / "config" / "relations.py",
    ]
    text = "\n".join(path.read_text(encoding="utf-8") for path in readers)
    unread = [key.name for key in KEYS.values() if not re.search(rf"\b{key.attribute}\b", text)]
    assert unread == []


def test_a_config_cannot_be_changed() -> None:
    config: BrokerConfig = load_config(None)
    with pytest.raises(AttributeError):
        config.listen_port = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("lines", "note"),
    [
        (
            "brokerRole=SYNC_MASTER\nhaMasterAddress=10.0.0.9:10912",
            "haMasterAddress has no effect with brokerRole=",
        ),
        ("masterAddress=10.0.0.9:10911", "masterAddress has no effect with brokerRole=ASYNC_MASTER"),
        ('storePathRootDir="/data/x"', 'storePathRootDir="/data/x" is taken as it stands, with its "'),
        ("storePathCommitLog=$HOME/log", "storePathCommitLog=$HOME/log is taken as it stands, with its $"),
    ],
)
def test_what_a_half_edited_file_says_is_noted(lines: str, note: str, tmp_path: Path) -> None:
    """It was good, and started a second master, or an empty store below the working directory."""
    file = tmp_path / "broker.conf"
    file.write_text(lines)
    assert any(one.startswith(note) for one in load_config(str(file), {}).notes)
