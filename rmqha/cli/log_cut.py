"""``rmqha log cut``: give up the end of a log, where a broker must not decide that by itself."""

from pathlib import Path
from typing import Final

import click

from rmqha.cli.errors import CliError

_STORE_FILES: Final = ("lock", "abort", "checkpoint")


@click.command(
    epilog="""\b
Examples:
  rmqha log cut /data/s --at-offset 788889
  rmqha log cut /data/s --at-offset 788889 --yes
  rmqha log cut /fast/log --root /data/s --at-offset 788889 --yes

\b
Exit codes: 0 cut, or shown what would be; 1 impossible; 2 wrong usage.
"""
)
@click.argument("store")
@click.option("--at-offset", type=click.IntRange(0), required=True, help="The first physical offset to go.")
@click.option("--root", metavar="DIR", help="The store (storePathRootDir), if STORE is a commitlog kept elsewhere.")
@click.option("--file-size", type=click.IntRange(1, 2**31 - 1), metavar="BYTES",
              help="Of each file, mappedFileSizeCommitLog: if the only one there is too short.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Do it; without, only what would be lost is shown.")
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def cut(store: str, *, at_offset: int, root: str | None, file_size: int | None, yes: bool, output: str) -> None:
    """Take away all messages of STORE at and behind an offset. They are lost, unless a copy has them.

    For a store that a broker refuses to start on, because a record is bad that was safe once (it names the offset).
    Copy the store first. If another broker holds the messages, name it in haPeers at the next start: then this one
    fetches them before it takes new ones.
    """
    from rmqha.cli.output import echo_json  # noqa: PLC0415
    from rmqha.cli.store_place import commit_log_directory, member_directory  # noqa: PLC0415
    from rmqha.errors import StoreError  # noqa: PLC0415
    from rmqha.store.log_cut import cut_log, plan_cut  # noqa: PLC0415
    from rmqha.store.os_disk import OsDisk  # noqa: PLC0415

    directory = commit_log_directory(store)
    root = root or (store if Path(directory) != Path(store) else str(Path(store).resolve().parent))
    if not any((Path(root) / name).exists() for name in _STORE_FILES):
        raise CliError(
            f"{root} is not the store of {directory}",
            why=f"it has no {' and no '.join(_STORE_FILES)}; the cut is noted there, or the next start would refuse it",
            hint="name the store (storePathRootDir) with --root",
        )
    if member := member_directory(root):
        raise CliError(
            f"{store} is not cut: its broker is a member of a DLedger group",
            why=f"the group's entries ({member}) lie behind this log, which is the same on all members",
            hint="give this member a copy of another's whole store",
        )
    disk = OsDisk()
    try:
        plan = plan_cut(disk, root, directory, at_offset, file_size=file_size)
        if yes:
            plan = cut_log(disk, root, directory, offset=at_offset, file_size=file_size)
    except StoreError as error:
        raise CliError(f"{store} cannot be cut at {at_offset}", why=str(error)) from None
    if output == "json":
        echo_json({"cut": yes, "atOffset": at_offset, "records": plan.records, "wholeFiles": plan.segments})
        return
    verb = "gone" if yes else "would go"
    click.echo(f"{verb}: {plan.records:,} good records from offset {at_offset:,} on, {plan.segments:,} whole files")
    if not yes:
        click.echo("nothing was changed; add --yes")
