"""What an operator decides reaches the part that it is about."""

from dataclasses import replace

import pytest

from rmqha.broker import options
from rmqha.broker.tuning import Tuning
from rmqha.config import BrokerConfig, load_config
from rmqha.ha.options import HaAck, HAClientOptions, HAOptions
from rmqha.remoting.limits import RemotingLimits
from rmqha.replication.master_session import StartFrom

PEERS = [f"10.0.0.{number}:10912" for number in range(2, 6)]


def config_of(**keys: str) -> BrokerConfig:
    return load_config(
        None, {"storePathRootDir": "/store", "allowInsecure": "true", "brokerRole": "SYNC_MASTER", **keys}
    )


def test_every_key_of_replication_is_passed_on() -> None:
    config = config_of(
        brokerIP2="10.0.0.1",
        haListenPort="20912",
        haAllow="10.0.0.0/8",
        maxHaConnections="11",
        maxHaConnectionsPerAddress="3",
        haSendHeartbeatInterval="4000",
        haHousekeepingInterval="17000",
        haFirstReportTimeout="9000",
        haTransferBatchSize="1000",
        haTransferSizeMax="70000",
        haSlaveFallbehindMax="123456",
        inSyncReplicas="3",
        haSendDurableOnly="true",
        haStartFrom="last",
        haAck="written",
    )
    assert options.ha_options(config) == HAOptions(
        listen_host=config.ha_bind_address,
        port=20912,
        allow=("10.0.0.0/8",),
        connections_max=11,
        connections_per_address_max=3,
        heartbeat_s=4.0,
        housekeeping_s=17.0,
        first_report_s=9.0,
        transfer_batch_size=1000,
        transfer_size_max=70000,
        slave_fallbehind_max=123456,
        in_sync_replicas=3,
        send_durable_only=True,
        start_from=StartFrom.LAST,
    )
    tuning = Tuning(overlap_size=77, stream_buffer_size=88)
    assert options.ha_client_options(config, tuning) == HAClientOptions(
        ack=HaAck.WRITTEN, heartbeat_s=4.0, housekeeping_s=17.0, overlap_size=77, stream_buffer_size=88
    )


def test_every_limit_of_clients_is_passed_on() -> None:
    config = config_of(
        clientAllow="10.0.0.0/8",
        maxConnections="12",
        maxConnectionsPerAddress="5",
        maxInFlightBytes="90000000",
        maxInFlightBytesPerConnection="40000000",
        serverChannelMaxIdleTimeSeconds="33",
    )
    assert options.remoting_limits(config, Tuning(receive_size=4096)) == replace(
        RemotingLimits(),
        allow=("10.0.0.0/8",),
        connections_max=12,
        connections_per_host_max=5,
        in_flight_bytes_max=90_000_000,
        connection_in_flight_bytes_max=40_000_000,
        receive_size=4096,
        idle_timeout_s=33.0,
    )


@pytest.mark.parametrize(
    ("in_sync_replicas", "peers", "needed"),
    [(2, 1, 1), (2, 2, 2), (2, 3, 3), (3, 2, 1), (3, 3, 2), (3, 4, 3), (4, 2, 1)],
)
def test_so_many_peers_must_answer_that_one_has_every_acknowledged_message(
    in_sync_replicas: int, peers: int, needed: int
) -> None:
    """A message is on ``in_sync_replicas - 1`` of them: fewer than that may be left unasked."""
    required = {"inSyncReplicas": str(in_sync_replicas), "haCatchUpAtStart": "require"}
    config = config_of(haPeers=",".join(PEERS[:peers]), **required)
    assert options.catch_up_answers_needed(config) == needed


def test_a_peer_that_is_named_twice_is_one() -> None:
    config = config_of(haPeers=",".join([PEERS[0], PEERS[1], PEERS[0]]), haCatchUpAtStart="require", inSyncReplicas="2")
    assert options.peers_to_ask(config) == (PEERS[0], PEERS[1])
    assert options.catch_up_answers_needed(config) == 2
