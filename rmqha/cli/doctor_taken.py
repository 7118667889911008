"""``rmqha doctor``: a store that has not had the tables of the master whose log it holds, as its slave has noted."""

from collections.abc import Iterator

from rmqha.broker.classic.taken_tables import MASTERS_TABLES_LOST, TABLES_NOT_TAKEN
from rmqha.cli.finding import FAIL, WARN, Finding
from rmqha.cli.pages import Page
from rmqha.config import BrokerConfig
from rmqha.errors import StoreReadError
from rmqha.store.os_disk import OsDisk


def check_taken(config: BrokerConfig) -> Iterator[Finding]:
    """Of a broker that does not run: what its start would begin with."""
    try:
        notes = (TABLES_NOT_TAKEN, MASTERS_TABLES_LOST)
        noted = [name for name in notes if OsDisk().exists(f"{config.store_path_root_dir}/{name}")]
    except StoreReadError:
        return  # that it cannot be looked at is told of the store
    if not noted or config.enable_dleger_commit_log:
        return
    lacks = "has not had all of its master's" if TABLES_NOT_TAKEN in noted else "may lack what its master had lost, of"
    what = f"{noted[0]}: as a slave it {lacks} topics, groups and consumers' offsets"
    if config.is_slave:
        told = f"start it beside its master until 'rmqha status --wait in-sync' of this slave ends; {Page.SLAVE_WAITS}"
        yield Finding(WARN, "tables", f"{what}: no backup, and not to be made master", told)
    elif config.ha_peers:
        told = f"start this broker with all of them; {Page.LOST_TABLES}"
        yield Finding(WARN, "tables", f"{what}; a start takes them from haPeers", told)
    else:
        told = f"name the HA ports of brokers that have them as haPeers, or take another store; {Page.LOST_TABLES}"
        yield Finding(FAIL, "tables", f"{what}; a start begins with what the log tells, and consumers anew", told)
