"""broker.conf of a broker on a DLedger group: RocketMQ's keys, DLedger's names, and what cannot be."""

import pytest

from rmqha.broker.dledger.dledger_options import member_options, server_options
from rmqha.broker.options import clean_options
from rmqha.broker.tuning import Tuning
from rmqha.choices import BrokerRole
from rmqha.config import load_config
from rmqha.config.load_dledger import load_dledger_settings
from rmqha.errors import ConfigError

PEERS = "n0-127.0.0.1:40911;n1-127.0.0.1:40912;n2-127.0.0.1:40913"
GROUP = {"enableDLegerCommitLog": "true", "dLegerPeers": PEERS, "dLegerSelfId": "n1", "dLegerGroup": "g"}


def test_rocketmqs_keys_are_dledgers_options() -> None:
    """Spec: dledger §6.4."""
    config = load_config(
        None,
        GROUP
        | {"mappedFileSizeCommitLog": "65536", "storePathRootDir": "/s", "storePathDLedgerCommitLog": "/data"}
        | {"preferredLeaderId": "n2", "isEnableBatchPush": "true"},
    )
    member = member_options(config)
    assert (member.group, member.store.self_id, member.peers["n2"]) == ("g", "n1", ("127.0.0.1", 40913))
    assert member.store.default_path == "/s/dledger-n1"
    assert (member.store.mapped_file_size_for_entry_data, member.store.data_store_paths) == (65536, ["/data"])
    assert (member.transfer.preferred_leader_ids, member.pusher.push.is_enable_batch_push) == (("n2",), True)
    assert (config.broker_id, config.broker_name, config.broker_role) == (2, "g", BrokerRole.ASYNC_MASTER)


def test_dledgers_own_names_are_keys_and_rule_what_is_deleted() -> None:
    config = load_config(
        None,
        GROUP
        | {"heartBeatTimeIntervalMs": "300", "dledgerAck": "written", "fileReservedHours": "5"}
        | {"diskSpaceRatioToCheckExpired": "0.6", "diskSpaceRatioToForceClean": "0.8", "enableDiskForceClean": "false"},
    )
    member, clean = member_options(config), clean_options(config, Tuning())
    assert (member.elector.heart_beat_time_interval_s, member.store.acks_flushed) == (0.3, False)
    assert (clean.file_reserved_time_s, clean.disk_max_used_space_ratio) == (5 * 3600.0, 60)
    assert (clean.disk_space_clean_forcibly_ratio, clean.disk_space_warning_level_ratio) == (80, 85)
    assert not clean.clean_file_forcibly_enable


@pytest.mark.parametrize("percent", [29, 57, 58, 70])
def test_a_ratio_is_the_percentage_that_it_says(percent: int) -> None:
    """0.57 is a little less than 57 hundredths."""
    given = dict.fromkeys(("diskSpaceRatioToCheckExpired", "diskSpaceRatioToForceClean"), f"0.{percent}")
    clean = clean_options(load_config(None, GROUP | given), Tuning())
    assert (clean.disk_max_used_space_ratio, clean.disk_space_clean_forcibly_ratio) == (percent, percent)


def test_a_home_directory_that_no_shell_has_expanded_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a unit of systemd: the store would be in a directory by the name of ~, wherever that was started."""
    monkeypatch.setenv("HOME", "/home/of-the-test")
    options = server_options(load_dledger_settings({}), "g", "n0", peers={"n0": "h:1"}, store_base_dir="~/d")
    assert options.store.default_path == "/home/of-the-test/d/dledger-n0"


@pytest.mark.parametrize(("ratio", "levels"), [("0.93", (93, 98)), ("0.95", (95, 99)), ("0.99", (99, 99))])
def test_however_full_a_disk_may_be_some_room_is_left(ratio: str, levels: tuple[int, int]) -> None:
    """Above 100 % no disk is ever: messages would be taken until a write fails, which is final."""
    clean = clean_options(load_config(None, GROUP | {"diskSpaceRatioToForceClean": ratio}), Tuning())
    assert (clean.disk_space_clean_forcibly_ratio, clean.disk_space_warning_level_ratio) == levels


def test_the_group_is_named_after_the_broker_and_the_other_way_round() -> None:
    named = load_config(
        None, {key: value for key, value in GROUP.items() if key != "dLegerGroup"} | {"brokerName": "a"}
    )
    assert (named.broker_name, named.d_leger_group) == ("a", "a")
    both = load_config(None, GROUP | {"brokerName": "a"})
    assert (both.broker_name, both.d_leger_group) == ("a", "g")


def test_a_role_in_the_file_is_noted() -> None:
    config = load_config(None, GROUP | {"brokerRole": "SLAVE", "brokerId": "7"})
    assert [note.split(" has")[0] for note in config.notes] == ["brokerRole", "brokerId"]
    assert (config.is_slave, config.broker_id) == (False, 2)


def test_keys_of_the_classic_replication_are_noted_and_change_nothing() -> None:
    """They were refused, with advice for a classic master, or took effect on nothing without a word."""
    classic = {"inSyncReplicas": "3", "haPeers": "127.0.0.1:10912", "haAllow": "10.0.0.0/8", "haTlsMode": "enforcing"}
    config = load_config(None, GROUP | classic)
    assert sorted(note.split(" has no effect with enableDLegerCommitLog=true")[0] for note in config.notes) == sorted(
        classic
    )
    assert (config.in_sync_replicas, config.ha_peers) == (1, ())


def test_of_two_names_for_the_same_dledgers_counts_and_that_is_noted() -> None:
    config = load_config(None, GROUP | {"fileReservedHours": "5", "fileReservedTime": "7"})
    assert config.file_reserved_time_s == 5 * 3600.0
    assert [note.split(", which")[0] for note in config.notes] == [
        "fileReservedTime has no effect beside fileReservedHours"
    ]


def test_a_members_port_takes_as_many_connections_as_the_process_has_descriptors_for() -> None:
    """It took 4,096 that broker/main.py had not counted: with those the store had none left for its next file."""
    assert member_options(load_config(None, GROUP)).limits.max_connections == 64
    assert member_options(load_config(None, GROUP | {"maxHaConnections": "7"})).limits.max_connections == 7


@pytest.mark.parametrize(("changes", "acks_flushed"), [({}, True), ({"dledgerAck": "written"}, False)])
def test_what_counts_as_stored_is_one_thing_to_the_store_and_to_who_answers(
    changes: dict[str, str], *, acks_flushed: bool
) -> None:
    """One that answers before its disk has it loses, at a power cut, what was acknowledged."""
    member = member_options(load_config(None, GROUP | changes))
    assert (member.store.acks_flushed, member.pusher.acks_flushed) == (acks_flushed, acks_flushed)


@pytest.mark.parametrize("key", ["mappedFileSizeForEntryData", "mappedFileSizeCommitLog"])
def test_either_name_sets_the_size_of_the_data_files(key: str) -> None:
    config = load_config(None, GROUP | {key: "65536"})
    assert (config.mapped_file_size_for_entry_data, config.mapped_file_size_commit_log) == (65536, 65536)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dLegerPeers": ""}, "dLegerPeers: it names no member"),
        ({"dLegerPeers": "n0:40911"}, "is not ID-HOST:PORT"),
        ({"dLegerSelfId": "n7"}, "dLegerSelfId=n7 is none of dLegerPeers: n0, n1, n2"),
        ({"dLegerPeers": "node-127.0.0.1:40911", "dLegerSelfId": "node"}, "is not a letter and a number"),
        ({"dLegerPeers": PEERS + ";a1-127.0.0.1:40999"}, "a1 and n1 have the same number"),
        ({"preferredLeaderId": "n1;n9"}, "n9 is to be preferred as a leader, but is none of dLegerPeers: n0, n1, n2"),
        ({"dLegerGroup": "../g"}, "would lead out of the store's directory"),
        ({"listenPort": "40912"}, "the group needs a port of its own"),
        ({"listenPort": "40914"}, "the group needs a port of its own"),
        ({"dLegerPeers": PEERS.replace("127.0.0.1:40912", "10.0.0.2:40912")}, "DLedger knows no TLS"),
        ({"mappedFileSizeForEntryData": "4096", "mappedFileSizeCommitLog": "8192"}, "mean the same here"),
        ({"mappedFileSizeForEntryData": "128"}, "is too small for a broker's messages; set at least 4096"),
        ({"storePathDLedgerCommitLog": "/a,/b"}, "a broker's log lies in one directory"),
        ({"storePathDLedgerCommitLog": "/a/", "storePathCommitLog": "/a"}, "name another one for the entries"),
        ({"readOnlyDataStoreDirs": "/a"}, "a broker's log lies in one directory"),
        ({"minVoteIntervalMs": "2000"}, "minVoteIntervalMs is above maxVoteIntervalMs"),
    ],
)
def test_what_cannot_work_is_refused_with_its_reason(changes: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(None, GROUP | changes)
    assert reason in str(raised.value)


def test_without_the_switch_the_other_keys_mean_nothing() -> None:
    config = load_config(None, {"dLegerPeers": "nobody", "dLegerSelfId": "n7"})
    assert (config.broker_id, config.enable_dleger_commit_log) == (0, False)
