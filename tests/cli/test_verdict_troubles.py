"""Each trouble that a broker tells of itself makes it degraded, and is a reason in its own words."""

import pytest

from rmqha.cli.verdict import judge
from tests.cli.facts import connection, master, member, slave

SAID = "so it is"


@pytest.mark.parametrize(
    "name",
    [
        *("lost_queues", "stopped_queues", "index_trouble", "not_saved", "crowded", "damaged_records", "dropped"),
        *("damaged_halves", "damaged_marks", "undeliverable", "lost_tables", "no_inodes", "disk_unknown"),
        *("certificates_kept", "accounts_kept", "credentials_kept"),
    ],
)
def test_what_is_told_is_a_reason(name: str) -> None:
    for facts in (master(connection()), slave("transfer")):
        assert judge(facts | {name: None}).reasons == ()
        verdict = judge(facts | {name: SAID})
        (reason,) = verdict.reasons
        assert (verdict.level, SAID in reason) == ("degraded", True)
        assert verdict.in_sync is (name not in {"damaged_records", "not_saved"})


@pytest.mark.parametrize("name", ["not_registered", "place_taken"])
def test_of_several_each_is_a_reason(name: str) -> None:
    assert judge(master(connection()) | {name: []}).level == "ok"
    verdict = judge(master(connection()) | {name: ["one", "other"]})
    assert (verdict.level, [reason.partition(";")[0] for reason in verdict.reasons]) == ("degraded", ["one", "other"])


def test_bugs_are_told_of_requests_and_of_slaves_connections() -> None:
    facts = master(connection(), requests_broken=2)
    facts["ha"]["connections_broken"] = 3
    requests, connections = judge(facts).reasons
    assert requests.startswith("2 requests met a bug in this broker: see request.broken")
    assert connections.startswith("3 slaves' connections met a bug in this broker: see ha_connection.broken")


def test_messages_that_consumers_see_late_are_a_reason() -> None:
    for facts in (master(connection()), slave("transfer"), member()):
        assert judge(facts | {"dispatch_behind_s": 4.9}).level == "ok"
        verdict = judge(facts | {"dispatch_behind_s": 7.2, "confirm_offset": 5000, "dispatched_offset": 90})
        (reason,) = verdict.reasons
        told = "consumers see messages late: dispatch is 7 s behind, with 4,910 bytes of the log to go"
        assert (verdict.level, reason.partition(";")[0]) == ("degraded", told)
