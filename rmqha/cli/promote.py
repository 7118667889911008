"""``rmqha promote``: a slave's configuration becomes a master's, if nothing speaks against it."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqha.cli.errors import CliError
from rmqha.cli.options import SECONDS, addresses_option
from rmqha.exit_codes import EXIT_FAILED

if TYPE_CHECKING:
    from rmqha.cli.promotion import Obstacle, Replica
    from rmqha.config import BrokerConfig


@click.command(
    epilog="""\b
Examples:
  rmqha promote -c slave.conf --role ASYNC_MASTER             shows what would be done
  rmqha promote -c slave.conf --role SYNC_MASTER --peer 10.0.0.7:10911 --execute
  rmqha promote -c slave.conf --role SYNC_MASTER --old-store /mnt/old-master --execute

\b
Exit codes: 0 nothing is in the way, or done; 1 something is; 2 wrong usage or configuration, 3 the slave does
not answer. docs/operations.md, "Failover by hand", says what comes before and after.
"""
)
@click.option("-c", "--config", "path", required=True, type=click.Path(path_type=Path), help="The slave's broker.conf.")
@click.option("--role", required=True, type=click.Choice(["SYNC_MASTER", "ASYNC_MASTER"]),
              help="SYNC_MASTER answers SEND_OK only when enough slaves follow it (inSyncReplicas).")  # fmt: skip
@click.option("--peer", "peers", metavar="HOST[:PORT]", multiple=True, callback=addresses_option,
              help="listenPort of another replica to compare; can be repeated. What name servers and haPeers name is "
              "compared anyway.")  # fmt: skip
@click.option("--old-store", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="The old master's store, if its disk can be read here: to compare it, and count what this slave "
              "lacks.")  # fmt: skip
@click.option("--accept-unknown-queue-ends", is_flag=True, help="Though queues without a message may begin at 0 again.")
@click.option("--accept-later-begin", is_flag=True, help="Though another log begins earlier than this slave's.")
@click.option("--accept-lost-tail", is_flag=True, help="Though messages of --old-store are not in this slave's log.")
@click.option("--accept-damage", is_flag=True, help="Though this slave's log has damaged records, or a start cut it.")
@click.option("--accept-lost-tables", is_flag=True,
              help="Though this slave never had its master's topics, groups and offsets, or lost them.")  # fmt: skip
@click.option("--execute", is_flag=True, help="Change the file. Without, nothing is changed.")
@click.option("--timeout", "timeout_s", type=SECONDS, default=3.0, show_default=True, metavar="SECONDS",
              help="For each answer.")  # fmt: skip
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True,
              help="json: one object with all that was found and done.")  # fmt: skip
@click.pass_context
def promote(
    ctx: click.Context,
    /,
    path: Path,
    *,
    role: str,
    peers: tuple[str, ...],
    old_store: Path | None,
    execute: bool,
    timeout_s: float,
    output: str,
    **accept: bool,
) -> None:
    """Make a running slave's broker.conf a master's: role, brokerId 0, no master to copy from. A copy is kept.

    It is refused while the old master answers, or anything at its ports; while a replica that can be reached holds
    a longer log; and while the slave itself is not fit. An old master that cannot be reached from here may be alive
    all the same: see to it that it is not.
    """
    from dataclasses import asdict  # noqa: PLC0415

    from rmqha.cli.output import echo_json  # noqa: PLC0415
    from rmqha.cli.promotion import obstacles, stakes  # noqa: PLC0415 - not for --help
    from rmqha.cli.promotion_asked import ask_replicas, look_at_old_store, other_addresses  # noqa: PLC0415
    from rmqha.logs import escaped  # noqa: PLC0415

    config, own = _slave(path, timeout_s=timeout_s)
    addresses, silent = other_addresses(config, own, peers, timeout_s=timeout_s)
    others = ask_replicas(addresses, config, own, timeout_s=timeout_s)
    end = own.get("max_offset") or 0
    old = look_at_old_store(old_store, config.store_path_commit_log, end) if old_store is not None else None
    accepted = {f"--{name.replace('_', '-')}" for name, is_given in accept.items() if is_given}
    found = obstacles(own, others, old)
    in_the_way = [one for one in found if one.accepted_by not in accepted]
    told = [*stakes(own, others, old), *_not_compared(others), *_awaited_as_master(config), *map(_silent, silent)]
    changes = {"brokerRole": role, "brokerId": "0", "haMasterAddress": None, "masterAddress": None}
    if output == "text":
        click.echo("\n".join(map(escaped, told)))
    copy = _edit(path, changes) if execute and not in_the_way else None
    if output == "json":
        facts = {"stakes": told, "obstacles": [asdict(one) for one in in_the_way], "changes": changes}
        echo_json(facts | {"executed": copy is not None, "formerFile": copy and str(copy)})
    elif in_the_way:
        _tell_obstacles(in_the_way)
    else:
        _tell_changes(path, changes, config, others, copy=copy)
    if in_the_way:
        ctx.exit(EXIT_FAILED)


def _slave(path: Path, *, timeout_s: float) -> "tuple[BrokerConfig, dict[str, Any]]":
    """The slave's configuration, and what it says of itself.

    Raises:
        ConfigError: the configuration cannot be used.
        CliError: it is no slave's; the slave does not answer, or another broker does, or it has another store.
    """
    from rmqha.cli.ask import runtime_table  # noqa: PLC0415
    from rmqha.cli.promotion_asked import own_address  # noqa: PLC0415
    from rmqha.cli.store_place import other_store  # noqa: PLC0415
    from rmqha.cli.verdict import read_status  # noqa: PLC0415
    from rmqha.config import load_config  # noqa: PLC0415

    config = load_config(path)
    if not config.is_slave or config.enable_dleger_commit_log:
        what = "a DLedger member's: its group elects" if config.enable_dleger_commit_log else "a master's already"
        raise CliError(f"{path} is {what}", hint="name the broker.conf of the slave that is to be master")
    try:
        own = read_status(runtime_table(own_address(config), timeout_s=timeout_s))
    except ValueError as error:
        raise CliError(f"what answers at {own_address(config)} tells no status", why=f"{error!r:.200}") from None
    if (own.get("broker_name"), own.get("broker_id")) != (config.broker_name, config.broker_id):
        raise CliError(
            f"at {own_address(config)} runs another broker than {path} says",
            why=f"{own.get('broker_name')} with brokerId {own.get('broker_id')}",
            hint="name the broker.conf with which the slave was started",
        )
    if why := other_store(config, own):
        raise CliError(
            f"at {own_address(config)} runs a broker with another store than {path} says",
            why=why,
            hint="name the broker.conf with which the slave was started, from the directory that it was started in; "
            "as a master by this file it would begin with another log",
        )
    return config, own


def _silent(name_server: str) -> str:
    return f"{name_server}: this name server does not answer; replicas that it alone knows are not compared"


def _not_compared(others: "list[Replica]") -> list[str]:
    """Who reads that nothing is in the way has to know that nobody was asked."""
    is_known = any(one.is_slave for one in others)
    return [] if is_known else ["no other slave was compared: none is known that answers; name each by --peer"]


def _awaited_as_master(config: "BrokerConfig") -> list[str]:
    """What it will wait for without end, if that does not come back."""
    from rmqha.choices import HaCatchUp  # noqa: PLC0415

    if config.ha_catch_up_at_start is not HaCatchUp.REQUIRE or not config.ha_peers:
        return []
    told = (
        "haCatchUpAtStart=require: as a master it takes no sends before peers of haPeers "
        f"({', '.join(config.ha_peers)}) have shown what they hold; take an old master that does not come back out of "
        "haPeers, or set try"
    )
    return [told]


def _edit(path: Path, changes: dict[str, str | None]) -> Path:
    """Change the file; returns where the former one is. Raises ConfigError, CliError: it is as it was."""
    from rmqha.cli.conf_edit import edited, replace_conf  # noqa: PLC0415

    stamp = time.strftime("%Y%m%d-%H%M%S")
    data = edited(path.read_bytes(), changes, note=f"rmqha promote, {stamp}")
    try:
        copy, _ = replace_conf(path, data, copy_suffix=f".before-{stamp}")
    except OSError as error:
        hint = "may this user write in its directory? Without --execute the lines are shown, to write by hand"
        raise CliError(f"{path} is as it was: it could not be changed", why=str(error), hint=hint) from None
    return copy


def _tell_obstacles(obstacles: "list[Obstacle]") -> None:
    from rmqha.logs import escaped  # noqa: PLC0415

    for one in obstacles:
        option = f" (or {one.accepted_by})" if one.accepted_by else ""
        CliError(f"not promoted: {escaped(one.what)}", hint=f"{one.next}{option}").show()


def _tell_changes(
    path: Path, changes: dict[str, str | None], config: "BrokerConfig", others: "list[Replica]", *, copy: Path | None
) -> None:
    from rmqha.cli.promotion_asked import own_address  # noqa: PLC0415
    from rmqha.codec.host import join_address  # noqa: PLC0415

    click.echo(f"\n{path}:")
    for key, value in changes.items():
        if value is not None or key in config.origins:
            click.echo(f"  {key}={value}" if value is not None else f"  {key} is taken away")
    if copy is None:
        click.echo("\nNothing is in the way, and nothing was changed: give --execute to do it.")
        return
    ha_address = join_address(config.broker_ip2, config.ha_listen_port)
    click.echo(f"\nDone; the former file is {copy}. Next:")
    click.echo(f"  1. stop the slave, then start it by 'rmqha master -c {path}' (a unit that runs 'rmqha slave', too)")
    slaves = ", ".join(one.address for one in others if one.is_slave) or "other slaves, if there are any"
    click.echo(f"  2. {slaves}: haMasterAddress={ha_address}, masterAddress={own_address(config)}, and restart")
    click.echo("  3. the old master, when it is back: the same, with brokerRole=SLAVE and a brokerId of its own")
