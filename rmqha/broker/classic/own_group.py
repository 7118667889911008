"""The group of a classic broker: what it says of itself to those it meets there."""

from collections.abc import Callable

from rmqha.broker.classic.later_begin import begin_if_later, later_begin
from rmqha.broker.group import ReplicationGroup
from rmqha.config import BrokerConfig
from rmqha.errors import StoreError
from rmqha.ha.ha_service import HAService
from rmqha.store.message_store import DefaultMessageStore


def own_group(
    config: BrokerConfig,
    store: DefaultMessageStore,
    service: HAService,
    *,
    final_error: Callable[[], StoreError | None],
    master_min_offset: Callable[[], int | None],
) -> ReplicationGroup:
    """The group of this broker; a slave tells its master what it does not take, and what its log lacks.

    Args:
        config: the operator's decisions.
        store: this broker's.
        service: of the slaves that follow it.
        final_error: why no master can be followed.
        master_min_offset: where the master's log began the last time it said so; None: it has not.
    """
    addresses, name, came = service.slave_addresses, service.name_slave, service.hosts_heard
    if not config.is_slave:
        return ReplicationGroup(config, slave_addresses=addresses, name_slave=name, came_from=came)
    return ReplicationGroup(
        config,
        slave_addresses=addresses,
        name_slave=name,
        came_from=came,
        trouble=lambda: store.running_flags.refusal() or str(final_error() or ""),
        later=lambda: later_begin(store, master_min_offset()),
        begin=lambda: begin_if_later(store, master_min_offset()),
    )
