from pathlib import Path

import pytest

from rmqha.choices import TlsMode
from rmqha.config.load_namesrv import NAMESRV_KEYS, load_namesrv
from rmqha.config.rocketmq_keys import NAMESRV_UNUSED
from rmqha.errors import ConfigError


def problems(**settings: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_namesrv(None, settings)
    return caught.value.problems


def test_defaults_are_rocketmqs_and_safe() -> None:
    config = load_namesrv(None)
    assert (config.bind_address, config.listen_port, config.order_message_enable) == ("127.0.0.1", 9876, False)
    assert config.kv_config_path == str(Path.home() / "namesrv" / "kvConfig.json")
    assert config.notes == ()


def test_a_namesrv_conf_of_a_rocketmq_user_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text("listenPort=9877\nserverWorkerThreads=8\norderMessageEnable=true\n")
    config = load_namesrv(path, {"listenPort": "0"})
    assert (config.listen_port, config.order_message_enable) == (0, True)
    assert config.origins == {"listenPort": "command line", "orderMessageEnable": f"{path}:3"}
    (note,) = config.notes
    assert f"serverWorkerThreads ({path}:2)" in note


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"listenPrt": "1"}, "nearest known key: listenPort"),
        ({"brokerName": "a"}, "unknown key 'brokerName'"),
        ({"listenPort": "70000"}, "outside 0..65535"),
        ({"bindAddress": "0.0.0.0"}, "would listen beyond this machine"),
        ({"metricsListen": "0.0.0.0:9100"}, "metricsListen=0.0.0.0:9100 would listen beyond this machine"),
        ({"metricsListen": "9876"}, "port 9876 is listenPort's"),
        ({"tlsMode": "enforcing", "tlsTrustCertPath": "/a"}, "needs tlsCertPath and tlsKeyPath"),
        ({"maxInFlightBytes": "1048576"}, "must not exceed maxInFlightBytes"),
    ],
)
def test_what_cannot_work_is_refused_with_its_reason(settings: dict[str, str], reason: str) -> None:
    (problem,) = problems(**settings)
    assert problem.startswith("command line: ")
    assert reason in problem


def test_it_listens_beyond_the_machine_when_asked_to() -> None:
    assert load_namesrv(None, {"bindAddress": "0.0.0.0", "allowInsecure": "true"}).bind_address == "0.0.0.0"
    files = {"tlsCertPath": "/a.pem", "tlsKeyPath": "/a.key", "tlsTrustCertPath": "/ca.pem"}
    assert load_namesrv(None, {"bindAddress": "::", "tlsMode": "enforcing", **files}).tls_mode is TlsMode.ENFORCING


@pytest.mark.parametrize("listening", [{"bindAddress": "0.0.0.0"}, {"metricsListen": "0.0.0.0:9100"}])
def test_permissive_tls_does_not_close_a_port(listening: dict[str, str]) -> None:
    """Who speaks without it is served as well."""
    files = {"tlsCertPath": "/a.pem", "tlsKeyPath": "/a.key", "tlsTrustCertPath": "/ca.pem"}
    (problem,) = problems(tlsMode="permissive", **listening, **files)
    assert "would listen beyond this machine" in problem
    assert load_namesrv(None, {"tlsMode": "enforcing", **listening, **files}).notes == ()


def test_the_table_is_sound() -> None:
    config = load_namesrv(None)
    assert not NAMESRV_UNUSED & set(NAMESRV_KEYS)
    for key in NAMESRV_KEYS.values():
        assert hasattr(config, key.attribute)
        assert key.meaning.endswith((".", ")")), key.name
