"""deploy/: what can be known of containers without running any. All agrees with configurations that brokers take."""

import re
from configparser import ConfigParser
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from rmqha.config import BrokerConfig, load_config

yaml = pytest.importorskip("yaml", reason="PyYAML is in the extra [acl]")

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
KUBERNETES = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
STORE = PurePosixPath("/var/lib/rmqha")
ROLES = ["master", "slave"]


def of_kind(kind: str) -> dict[str, Any]:
    return {one["metadata"]["name"]: one for one in KUBERNETES if one["kind"] == kind}


def pod_of(role: str) -> dict[str, Any]:
    pod = of_kind("StatefulSet")[f"rmqha-{role}"]["spec"]["template"]["spec"]
    assert isinstance(pod, dict)
    return pod


def config_in_kubernetes(role: str, tmp_path: Path) -> BrokerConfig:
    (container,) = pod_of(role)["containers"]
    (conf,) = [word.partition("=")[2] for word in container["args"] if word.startswith("--config=")]
    (tmp_path / "broker.conf").write_text(of_kind("ConfigMap")["rmqha"]["data"][PurePosixPath(conf).name])
    sets = [word.removeprefix("--set=") for word in container["args"] if word.startswith("--set=")]
    settings = dict(word.replace("$(POD_IP)", "10.1.2.3").split("=", 1) for word in sets)
    return load_config(tmp_path / "broker.conf", settings)


def config_in_compose(role: str) -> BrokerConfig:
    volumes = dict(one.split(":")[:2] for one in COMPOSE["services"][role]["volumes"])
    (conf,) = [one for one, target in volumes.items() if target == "/etc/rmqha/broker.conf"]
    return load_config(DEPLOY / conf)


def ports_of(config: BrokerConfig) -> set[int]:
    return {config.listen_port, config.ha_listen_port, metrics_port_of(config)}


def metrics_port_of(config: BrokerConfig) -> int:
    return int(str(config.metrics_listen).rpartition(":")[2].rstrip(")"))


def check_pair(master: BrokerConfig, slave: BrokerConfig) -> None:
    assert (master.is_slave, slave.is_slave) == (False, True)
    assert (master.notes, slave.notes) == ((), ())
    assert master.broker_name == slave.broker_name
    assert (master.broker_id, slave.broker_id) == (0, 1)
    assert master.mapped_file_size_commit_log == slave.mapped_file_size_commit_log


def test_the_image_has_all_that_the_server_wants_and_runs_as_nobody() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    (extras,) = re.findall(r"/source\[([\w,]+)\]", DOCKERFILE)
    assert set(extras.split(",")) == set(setup["options.extras_require"]) - {"all", "dev", "fuzz", "reference", "spark"}
    stages = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)
    (user,) = re.findall(r"^USER (\d+):\d+$", stages[-1], re.MULTILINE)
    assert int(user) > 0
    for source in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE):
        assert all((ROOT / name).exists() for name in source.split())


@pytest.mark.parametrize("role", ROLES)
def test_the_image_opens_the_ports_of_the_configurations(role: str) -> None:
    (exposed,) = re.findall(r"^EXPOSE (.*)$", DOCKERFILE, re.MULTILINE)
    assert {int(port) for port in exposed.split()} == ports_of(config_in_compose(role))


def test_a_pair_in_compose_finds_itself() -> None:
    master, slave = (config_in_compose(role) for role in ROLES)
    check_pair(master, slave)
    networks = {role: COMPOSE["services"][role]["networks"]["brokers"]["ipv4_address"] for role in ROLES}
    assert {"master": master.broker_ip1, "slave": slave.broker_ip1} == networks
    conf = (DEPLOY / "slave.conf").read_text()
    assert f"haMasterAddress={master.broker_ip1}:{master.ha_listen_port}\n" in conf
    assert f"masterAddress={master.broker_ip1}:{master.listen_port}\n" in conf
    assert f"haPeers={slave.broker_ip1}:{slave.ha_listen_port}\n" in (DEPLOY / "master.conf").read_text()


@pytest.mark.parametrize("role", ROLES)
def test_compose_maps_ports_and_volumes_of_the_configuration(role: str) -> None:
    config, service = config_in_compose(role), COMPOSE["services"][role]
    assert {int(one.rpartition(":")[2]) for one in service["ports"]} <= ports_of(config)
    assert all(one.startswith("127.0.0.1:") for one in service["ports"])
    assert f"{role}:{STORE}" in service["volumes"]
    assert role in COMPOSE["volumes"]
    assert STORE in PurePosixPath(config.store_path_root_dir).parents
    (port, path) = re.findall(r"127\.0\.0\.1:(\d+)(/\w+)", service["healthcheck"]["test"][-1])[0]
    assert (int(port), path) == (metrics_port_of(config), "/readyz")
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])


def test_a_pair_in_kubernetes_finds_itself(tmp_path: Path) -> None:
    master, slave = (config_in_kubernetes(role, tmp_path) for role in ROLES)
    check_pair(master, slave)
    confs = of_kind("ConfigMap")["rmqha"]["data"]
    assert f"haMasterAddress=rmqha-master:{master.ha_listen_port}\n" in confs["slave.conf"]
    assert f"masterAddress=rmqha-master:{master.listen_port}\n" in confs["slave.conf"]
    assert f"haPeers=rmqha-slave:{slave.ha_listen_port}\n" in confs["master.conf"]


@pytest.mark.parametrize("role", ROLES)
def test_kubernetes_probes_and_ports_are_those_of_the_configuration(role: str, tmp_path: Path) -> None:
    config, pod = config_in_kubernetes(role, tmp_path), pod_of(role)
    (container,) = pod["containers"]
    named = {one["name"]: one["containerPort"] for one in container["ports"]}
    wanted = {"clients": config.listen_port, "ha": config.ha_listen_port, "metrics": metrics_port_of(config)}
    assert named == wanted
    probed = {probe: container[probe]["httpGet"] for probe in ("livenessProbe", "readinessProbe")}
    assert [one["port"] for one in probed.values()] == ["metrics"] * 2
    assert [one["path"] for one in probed.values()] == ["/livez", "/readyz"]
    service = of_kind("Service")[f"rmqha-{role}"]["spec"]
    assert service["publishNotReadyAddresses"], "a master is not ready before its slave has found it"
    assert {one["name"]: one["port"] for one in service["ports"]} == wanted
    assert service["selector"] == of_kind("StatefulSet")[f"rmqha-{role}"]["spec"]["template"]["metadata"]["labels"]


@pytest.mark.parametrize("role", ROLES)
def test_kubernetes_runs_nothing_as_root_and_stores_on_a_volume(role: str, tmp_path: Path) -> None:
    config, pod = config_in_kubernetes(role, tmp_path), pod_of(role)
    (container,) = pod["containers"]
    (user,) = re.findall(r"^USER (\d+):", DOCKERFILE, re.MULTILINE)
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, int(user))
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    mounts = {one["name"]: PurePosixPath(one["mountPath"]) for one in container["volumeMounts"]}
    assert mounts["store"] in PurePosixPath(config.store_path_root_dir).parents
    (claim,) = of_kind("StatefulSet")[f"rmqha-{role}"]["spec"]["volumeClaimTemplates"]
    assert {claim["metadata"]["name"], pod["volumes"][0]["name"]} == set(mounts)
    assert pod["terminationGracePeriodSeconds"] > config.drain_timeout_s


def test_all_say_that_they_were_not_run() -> None:
    for name in ("Dockerfile", "compose.yaml", "kubernetes.yaml"):
        assert "that would run it: docs/containers.md" in (DEPLOY / name).read_text()
    assert "have not been run by the project" in (ROOT / "docs" / "containers.md").read_text()
