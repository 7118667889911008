"""From the operator's settings to what each part of a member of a DLedger group needs."""

from dataclasses import replace
from pathlib import Path

from rmqha.choices import DLedgerAck
from rmqha.config import BrokerConfig
from rmqha.config.dledger_config import DLedgerSettings
from rmqha.config.dledger_peers import parse_peers
from rmqha.config.kinds import split_address
from rmqha.config.same_settings import same_settings
from rmqha.dledger.dledger_config import DLedgerConfig
from rmqha.dledger.dledger_entry_pusher import PusherOptions
from rmqha.dledger.elector_options import ElectorOptions
from rmqha.dledger.entry_dispatcher import PushOptions
from rmqha.dledger.leadership_transfer import TransferOptions
from rmqha.dledger.server_options import ServerOptions
from rmqha.errors import ConfigError


def server_options(
    settings: DLedgerSettings, group: str, self_id: str, *, peers: dict[str, str], store_base_dir: str
) -> ServerOptions:
    """Of a member; ``peers`` has ``host:port`` of each by its id.

    Raises:
        ConfigError: there is no directory in which data files are made.
    """
    acks_flushed = settings.dledger_ack is DLedgerAck.FLUSHED
    base = str(Path(store_base_dir).expanduser())
    store = same_settings(DLedgerConfig, settings, store_base_dir=base, self_id=self_id, acks_flushed=acks_flushed)
    if not set(store.data_store_paths) - set(store.read_only_paths):
        raise ConfigError(
            f"readOnlyDataStoreDirs names all directories of dataStorePath ({', '.join(store.data_store_paths)}): no "
            "new data files are made there, name another one for them"
        )
    return ServerOptions(
        group=group,
        peers={peer: split_address(address) for peer, address in peers.items()},
        store=store,
        elector=same_settings(ElectorOptions, settings),
        transfer=same_settings(TransferOptions, settings),
        pusher=same_settings(
            PusherOptions, settings, push=same_settings(PushOptions, settings), acks_flushed=acks_flushed
        ),
    )


def member_options(config: BrokerConfig) -> ServerOptions:
    """Of a broker's member, which has the descriptors that a classic broker has for its HA port."""
    options = server_options(
        config,
        config.d_leger_group,
        config.d_leger_self_id,
        peers=parse_peers(config.d_leger_peers),
        store_base_dir=config.store_path_root_dir,
    )
    return replace(options, limits=replace(options.limits, max_connections=config.max_ha_connections))
