"""`rmqha groups`: what is asked of a broker while members are connected, and while none is."""

import json
from typing import Any

import pytest

from rmqha.cli.main import run
from rmqha.codec.codes import RequestCode
from rmqha.codec.message_queue import message_queue_key
from rmqha.codec.remoting import RemotingCommand
from tests.cli.fake_brokers import Answer, FakeBrokers, answer, runtime

Output = pytest.CaptureFixture[str]
A, B = "10.0.0.1:10911", "10.0.0.2:10911"
NS = "10.0.0.9:9876"
RESET = ["groups", "reset", "billing", "--topic", "orders", "-b", A]
MEMBER = {"clientId": "c@1", "clientAddr": "10.0.0.7:5000", "language": "JAVA", "version": 399}


def offsets(topic: str, *lags: int) -> dict[str, Any]:
    return {
        "consumeTps": 0.0,
        "offsetTable": {
            message_queue_key(topic, queue_id, broker_name="a"): {
                "brokerOffset": 10, "consumerOffset": 10 - lag, "lastTimestamp": 0,
            }
            for queue_id, lag in enumerate(lags)
        },
    }  # fmt: skip


def broker(*, members: bool = False) -> dict[RequestCode, Answer]:
    """Two queues: [2, 10), last stored at 1000; the group is at 7 in the first, and never committed in the second."""
    stats = {"lastUpdateTimestamp": 1000, "maxOffset": 10, "minOffset": 2}
    by_queue = {message_queue_key("orders", queue_id, broker_name="a"): stats for queue_id in (0, 1)}
    topic = {"topicName": "orders", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
    return {
        RequestCode.GET_BROKER_RUNTIME_INFO: runtime(broker_name="a"),
        RequestCode.GET_ALL_TOPIC_CONFIG: answer({"topicConfigTable": {"orders": topic}}),
        RequestCode.GET_TOPIC_STATS_INFO: lambda fields: (
            answer({"offsetTable": by_queue}) if fields["topic"] == "orders" else answer(code=17, remark="no topic")
        ),
        RequestCode.GET_MIN_OFFSET: answer(offset="2"),
        RequestCode.GET_MAX_OFFSET: answer(offset="10"),
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: answer(offset="4"),
        RequestCode.QUERY_CONSUMER_OFFSET: lambda fields: (
            answer(offset="7")
            if (fields["queueId"], fields["consumerGroup"]) == ("0", "billing")
            else answer(code=22, remark="Not found")
        ),
        RequestCode.GET_CONSUMER_CONNECTION_LIST: (
            answer({"connectionSet": [MEMBER]}) if members else answer(code=206, remark="not online")
        ),
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: answer(
            {"subscriptionGroupTable": {"TOOLS_CONSUMER": {}, "idle": {}}}
        ),
        RequestCode.GET_BROKER_CONSUME_STATS: answer(
            {"consumeStatsList": [{"billing": [offsets("orders", 3, 4), offsets("%RETRY%billing", 1)]}], "totalDiff": 8}
        ),
        RequestCode.GET_CONSUME_STATS: lambda fields: answer(
            offsets("%RETRY%billing", 1)
            if fields.get("topic", "").startswith("%RETRY%")
            else offsets("orders", 3, -1)
            if fields["consumerGroup"] == "billing"
            else offsets("orders", 10, 10)
        ),
        RequestCode.UPDATE_CONSUMER_OFFSET: answer(),
        RequestCode.SAVE_CONSUMER_OFFSETS: answer(),
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: answer({"offsetTable": {}}),
    }


def changes(brokers: FakeBrokers) -> list[tuple[RequestCode, dict[str, str]]]:
    """What was asked that changes anything."""
    codes = (RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
    return [(code, fields) for _, code, fields in brokers.asked if code in codes]


def test_the_list_sums_up_the_lag_of_each_group(fake_brokers: FakeBrokers, capsys: Output) -> None:
    fake_brokers.answers = {A: broker()}
    assert run(["groups", "list", "-b", A, "--format", "json"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"group": "billing", "broker": "a", "members": 0, "topics": 2, "lag": 8, "notCommitted": []},
        {"group": "idle", "broker": "a", "members": 0, "topics": 0, "lag": 0, "notCommitted": []},
    ]


def stuck() -> dict[RequestCode, Answer]:
    """It consumes orders, of which [2, 10) is there in each of two queues, and has committed nothing of it."""
    rows = {"brokerOffset": 10, "consumerOffset": 2, "lastTimestamp": 0, "notCommitted": True}
    table = {message_queue_key("orders", queue_id, broker_name="a"): rows for queue_id in (0, 1)}
    known = {RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: answer({"subscriptionGroupTable": {}})}
    stats = {"consumeTps": 0.0, "offsetTable": table}

    def of_group(fields: dict[str, str]) -> RemotingCommand:
        assert fields["notCommitted"] == "true"
        return answer(stats if fields.get("topic") in (None, "orders") else {"offsetTable": {}})

    def of_all(fields: dict[str, str]) -> RemotingCommand:
        assert fields["notCommitted"] == "true"
        groups = [{"billing": [offsets("paid", 1)]}, {"billing": [stats]}]
        return answer({"consumeStatsList": groups, "totalDiff": 1})

    return broker() | known | {RequestCode.GET_CONSUME_STATS: of_group, RequestCode.GET_BROKER_CONSUME_STATS: of_all}


def test_what_a_group_has_committed_nothing_of_is_its_lag(fake_brokers: FakeBrokers, capsys: Output) -> None:
    """It was told to have none, or not to exist."""
    fake_brokers.answers = {A: stuck()}
    assert run(["groups", "list", "-b", A]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["GROUP", "BROKER", "MEMBERS", "TOPICS", "LAG", "NOTHING", "COMMITTED", "OF"],
        ["billing", "a", "0", "2", "17", "orders"],
    ]
    for topic in ([], ["--topic", "orders"]):
        assert run(["groups", "describe", "billing", "-b", A, *topic]) == 0
        out = capsys.readouterr().out
        assert "lag: 16 messages" in out
        assert "nothing is committed of orders: all messages that are there count as lag" in out
        assert ["orders", "a", "0", "-", "10", "8", "-"] in [line.split() for line in out.splitlines()]
    assert run(["groups", "describe", "billing", "-b", A, "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(queue["consumed"], queue["committed"], queue["lag"]) for queue in told["queues"]] == [(2, False, 8)] * 2


def test_a_group_is_shown_with_what_it_gave_up(fake_brokers: FakeBrokers, capsys: Output) -> None:
    stats = {"lastUpdateTimestamp": 1000, "maxOffset": 10, "minOffset": 7}

    def of_topic(fields: dict[str, str]) -> RemotingCommand:
        queue_ids = {"%RETRY%billing": (0, 1), "%DLQ%billing": (0,)}[fields["topic"]]
        by_queue = {message_queue_key(fields["topic"], one, broker_name="a"): stats for one in queue_ids}
        return answer({"offsetTable": by_queue})

    fake_brokers.answers = {A: broker(), B: broker() | {RequestCode.GET_TOPIC_STATS_INFO: of_topic}}
    assert run(["groups", "describe", "billing", "-b", A, "-b", B]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "to be tried again: 4 messages in %RETRY%billing" in lines, (
        "1 of one queue, and all 3 of one without a place"
    )
    assert "given up (dead letters): 3 messages in %DLQ%billing" in lines
    assert run(["groups", "describe", "billing", "--topic", "orders", "-b", B, "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["retryLag"], told["deadLetters"]) == (4, 3)


def test_a_group_of_which_no_place_is_known_is_not_said_to_lack_nothing(
    fake_brokers: FakeBrokers, capsys: Output
) -> None:
    """A broadcasting one, or one that a broker of RocketMQ's tells nothing of."""
    nothing: dict[RequestCode, Answer] = {RequestCode.GET_CONSUME_STATS: answer({"offsetTable": {}})}
    fake_brokers.answers = {A: broker(members=True) | nothing}
    assert run(["groups", "describe", "billing", "-b", A]) == 0
    assert "no place of it is known here, and so no lag" in capsys.readouterr().out


def test_only_places_count_that_are_deleted(fake_brokers: FakeBrokers, capsys: Output) -> None:
    fake_brokers.answers = {A: stuck() | {RequestCode.DELETE_SUBSCRIPTIONGROUP: answer()}}
    assert run(["groups", "delete", "billing", "-b", A, "--yes"]) == 0
    assert "billing is deleted, with its offsets in 1 queues" in capsys.readouterr().out


def test_a_group_is_shown_with_members_and_lag_and_is_never_ahead(fake_brokers: FakeBrokers, capsys: Output) -> None:
    fake_brokers.answers = {A: broker(members=True)}
    assert run(["groups", "describe", "billing", "-b", A]) == 0
    out = capsys.readouterr().out
    assert out.startswith("group billing, members connected: 1, lag: 3 messages\n")
    assert "c@1" in out


def test_a_group_is_shown_with_its_settings_on_each_broker(fake_brokers: FakeBrokers, capsys: Output) -> None:
    """A group that may not consume looked like one whose members are away."""
    table = {"subscriptionGroupTable": {"billing": {"consumeEnable": False, "retryMaxTimes": 3}}}
    fake_brokers.answers = {A: broker() | {RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: answer(table)}}
    assert run(["groups", "describe", "billing", "-b", A]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["SETTING", "a"] in lines
    assert ["consumeEnable", "false"] in lines
    assert ["retryMaxTimes", "3"] in lines
    assert ["retryQueueNums"] not in lines, "what no broker tells is left out"
    assert run(["groups", "describe", "billing", "-b", A, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"] == {"a": {"consumeEnable": False, "retryMaxTimes": 3}}


def test_a_group_that_nobody_knows_has_no_lag_in_a_topic(fake_brokers: FakeBrokers, capsys: Output) -> None:
    """A broker tells the queues of a topic that is named to any group."""
    fake_brokers.answers = {A: broker()}
    assert run(["groups", "describe", "biling", "--topic", "orders", "-b", A]) == 1
    assert "group biling does not exist" in capsys.readouterr().err
    assert run(["groups", "describe", "billing", "--topic", "orders", "-b", A]) == 0


@pytest.mark.parametrize(
    ("place", "wanted"),
    [("earliest", [2, 2]), ("latest", [10, 10]), ("@900000000", [10, 10]), ("3", [3, 3]), ("1", [2, 2])],
)
def test_a_plan_changes_nothing_and_is_what_is_done(
    place: str, wanted: list[int], fake_brokers: FakeBrokers, capsys: Output
) -> None:
    fake_brokers.answers = {A: broker()}
    assert run([*RESET, "--to", place, "--format", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [queue["wanted"] for queue in plan["queues"]] == wanted
    assert [queue["current"] for queue in plan["queues"]] == [7, None]
    assert changes(fake_brokers) == []
    assert run([*RESET, "--to", place, "--execute"]) == 0
    assert [(code, fields["commitOffset"]) for code, fields in changes(fake_brokers)] == [
        (RequestCode.UPDATE_CONSUMER_OFFSET, str(offset)) for offset in wanted
    ]


def test_a_broker_that_is_away_is_told_by_the_exit_code_though_the_others_are_changed(
    fake_brokers: FakeBrokers, capsys: Output
) -> None:
    """A name server still names it; a script goes by whether all was done."""
    known = {name: {"brokerName": name, "cluster": "c", "brokerAddrs": {"0": at}} for name, at in (("a", A), ("b", B))}
    names = answer({"brokerAddrTable": known, "clusterAddrTable": {"c": list(known)}})
    fake_brokers.answers = {NS: {RequestCode.GET_BROKER_CLUSTER_INFO: names}, A: broker()}
    assert run([*RESET[:-1], NS, "--to", "latest", "--execute"]) == 3
    assert f"the broker at {B} cannot be reached" in capsys.readouterr().err
    assert [fields["commitOffset"] for _, fields in changes(fake_brokers)] == ["10", "10"]


@pytest.mark.parametrize(("answered", "code"), [(0, 0), (3, 0), (1, 1)])
def test_done_is_said_once_no_crash_undoes_it(
    answered: int, code: int, fake_brokers: FakeBrokers, capsys: Output
) -> None:
    """A broker of RocketMQ's does not know the question."""
    fake_brokers.answers = {
        A: broker() | {RequestCode.SAVE_CONSUMER_OFFSETS: answer(code=answered, remark="a full disk?")}
    }
    assert run([*RESET, "--to", "latest", "--execute"]) == code
    out, err = capsys.readouterr()
    assert ("Done" in out) is (code == 0)
    assert ("a crash of" in err and "a full disk?" in err) is (code == 1)


@pytest.mark.parametrize(
    ("place", "timestamp", "wanted"), [("earliest", "0", 2), ("latest", "-1", 10), ("@900000000", "900000000", 4)]
)
def test_members_that_are_connected_are_told_a_time(
    place: str, timestamp: str, wanted: int, fake_brokers: FakeBrokers, capsys: Output
) -> None:
    """A plan for a time says what their broker will find by it."""
    fake_brokers.answers = {A: broker(members=True)}
    assert run([*RESET, "--to", place, "--execute", "--format", "json"]) == 0
    told = {"topic": "orders", "group": "billing", "timestamp": timestamp, "isForce": "true"}
    assert changes(fake_brokers) == [(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, told)]
    assert {queue["wanted"] for queue in json.loads(capsys.readouterr().out)["queues"]} == {wanted}
    assert run([*RESET, "--to", "3", "--execute"]) == 1
    assert "stop them first" in capsys.readouterr().err
    assert run([*RESET, "--to", place, "--execute"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "Done for group billing, topic orders: 1 connected members are told."


@pytest.mark.parametrize("place", ["end-", "-3", "", "@x"])
def test_what_is_no_place_is_refused(place: str, capsys: Output) -> None:
    assert run([*RESET, "--to", place]) == 2
    assert "is none of: earliest" in capsys.readouterr().err


def test_a_group_that_nobody_has_heard_of_is_not_set_anywhere_unless_it_is_meant(
    fake_brokers: FakeBrokers, capsys: Output
) -> None:
    """A note was all there was: offsets were committed for a name with a letter too few, and it said Done."""
    fake_brokers.answers = {A: broker()}
    mistyped = ["groups", "reset", "Biling", "--topic", "orders", "-b", A, "--to", "latest"]
    assert run(mistyped) == 1, "as --execute says"
    assert "Note: group Biling does not exist" in (err := capsys.readouterr().err)
    assert "did you mean billing?" in err
    assert run([*mistyped, "--execute"]) == 1
    assert "did you mean billing? To have a new group begin there, give --new" in capsys.readouterr().err
    assert changes(fake_brokers) == []
    assert run([*mistyped, "--new"]) == 0
    assert run([*mistyped, "--execute", "--new"]) == 0
    assert capsys.readouterr().err == ""
    assert len(changes(fake_brokers)) == 2
    assert run([*RESET, "--to", "latest"]) == 0
    assert capsys.readouterr().err == ""
    assert run(["groups", "reset", "zzz", "--topic", "orders", "-b", A, "--to", "latest", "--execute"]) == 1
    assert "'rmqha groups list' shows those that do. To have" in (err := capsys.readouterr().err)
    assert "did you mean" not in err


@pytest.mark.parametrize("current", ["0", "10"])
def test_each_queue_is_committed_also_where_the_group_seems_to_be_there(
    current: str, fake_brokers: FakeBrokers, capsys: Output
) -> None:
    """A broker answers 0 for a queue in which nothing was committed: only what is begins there whatever is tried."""
    there: dict[RequestCode, Answer] = {RequestCode.QUERY_CONSUMER_OFFSET: answer(offset=current)}
    there[RequestCode.GET_MIN_OFFSET] = answer(offset="0")
    fake_brokers.answers = {A: broker() | there}
    for place, wanted in (("earliest", "0"), ("latest", "10"), (current, current)):
        before = len(changes(fake_brokers))
        assert run([*RESET, "--to", place, "--execute"]) == 0
        assert [fields["commitOffset"] for _, fields in changes(fake_brokers)[before:]] == [wanted, wanted]
    capsys.readouterr()


def deletable(**more: Answer) -> dict[RequestCode, Answer]:
    topics = {
        name: {"topicName": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        for name in ("orders", "%RETRY%billing", "%RETRY%idle")
    }
    changed = {
        RequestCode.GET_ALL_TOPIC_CONFIG: answer({"topicConfigTable": topics}),
        RequestCode.DELETE_SUBSCRIPTIONGROUP: answer(),
    }
    return broker() | changed | {RequestCode[name]: one for name, one in more.items()}


def deleted(brokers: FakeBrokers) -> list[tuple[str, dict[str, str]]]:
    return [(at, fields) for at, code, fields in brokers.asked if code is RequestCode.DELETE_SUBSCRIPTIONGROUP]


def test_a_group_is_deleted_where_it_is_known_and_only_if_somebody_confirms(
    fake_brokers: FakeBrokers, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing: dict[str, Answer] = {
        "GET_ALL_SUBSCRIPTIONGROUP_CONFIG": answer({"subscriptionGroupTable": {}}),
        "GET_BROKER_CONSUME_STATS": answer({"consumeStatsList": []}),
    }
    fake_brokers.answers = {A: deletable(), B: deletable(**nothing)}
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    command = ["groups", "delete", "billing", "-b", A, "-b", B]
    assert run(command) == 2
    assert "Delete group billing on a, with its offsets in 3 queues? Topics that stay: %RETRY%billing." in (
        capsys.readouterr().err
    )
    assert deleted(fake_brokers) == []
    assert run([*command, "--yes"]) == 0
    assert deleted(fake_brokers) == [(A, {"groupName": "billing", "removeOffset": "true"})]
    assert capsys.readouterr().out == "a: billing is deleted, with its offsets in 3 queues\n"
    assert run([*command, "--yes", "--keep-offsets", "--format", "json"]) == 0
    assert deleted(fake_brokers)[1] == (A, {"groupName": "billing", "removeOffset": "false"})
    assert json.loads(capsys.readouterr().out) == {"broker": "a", "group": "billing", "offsetsDeleted": 0}
    assert run(["groups", "delete", "idle", "-b", A, "--yes"]) == 0
    assert "idle is deleted, with its offsets in 0 queues" in capsys.readouterr().out


def test_a_group_in_use_and_one_that_nobody_knows_are_not_deleted(fake_brokers: FakeBrokers, capsys: Output) -> None:
    fake_brokers.answers = {A: deletable(GET_CONSUMER_CONNECTION_LIST=answer({"connectionSet": [MEMBER]}))}
    assert run(["groups", "delete", "billing", "-b", A, "--yes"]) == 1
    assert "1 members are connected to a, and would make it again" in capsys.readouterr().err
    fake_brokers.answers = {A: deletable()}
    assert run(["groups", "delete", "iddle", "-b", A, "--yes"]) == 1
    err = capsys.readouterr().err
    assert ("group iddle does not exist" in err, "did you mean idle?" in err) == (True, True)
    assert deleted(fake_brokers) == []


@pytest.mark.parametrize(
    ("name", "near"), [("biling", "billing"), ("TOOLS_CONSUMR", "TOOLS_CONSUMER"), ("idl", "idle")]
)
def test_each_group_that_is_known_may_be_the_one_that_was_meant(
    name: str, near: str, fake_brokers: FakeBrokers, capsys: Output
) -> None:
    fake_brokers.answers = {A: deletable()}
    assert run(["groups", "delete", name, "-b", A, "--yes"]) == 1
    assert f"did you mean {near}?" in capsys.readouterr().err


def test_a_plan_shows_by_how_much_each_queue_moves(fake_brokers: FakeBrokers, capsys: Output) -> None:
    fake_brokers.answers = {A: broker()}
    assert run([*RESET, "--to", "5"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[:3] == [
        ["BROKER", "QUEUE", "CURRENT", "NEW", "CHANGE", "LAG", "THEN"],
        ["a", "0", "7", "5", "-2", "5"],
        ["a", "1", "-", "5", "5", "5"],
    ]
    assert " ".join(rows[-1]) == "Nothing was changed: give --execute to do it."


def test_a_topic_that_no_broker_has_has_no_places(fake_brokers: FakeBrokers, capsys: Output) -> None:
    fake_brokers.answers = {A: broker()}
    assert run(["groups", "reset", "billing", "--topic", "order", "-b", A, "--to", "latest", "--execute"]) == 1
    told = capsys.readouterr().err
    assert ("topic order does not exist" in told, "not on a" in told) == (True, True)
    assert changes(fake_brokers) == []


def test_a_broker_that_fails_is_not_one_without_members(fake_brokers: FakeBrokers, capsys: Output) -> None:
    """Else a group in use was deleted, or set to a place by its committed offsets alone."""
    failing: dict[RequestCode, Answer] = {RequestCode.GET_CONSUMER_CONNECTION_LIST: answer(code=1, remark="a bug")}
    fake_brokers.answers = {A: deletable() | failing}
    assert run(["groups", "delete", "billing", "-b", A, "--yes"]) == 1
    assert "a bug" in capsys.readouterr().err
    assert deleted(fake_brokers) == []
    fake_brokers.answers = {A: broker() | failing}
    assert run([*RESET, "--to", "latest", "--execute"]) == 1
    assert "a bug" in capsys.readouterr().err
    assert changes(fake_brokers) == []


def test_a_place_is_committed_for_the_group_in_each_queue_of_the_topic(fake_brokers: FakeBrokers) -> None:
    fake_brokers.answers = {A: broker()}
    assert run([*RESET, "--to", "5", "--execute"]) == 0
    assert [fields for _, fields in changes(fake_brokers)] == [
        {"consumerGroup": "billing", "topic": "orders", "queueId": queue, "commitOffset": "5"} for queue in ("0", "1")
    ]
    (saved,) = [fields for _, code, fields in fake_brokers.asked if code is RequestCode.SAVE_CONSUMER_OFFSETS]
    assert {"billing", "orders"} == set(saved.values())


@pytest.mark.parametrize(("is_connected", "code"), [(True, 0), (False, 1)])
def test_a_group_that_has_just_members_is_there(
    is_connected: bool, code: int, fake_brokers: FakeBrokers, capsys: Output
) -> None:
    nothing: dict[RequestCode, Answer] = {RequestCode.GET_CONSUME_STATS: answer({"offsetTable": {}})}
    fake_brokers.answers = {A: broker(members=is_connected) | nothing}
    assert run(["groups", "describe", "new", "-b", A]) == code
    out, err = capsys.readouterr()
    assert ("members connected: 1, lag: 0 messages" in out, "group new does not exist" in err) == (
        is_connected,
        not is_connected,
    )
