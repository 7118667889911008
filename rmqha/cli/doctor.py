"""``rmqha doctor``: what usually goes wrong, looked for before it does."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqha.cli.options import SECONDS, settings_option
from rmqha.exit_codes import EXIT_FAILED

if TYPE_CHECKING:
    from rmqha.cli.finding import Finding
    from rmqha.config import BrokerConfig


@click.command(
    epilog="""\b
Examples:
  rmqha doctor -c /etc/rmqha/broker.conf
  sudo -u rmqha rmqha doctor -c /etc/rmqha/broker.conf       as the user that runs the broker
  rmqha doctor -c broker.conf --format json | jq -c 'select(.level != "ok")'

\b
Exit codes: 0 nothing fails (there may be warnings), 1 something does, 2 wrong usage or configuration.
"""
)
@click.option("-c", "--config", "path", type=click.Path(path_type=Path), help="The broker.conf.")
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, callback=settings_option,
              help="As for rmqha master.")  # fmt: skip
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True,
              help="json: an object for each finding.")  # fmt: skip
@click.option("--timeout", "timeout_s", type=SECONDS, default=3.0, show_default=True, metavar="SECONDS",
              help="For each answer of a peer or a name server.")  # fmt: skip
@click.pass_context
def doctor(ctx: click.Context, path: Path | None, settings: dict[str, str], output: str, timeout_s: float) -> None:
    """Look at a configuration, at this machine, and at the peers and name servers that it names. Nothing is changed.

    Limits and permissions are those of who runs this: run it as the broker's user, and mind that a service has limits
    of its own. A broker that runs may be looked at as well: then its own limits count, and what it goes by is compared
    with the file.
    """
    from dataclasses import asdict  # noqa: PLC0415

    from rmqha.cli.broker_conf import load_with_accounts  # noqa: PLC0415 - not for --help
    from rmqha.cli.finding import FAIL, OK, WARN, Finding  # noqa: PLC0415
    from rmqha.cli.output import echo_json  # noqa: PLC0415

    config, notes = load_with_accounts(path, settings)
    role = "DLedger member" if config.enable_dleger_commit_log else config.broker_role
    findings = [Finding(OK, "config", f"{path or 'the defaults'}: {role} {config.broker_name}")]
    findings += [Finding(WARN, "config", note) for note in notes]
    findings += _findings(config, timeout_s=timeout_s)
    if output == "json":
        for finding in findings:
            echo_json(asdict(finding))
    else:
        for finding in findings:
            click.echo(_lines(finding))
        counts = [sum(finding.level == level for finding in findings) for level in (FAIL, WARN)]
        click.echo(f"\n{counts[0]} failed, {counts[1]} warnings")
    if any(finding.level == FAIL for finding in findings):
        ctx.exit(EXIT_FAILED)


def _findings(config: "BrokerConfig", *, timeout_s: float) -> "list[Finding]":
    from rmqha.cli import doctor_host as host  # noqa: PLC0415
    from rmqha.cli import doctor_peers as peers  # noqa: PLC0415
    from rmqha.cli.doctor_addresses import check_addresses  # noqa: PLC0415
    from rmqha.cli.doctor_file_size import check_file_size  # noqa: PLC0415
    from rmqha.cli.doctor_ids import check_broker_id  # noqa: PLC0415
    from rmqha.cli.doctor_masters import check_masters  # noqa: PLC0415
    from rmqha.cli.doctor_members import check_members  # noqa: PLC0415
    from rmqha.cli.doctor_running import check_configuration, files_limit  # noqa: PLC0415
    from rmqha.cli.doctor_store import check_log, check_member  # noqa: PLC0415
    from rmqha.cli.doctor_tables import check_tables  # noqa: PLC0415
    from rmqha.cli.doctor_taken import check_taken  # noqa: PLC0415
    from rmqha.cli.store_place import lock_holder  # noqa: PLC0415

    pid = lock_holder(config.store_path_root_dir)
    is_running, files_max = pid is not None, files_limit(pid) if pid else None
    tenant = None if is_running else peers.find_tenant(config, timeout_s=timeout_s)
    log, of_log = (None, []) if is_running else check_log(config)
    is_empty = host.is_empty(config) and not is_running
    return [
        *host.check_software(config),
        *host.check_limits(config, pid=pid or 0, files_max=files_max),
        *check_file_size(config, pid=pid),
        *host.check_clock(config.store_path_commit_log),
        *host.check_store(config, is_running=is_running),
        *([tenant] if tenant is not None else ()),
        *check_member(config),
        *of_log,
        *(() if is_running else (*check_tables(config), *check_taken(config))),
        *host.check_disk(config),
        *host.check_certificates(config),
        *(() if tenant is not None else host.check_ports(config, is_running=is_running)),
        *(peers.check_own(config, timeout_s=timeout_s) if is_running else ()),
        *(check_configuration(config, files_max=files_max, timeout_s=timeout_s) if is_running else ()),
        *peers.check_relations(config),
        *check_addresses(config),
        *peers.check_peers(config, log, is_empty=is_empty, timeout_s=timeout_s),
        *(() if is_running or tenant is not None else check_broker_id(config, timeout_s=timeout_s)),
        *check_members(config, timeout_s=timeout_s),
        *check_masters(config, timeout_s=timeout_s),
        *peers.check_name_servers(config, timeout_s=timeout_s),
    ]


def _lines(finding: "Finding") -> str:
    from rmqha.logs import escaped  # noqa: PLC0415

    color = {"ok": "green", "warn": "yellow", "fail": "red"}[finding.level]
    line = f"{click.style(finding.level.ljust(4), fg=color)}  {finding.area:<15}  {escaped(finding.what)}"
    return f"{line}\n{'':23}Next: {finding.next}" if finding.next else line
