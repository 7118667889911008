"""How many clients a name server takes where a process may open few files."""

import resource

import pytest

from rmqha import process
from rmqha.config.load_namesrv import load_namesrv
from rmqha.config.namesrv_config import NamesrvConfig
from rmqha.exit_codes import EXIT_OK
from rmqha.namesrv import main


@pytest.mark.parametrize(
    ("hard", "asked", "connections"),
    [(resource.RLIM_INFINITY, 4096, 4096), (4160, 4096, 4096), (4159, 4096, 4095), (1024, 100, 100), (64, 100, 1)],
)
def test_no_more_clients_are_taken_than_the_process_has_descriptors_for(
    monkeypatch: pytest.MonkeyPatch, hard: int, asked: int, connections: int
) -> None:
    """Some are its own; beyond them nobody could be accepted, and those who come would hang instead of being told."""
    taken = list[int]()

    async def run(config: NamesrvConfig, _observe: object) -> int:
        taken.append(config.max_connections)
        return EXIT_OK

    raised = list[tuple[int, int]]()
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (min(1024, hard), hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _what, limits: raised.append(limits))
    monkeypatch.setattr(main, "_run", run)
    monkeypatch.setattr(process, "run_server", lambda _name, serve: serve())
    settings = {"allowInsecure": "true", "maxConnections": f"{asked}"}
    assert main.run_name_server(load_namesrv(None, settings)) == EXIT_OK
    assert taken == [connections]
    assert raised == ([] if hard == resource.RLIM_INFINITY else [(hard, hard)])
