"""Each alert fires for its fault and for no other: judged by promtool, on scrapes of brokers in that trouble."""

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.cli.pages import Page
from rmqha.errors import DivergedLogError
from rmqha.ha.runtime_info import ClientState
from tests.broker.machines import Machine, ask, send_request
from tests.broker.test_dledger_broker import group_of
from tests.namesrv.machines import NameServerMachine
from tests.sim.sim_net import SimNet

pytest.importorskip("h11", reason="h11 is in the extra [web]")
pytest.importorskip("prometheus_client", reason="prometheus-client is in the extra [web]")

from rmqha.metrics.observed import open_name_server_port
from tests.metrics.scrapes import Sample, Scraper, scraped, settings
from tests.metrics.test_broker_port import LISTEN, watched_pair

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "conf" / "prometheus" / "rmqha.rules.yml"
STEP_S = 15
STEPS = 50
"""Twelve minutes before the trouble, and as long in it."""
GROWING = ("_total", "_bucket", "_count", "_sum")

Scrapes = dict[str, dict[Sample, float]]
"""By instance."""


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed: it comes with Debian's package prometheus")
    return found


def series(before: Scrapes, after: Scrapes, *, flapping: Sequence[Sample] = ()) -> list[dict[str, str]]:
    """Each sample for a while as it was, and then as it is; what there is no more ends, what grew goes on to grow.

    Those that are ``flapping`` are 0 and 1 by turns then; of several, one of two is 1 while the others are 0.
    """
    told = []
    for instance in before.keys() | after.keys():
        former, present = before.get(instance, {}), after.get(instance, {})
        up = ("up", frozenset[tuple[str, str]]())
        former, present = {up: float(instance in before), **former}, {up: float(instance in after), **present}
        for key in former.keys() | present.keys():
            name, labels = key
            said = dict(labels) | {"instance": instance, "job": "rmqha"}
            text = ",".join(f"{label}={json.dumps(text)}" for label, text in sorted(said.items()))
            told_before = f"{former[key]!r}+0x{STEPS - 1}" if key in former else f"_x{STEPS}"
            growth = max(0.0, present[key] - former.get(key, 0.0)) if key in present and name.endswith(GROWING) else 0.0
            told_then = f"{present[key]!r}+{growth!r}x{STEPS - 1}" if key in present else f"_x{STEPS}"
            if key in flapping:
                turns = ["0", "0", "1", "1"] if flapping.index(key) % 2 == 0 else ["1", "1", "0", "0"]
                told_then = " ".join((turns * STEPS)[:STEPS])
            told.append({"series": f"{name}{{{text}}}", "values": f"{told_before} {told_then}"})
    return told


@pytest.mark.parametrize(
    "alert",
    ["BelowInSync", "UnsafeSends", "SlaveLag", "FollowerWithoutMaster", "NoLeader", "MemberDiverged", "SlowSends"],
)
def test_who_is_woken_is_told_a_command_and_a_section(alert: str) -> None:
    """These said what is wrong, and not what to do."""
    (described,) = re.findall(rf'alert: Rmqha{alert}\n(?:.+\n)*? +description: "(.+)"', RULES.read_text())
    assert "'rmqha status -b'" in described
    assert described.removesuffix(".").endswith(tuple(Page))


def test_each_state_in_which_a_follower_copies_nothing_is_named_by_one_alert() -> None:
    """RmqhaTrouble leaves out that who does not follow has not learned: a state that neither names wakes nobody."""
    rules = RULES.read_text(encoding="utf-8")
    named = "|".join(re.findall(r'rmqha_follower_state\{state=~"([^"]+)"\}', rules)).split("|")
    silent = {ClientState.TRANSFER, ClientState.STOPPED}
    assert sorted(named) == sorted(state.value for state in ClientState if state not in silent)


async def test_each_answer_that_is_less_safe_than_send_ok_is_one_of_the_alert(autojump_clock: MockClock) -> None:
    """Each has its own reason, a disk or a slave; one that the rule does not name wakes nobody."""
    (named,) = re.findall(r'rmqha_sends_total\{status=~"([^"]+)"\}', RULES.read_text(encoding="utf-8"))
    machine = Machine(SimNet(), "10.0.0.1", LISTEN)
    async with machine.broker() as broker, scraped(broker, machine.net) as monitoring:
        await trio.sleep(1)
        told = {dict(labels)["status"] for name, labels in await monitoring.scrape() if name == "rmqha_sends_total"}
    assert {status for status in told if not re.fullmatch(named, status)} == {"SEND_OK", "REFUSED"}


def fires(
    promtool: str,
    tmp_path: Path,
    before: Scrapes,
    after: Scrapes,
    *,
    expected: Sequence[str],
    flapping: Sequence[Sample] = (),
) -> None:
    """Check that these alerts fire in the end, and none before the trouble."""

    def asked(step: int, names: Sequence[str]) -> dict[str, Any]:
        samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in names]
        expr = 'count by (alertname) (count by (alertname, instance) (ALERTS{alertstate="firing"})) > bool 0'
        return {"expr": expr, "eval_time": f"{step * STEP_S}s", "exp_samples": samples}

    judged = {
        "interval": f"{STEP_S}s",
        "input_series": series(before, after, flapping=flapping),
        "promql_expr_test": [asked(STEPS - 1, []), asked(2 * STEPS - 1, sorted(expected))],
    }
    case = {"rule_files": [str(RULES)], "evaluation_interval": f"{STEP_S}s", "tests": [judged]}
    path = tmp_path / "case.yml"
    path.write_text(json.dumps(case))
    ended = subprocess.run([promtool, "test", "rules", str(path)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_rules_are_sound(promtool: str) -> None:
    ended = subprocess.run([promtool, "check", "rules", str(RULES)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


async def test_a_slave_is_lost(promtool: str, tmp_path: Path, autojump_clock: MockClock) -> None:
    pair = watched_pair()
    async with pair.master.broker() as master, scraped(master, pair.net) as monitoring:
        async with pair.slave.broker() as slave, pair.master.client() as client:
            while (await monitoring.readyz())[0] != 200:  # noqa: ASYNC110 - virtual time
                await trio.sleep(0.5)
            await ask(client, send_request(b"x"))
            await trio.sleep(3)
            async with scraped(slave, pair.net, number=2) as other:
                before = {"master": await monitoring.scrape(), "slave": await other.scrape()}
        await trio.sleep(10)
        lost = {"master": await monitoring.scrape()}
        async with pair.master.client() as client:
            await ask(client, send_request(b"alone"))
        await trio.sleep(20)
        sent = {"master": await monitoring.scrape()}
    gone = ["RmqhaBelowInSync", "RmqhaDown", "RmqhaSlaveGone"]
    fires(promtool, tmp_path, before, before, expected=[])
    fires(promtool, tmp_path, before, lost, expected=gone)
    fires(promtool, tmp_path, before, sent, expected=[*gone, "RmqhaUnsafeSends"])
    lag = ("rmqha_slave_lag_seconds", frozenset({("slave", "broker-a/1")}))
    an_hour = {"master": lost["master"] | {lag: lost["master"][lag] + 3600}}
    fires(promtool, tmp_path, before, an_hour, expected=[*gone, "RmqhaSlaveLag"])


async def test_a_slave_that_comes_and_goes_and_never_catches_up(
    promtool: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """No minute passes in which it is there, or away, all the time."""
    pair = watched_pair()
    async with pair.running() as (master, _), scraped(master, pair.net) as monitoring, pair.master.client() as client:
        await trio.sleep(3)
        before = {"master": await monitoring.scrape()}
        pair.net.cut("10.0.0.2", "10.0.0.1")
        await ask(client, send_request(b"x"))
        await trio.sleep(90)
        away = {"master": await monitoring.scrape()}
    key = ("rmqha_slave_connected", frozenset({("slave", "broker-a/1")}))
    lag = ("rmqha_slave_lag_seconds", key[1])
    assert (away["master"][key], away["master"][lag] > 60) == (0, True)
    flapping = {"master": before["master"] | {lag: away["master"][lag]}}
    fires(promtool, tmp_path, before, flapping, expected=["RmqhaSlaveLag"], flapping=[key])


async def test_a_slave_whose_master_is_lost_and_one_that_is_ahead(
    promtool: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    pair = watched_pair()
    async with pair.running() as (_, slave), scraped(slave, pair.net, number=2) as other:
        await trio.sleep(2)
        before = {"slave": await other.scrape()}
    async with pair.slave.broker() as slave, scraped(slave, pair.net, number=3) as other:
        await trio.sleep(5)
        alone = {"slave": await other.scrape()}
    lonely = Machine(pair.net, "10.0.0.1", LISTEN)
    lonely.disk = pair.slave.disk
    async with lonely.broker(), lonely.client() as client:
        await ask(client, send_request(b"of another history"))
    async with pair.master.broker(), pair.slave.broker() as slave, scraped(slave, pair.net, number=4) as other:
        await trio.sleep(10)
        ahead = {"slave": await other.scrape()}
    fires(promtool, tmp_path, before, alone, expected=["RmqhaFollowerWithoutMaster"])
    states = [("rmqha_follower_state", frozenset({("state", state)})) for state in ("waiting", "comparing")]
    assert alone["slave"].keys() >= set(states)
    fires(promtool, tmp_path, before, alone, expected=["RmqhaFollowerWithoutMaster"], flapping=states)
    fires(promtool, tmp_path, before, ahead, expected=["RmqhaFollowerNeedsAPerson"])
    damaged = {"slave": alone["slave"] | {("rmqha_trouble", frozenset({("kind", "damaged_records")})): 1.0}}
    fires(promtool, tmp_path, before, damaged, expected=["RmqhaFollowerWithoutMaster", "RmqhaTrouble"])


async def test_a_disk_is_full(promtool: str, tmp_path: Path, autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1", LISTEN)
    async with machine.broker() as broker, scraped(broker, machine.net) as monitoring:
        await trio.sleep(1)
        before = {"master": await monitoring.scrape()}
        broker.store.running_flags.set_disk_full(True)
        await trio.sleep(2)
        refused = {"master": await monitoring.scrape()}
    key = ("rmqha_disk_used_ratio", frozenset({("disk", "commitlog")}))
    filling = {"master": before["master"] | {key: 0.9}}
    fires(promtool, tmp_path, before, refused, expected=["RmqhaWritesRefused"])
    fires(promtool, tmp_path, before, filling, expected=["RmqhaDiskFilling"])


async def test_a_group_loses_a_member_and_then_its_majority(
    promtool: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with group_of(metricsListen=LISTEN["metricsListen"]) as group:
        master = await group.wait_master()
        first, second = [node for node in group.nodes.values() if node is not master]
        async with scraped(master.running, group.net) as monitoring:
            await trio.sleep(2)
            before = {"n": await monitoring.scrape()}
            first.kill()
            await trio.sleep(5)
            one_less = {"n": await monitoring.scrape()}
            second.kill()
            await group.wait(lambda: not master.is_master)
            await trio.sleep(5)
            none_left = {"n": await monitoring.scrape()}
    fires(promtool, tmp_path, before, one_less, expected=["RmqhaMemberGone"])
    fires(promtool, tmp_path, before, none_left, expected=["RmqhaNoLeader"])


async def test_a_member_s_log_differs(promtool: str, tmp_path: Path, autojump_clock: MockClock) -> None:
    """It was connected, and lacked nothing of what it knew: nobody was told before one more failure."""
    async with group_of(metricsListen=LISTEN["metricsListen"]) as group:
        master = await group.wait_master()
        follower = next(node for node in group.nodes.values() if node is not master)
        async with scraped(follower.running, group.net) as monitoring:
            await trio.sleep(2)
            before = {"n": await monitoring.scrape()}
            server = follower.replication._server
            assert server is not None
            server.pusher.handler.diverged = DivergedLogError(7, "what is committed here is another entry")
            await trio.sleep(2)
            differs = {"n": await monitoring.scrape()}
    fires(promtool, tmp_path, before, differs, expected=["RmqhaMemberDiverged"])
    key = "rmqha_dledger_diverged", frozenset[tuple[str, str]]()
    for ends_at_once in (
        (key,),
        (("none", frozenset[tuple[str, str]]()), key),
    ):  # until a leader of DLedger's looks again
        fires(promtool, tmp_path, before, differs, expected=[], flapping=ends_at_once)


async def test_two_slaves_have_one_id(promtool: str, tmp_path: Path, autojump_clock: MockClock) -> None:
    """Each follows well, and no send is the worse for it."""
    pair = watched_pair()
    twin = Machine(pair.net, "10.0.0.3", pair.slave.settings)
    async with pair.running() as (master, _), scraped(master, pair.net) as monitoring:
        await trio.sleep(5)
        before = {"master": await monitoring.scrape()}
        async with twin.broker():
            await trio.sleep(5)
            clash = {"master": await monitoring.scrape()}
    fires(promtool, tmp_path, before, clash, expected=["RmqhaTrouble"])


async def test_two_masters_take_each_other_s_place(promtool: str, tmp_path: Path, autojump_clock: MockClock) -> None:
    """Each is well by itself, and messages go to the one log or the other."""
    net = SimNet()
    names = NameServerMachine(net, settings=settings())
    one, other = (Machine(net, host, {"namesrvAddr": names.where}) for host in ("10.0.0.1", "10.0.0.2"))
    monitoring = Scraper(net, "10.8.8.1")
    watched = net.host("10.8.8.1").mount()
    async with names.running() as server, open_name_server_port(server, network=watched), one.broker():
        await trio.sleep(100)
        before = {"n": await monitoring.scrape()}
        async with other.broker():
            await trio.sleep(100)
            clash = {"n": await monitoring.scrape()}
    fires(promtool, tmp_path, before, before, expected=[])
    fires(promtool, tmp_path, before, clash, expected=["RmqhaBrokersClash"])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"rmqha_dispatch_lag_bytes": 1e9}, "RmqhaDispatchBehind"),
        ({"rmqha_stopped_queues": 1.0}, "RmqhaQueueStopped"),
        ({"rmqha_unexpired_segments_deleted_total": 1.0}, "RmqhaDeletesUnexpired"),
        ({"rmqha_topics_refused_total": 1.0}, "RmqhaTopicsRefused"),
        ({"rmqha_pops_refused_total": 1.0}, "RmqhaPopsRefused"),
        ({"rmqha_discarded_half_messages_total": 1.0}, "RmqhaTransactionsGivenUp"),
        ({"rmqha_delayed_overdue_seconds": 61.0}, "RmqhaDelayedOverdue"),
        ({"process_max_fds": 1.0}, "RmqhaDescriptors"),
        ({"rmqha_requests_broken_total": 1.0}, "RmqhaBug"),
        ({"rmqha_recovering": 1.0}, "RmqhaRecovering"),
        ({"rmqha_slave_lag_seconds": 90.0}, "RmqhaSlaveLag"),
        ({"rmqha_follower_corrupt_streams_total": 3.0}, "RmqhaCorruptStream"),
    ],
)
async def test_troubles_that_no_small_broker_has(
    changes: Mapping[str, float], expected: str, promtool: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A real scrape in which one number is another."""
    pair = watched_pair()
    async with pair.running() as both:
        watched = both[expected == "RmqhaCorruptStream"]
        async with scraped(watched, pair.net) as monitoring:
            await trio.sleep(3)
            before = await monitoring.scrape()
    assert {name for name, _ in before} >= changes.keys()
    after = {key: changes.get(key[0], number) for key, number in before.items()}
    if expected == "RmqhaRecovering":
        after = {key: number for key, number in after.items() if key[0] in {"rmqha_recovering", "process_open_fds"}}
    fires(promtool, tmp_path, {"m": before}, {"m": after}, expected=[expected])


CERTIFICATE = ("rmqha_certificate_expires_timestamp_seconds", frozenset({("path", "/etc/rmqha/a.pem")}))
DOUBT = ("rmqha_trouble", frozenset({("kind", "doubt")}))
GROUP = ("rocketmq_group_diff", frozenset({("group", "g"), ("topic", "t")}))


@pytest.mark.parametrize(
    ("key", "well", "bad", "expected"),
    [
        (CERTIFICATE, 15 * 86_400.0, 13 * 86_400.0, "RmqhaCertificateExpires"),
        (GROUP, 9_000.0, 11_000.0, "RmqhaGroupFallsBehind"),
        (DOUBT, 0.0, 1.0, "RmqhaInDoubt"),
    ],
)
async def test_troubles_of_what_a_bare_broker_lacks(
    key: Sample, well: float, bad: float, expected: str, promtool: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A real scrape, and a family that one with TLS, or with consumers, has besides; promtool's clock begins at 0."""
    pair = watched_pair()
    async with pair.running() as (master, _), scraped(master, pair.net) as monitoring:
        await trio.sleep(3)
        scrape = await monitoring.scrape()
    fires(promtool, tmp_path, {"m": scrape | {key: well}}, {"m": scrape | {key: bad}}, expected=[expected])


async def test_sends_are_slow(promtool: str, tmp_path: Path, autojump_clock: MockClock) -> None:
    """A real scrape, and after it sends that take between one and two seconds."""
    machine = Machine(SimNet(), "10.0.0.1", LISTEN)
    async with machine.broker() as broker, scraped(broker, machine.net) as monitoring:
        await trio.sleep(1)
        before = await monitoring.scrape()
        broker.store.stats.put_times.add(1.5, 100)
        await trio.sleep(2)
        after = await monitoring.scrape()
    fires(promtool, tmp_path, {"m": before}, {"m": after}, expected=["RmqhaSlowSends"])


def test_no_alert_is_untried() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    alerts = re.findall(r"alert: (\w+)", RULES.read_text(encoding="utf-8"))
    assert [name for name in alerts if f'"{name}"' not in here] == []
    assert len(set(alerts)) == len(alerts) > 10
