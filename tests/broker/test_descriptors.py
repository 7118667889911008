"""How a process's descriptors and maps are shared out."""

import resource

import pytest

from rmqha.broker import main
from rmqha.config import load_config


@pytest.mark.parametrize(
    ("hard", "maps", "connections", "files"),
    [
        (resource.RLIM_INFINITY, 65_530, 4096, 4096),
        (1 << 20, 65_530, 4096, 4096),
        (20_000, 65_530, 4096, 4096),
        (20_000, 4_000, 4096, 1000),
        (1024, 65_530, 448, 192),
        (620, 65_530, 44, 192),
        (64, 65_530, 1, 1),
    ],
)
def test_what_clients_and_the_store_get(
    monkeypatch: pytest.MonkeyPatch, hard: int, maps: int, connections: int, files: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (min(1024, hard), hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _what, _limits: None)
    monkeypatch.setattr(main, "max_map_count", lambda: maps)
    config, open_files_max = main.with_descriptors(load_config(None, {}))
    assert (config.max_connections, open_files_max) == (connections, files)
    assert config.max_queues == 100_000, "no descriptor is needed for a queue that nobody uses"
