"""The topics of a group are on the account of the host that told them, also when others of the group register."""

from dataclasses import replace

import pytest

from rmqha.codec.register_broker import DataVersion
from rmqha.namesrv import route_info_manager
from rmqha.namesrv.routes import Registration
from tests.namesrv.test_route_info_manager import MASTER, SLAVE, Names

OTHER = Registration("c", "b", 0, "10.0.0.2:10921", "10.0.0.2:10922", MASTER.data_version)
"""On the host of the slave."""


@pytest.mark.parametrize("slave_comes", [True, False])
async def test_a_slave_s_host_has_its_share_for_itself(monkeypatch: pytest.MonkeyPatch, slave_comes: bool) -> None:
    """With those of its master, a third of what there is, the host would have no room for as many of its own."""
    monkeypatch.setattr(route_info_manager, "SIZE_MAX", 1024 * 1024)
    names = Names()
    names.register(MASTER, *[f"of-a-{number:04}" for number in range(400)])
    if slave_comes:
        for _ in range(3):
            names.register(SLAVE)
    names.register(OTHER, *[f"of-b-{number:04}" for number in range(1000)])
    found = {group.broker_name: len(list(group.topics())) for group in names.manager.groups()}
    assert found == {"a": 400, "b": 1000}


async def test_a_master_on_another_host_takes_the_account_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failover the host of the former one has its share for itself again, and the other one has less left."""
    monkeypatch.setattr(route_info_manager, "SIZE_MAX", 1024 * 1024)
    names = Names()
    topics = [f"of-a-{number:04}" for number in range(1000)]
    names.register(MASTER, *topics)
    names.register(replace(MASTER, broker_addr="10.0.0.2:10911", data_version=DataVersion(1, 2)), *topics)
    more = [f"of-b-{number:04}" for number in range(700)]
    former = replace(OTHER, broker_addr="10.0.0.1:10921")
    names.register(former, *more)
    assert all(names.addresses(topic) for topic in more)
    names.manager.unregister_broker(former)
    names.register(OTHER, *more)
    assert not all(names.addresses(topic) for topic in more)
