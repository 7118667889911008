"""Where a store's commitlog is, whatever directory the operator named."""

from pathlib import Path

from rmqha.cli.errors import CliError


def commit_log_directory(path: str) -> str:
    """Return the directory of the commitlog's files for a store, or for that directory itself.

    Raises:
        CliError: there is no commitlog.
    """
    directory = Path(path)
    if not directory.is_dir():
        raise CliError(f"{path} is no directory", hint="name a store (storePathRootDir) or its commitlog directory")
    if (directory / "commitlog").is_dir():
        return str(directory / "commitlog")
    if any(len(entry.name) == 20 and entry.name.isdigit() for entry in directory.iterdir()):
        return path
    raise CliError(
        f"there is no commitlog in {path}",
        why="it has neither a directory 'commitlog' nor files named by 20 digits",
        hint="name a store (storePathRootDir) or its commitlog directory",
    )
