"""The output directory: who may write, what is committed, and how a run becomes visible.

    OUT/topic=NAME/part-BEGIN-END.parquet     committed messages
    OUT/_rmqha/manifest-BEGIN-END.json        one a run; the commit
    OUT/_rmqha/staging-BEGIN/topic=.../       files of a run that is not finished
    OUT/_rmqha/lock                           held while a run is going on (local outputs)

A run writes its files to staging, then its manifest: now it is committed. Then the files move to their places. A crash
before the manifest leaves staging, which the next run removes; one after it leaves files to move, which it moves.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Final

from pyarrow import fs

from rmqha.errors import StoreError, StoreLockedError
from rmqha.spark.replay.manifest import Manifest, decode, manifest_name
from rmqha.spark.replay.sink import sync
from rmqha.spark.segments import open_filesystem

_META: Final = "_rmqha"


class Output:
    """One output root."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._filesystem, self._root = open_filesystem(uri)
        self._meta = f"{self._root}/{_META}"

    @property
    def _is_local(self) -> bool:
        return isinstance(self._filesystem, fs.LocalFileSystem)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out; only local file systems can.

        Raises:
            StoreLockedError: another run is writing here.
        """
        self._filesystem.create_dir(self._meta, recursive=True)
        if not self._is_local:
            yield
            return
        descriptor = os.open(f"{self._meta}/lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            problem = f"another replay is writing to {self._uri}: wait for it, or choose another --out"
            raise StoreLockedError(problem) from None
        finally:
            os.close(descriptor)

    def last_manifest(self) -> Manifest | None:
        """The newest run's; None before the first.

        Raises:
            StoreError: a manifest is damaged, or one between two others is missing.
        """
        infos = self._filesystem.get_file_info(fs.FileSelector(self._meta, allow_not_found=True))
        names = sorted(info.base_name for info in infos if info.base_name.startswith("manifest-"))
        for one, following in pairwise(names):
            if one.split("-")[2].removesuffix(".json") != following.split("-")[1]:
                raise StoreError(f"{self._meta}: no manifest between {one} and {following}; restore it")
        return self._read(names[-1]) if names else None

    def _read(self, name: str) -> Manifest:
        path = f"{self._meta}/{name}"
        with self._filesystem.open_input_stream(path) as stream:
            return decode(stream.read(), path=path)

    def staging_uri(self, begin: int) -> str:
        """Where a run's tasks write, as they must name it on their machines."""
        base, mark, query = self._uri.partition("?")
        return f"{base.rstrip('/')}/{_META}/{_staging_name(begin)}{mark}{query}"

    def recover(self, last: Manifest | None) -> None:
        """Finish a committed run that was interrupted, and remove the leftovers of one that was not committed."""
        if last is not None:
            self._move_files(last)
        for info in self._filesystem.get_file_info(fs.FileSelector(self._meta, allow_not_found=True)):
            if info.base_name.startswith("staging-"):
                self._filesystem.delete_dir(info.path)

    def commit(self, begin: int, end: int, *, files: list[str], manifest: bytes) -> str:
        """Make a run part of the output, all of it or nothing; the manifest's path."""
        name = manifest_name(begin, end)
        temporary, final = f"{self._meta}/.{name}", f"{self._meta}/{name}"
        with self._filesystem.open_output_stream(temporary) as stream:
            stream.write(manifest)
        if self._is_local:
            sync(temporary)
            self._sync_staging(_staging_name(begin))
        self._filesystem.move(temporary, final)
        if self._is_local:
            sync(self._meta)
        self._move_files(Manifest(begin, end, {}, tuple(files), None))
        self.recover(None)
        return final

    def _sync_staging(self, staging: str) -> None:
        for directory, _, _ in os.walk(f"{self._meta}/{staging}"):
            sync(directory)

    def _move_files(self, manifest: Manifest) -> None:
        staging = f"{self._meta}/{_staging_name(manifest.begin)}"
        if self._filesystem.get_file_info(staging).type == fs.FileType.NotFound:
            return
        directories = {path.rpartition("/")[0] for path in manifest.files}
        for directory in sorted(directories):
            self._filesystem.create_dir(f"{self._root}/{directory}", recursive=True)
        for path in manifest.files:
            if self._filesystem.get_file_info(f"{staging}/{path}").type == fs.FileType.File:
                self._filesystem.move(f"{staging}/{path}", f"{self._root}/{path}")
        if self._is_local:
            for directory in sorted(directories):
                sync(f"{self._root}/{directory}")


def _staging_name(begin: int) -> str:
    return f"staging-{begin:020d}"
