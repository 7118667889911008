"""The output directory: which run may write, what is committed, and how a run becomes visible.

    OUT/topic=NAME/part-BEGIN-END.parquet     committed messages
    OUT/_rmqha/manifest-BEGIN-END.json        one a run; the commit
    OUT/_rmqha/.manifest-BEGIN-END.json       one that is being written
    OUT/_rmqha/staging-RUN/ATTEMPT/topic=.../ of a run that is not finished, for each attempt at a task
    OUT/_rmqha/lock                           held while a run is going on (local outputs)

A run writes its files to staging, looks whether all are there, then writes its manifest: now it is committed. Then the
files that it names move to their places. A crash before the manifest leaves staging, which the next run removes; one
after it leaves files to move, which it moves.
"""

import fcntl
import logging
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from socket import gethostname
from typing import Final
from uuid import uuid4

from pyarrow import fs

from rmqha.errors import StoreError, StoreLockedError
from rmqha.spark.replay.manifest import Manifest, decode, manifest_name
from rmqha.spark.replay.paths import partition_directory
from rmqha.spark.replay.report import OutputFile, UnplacedFilesError
from rmqha.spark.replay.sink import sync, writing
from rmqha.spark.replay.task import TaskResult
from rmqha.spark.segments import open_filesystem

logger = logging.getLogger("rmqha.spark")

_META: Final = "_rmqha"
_STAGING: Final = "staging"
_MANIFEST: Final = re.compile(r"manifest-\d{20}-\d{20}\.json")
"""Not a copy that somebody keeps beside it."""
_UNCOMMITTED: Final = re.compile(r"\.manifest-\d{20}-\d{20}\.json")
_PART: Final = re.compile(r"/?topic=[^/]+/part-(\d{20})-\d{20}[^/]*$")


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
        if not self._is_local:
            self._filesystem.create_dir(self._meta, recursive=True)
            yield
            return
        made = [each for each in (Path(self._meta), *Path(self._meta).parents) if not each.exists()]
        self._filesystem.create_dir(self._meta, recursive=True)
        for each in reversed(made):
            with suppress(PermissionError):  # who may write to a directory need not be let read it
                sync(str(each.parent))
        descriptor = os.open(f"{self._meta}/lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            problem = f"another replay is writing to {self._uri}: wait for it, or choose another --out"
            raise StoreLockedError(problem) from None
        finally:  # given up by word: a process that was started meanwhile may hold the descriptor until it is another
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def has_topic(self, topic: str) -> bool:
        """Whether an earlier run has written messages of this topic."""
        path = f"{self._root}/{partition_directory(topic)}"
        return bool(self._filesystem.get_file_info(path).type != fs.FileType.NotFound)

    def last_manifest(self) -> Manifest | None:
        """The newest run's; None before the first.

        Raises:
            StoreError: a manifest is damaged or missing: one between two others, the newest or oldest one, or all.
        """
        infos = self._filesystem.get_file_info(fs.FileSelector(self._meta, allow_not_found=True))
        names = sorted(info.base_name for info in infos if _MANIFEST.fullmatch(info.base_name))
        for one, following in pairwise(names):
            if one.split("-")[2].removesuffix(".json") != following.split("-")[1]:
                raise StoreError(f"{self._meta}: no manifest between {one} and {following}; restore it")
        if names:
            last = self._read(names[-1])
            self._check_ends(names[0], names[-1], last.end.offset)
            return last
        for info in self._filesystem.get_file_info(fs.FileSelector(self._root)):
            if info.base_name.startswith("topic="):
                raise StoreError(f"{info.path} is there, but no manifest: choose another --out, or empty this one")
        return None

    def _check_ends(self, oldest: str, newest: str, end: int) -> None:
        """Files of a later run would be written once more, by other names if the log has grown since.

        Readers that go by the manifests would not know those of an earlier one.
        """
        begin = int(oldest.split("-")[1])
        infos = self._filesystem.get_file_info(fs.FileSelector(self._root, recursive=True))
        found = ((info.path, _PART.fullmatch(info.path.removeprefix(self._root))) for info in infos)
        parts = sorted((int(part[1]), path) for path, part in found if part)
        if later := [path for at, path in parts if at >= end]:
            raise StoreError(
                f"{self._meta}: the newest manifest is {newest}, but {len(later)} files hold what a later run wrote, "
                f"{min(later)} for one: manifest-{end:020d}-*.json is missing, as in a copy that was made during a "
                "run; restore it, or, if it is lost, remove those files, which the next run writes anew"
            )
        if earlier := [path for at, path in parts if at < begin]:
            raise StoreError(
                f"{self._meta}: the oldest manifest is {oldest}, but {len(earlier)} files hold what an earlier run "
                f"wrote, {min(earlier)} for one: manifest-*-{begin:020d}.json is missing; restore it, or move those "
                "files away"
            )

    def _read(self, name: str) -> Manifest:
        path = f"{self._meta}/{name}"
        with self._filesystem.open_input_stream(path) as stream:
            return decode(stream.read(), path=path)

    @contextmanager
    def staging(self) -> Iterator[str]:
        """A new directory for the files of this run, named as tasks on other machines must; removed if the block fails.

        Attempts that go on after that, or after the commit, find it gone, and can leave nothing behind.
        """
        name = f"{_STAGING}-{uuid4().hex}"
        self._filesystem.create_dir(f"{self._meta}/{name}", recursive=False)
        base, mark, query = self._uri.partition("?") if "://" in self._uri else (self._uri, "", "")
        try:
            yield f"{base.rstrip('/')}/{_META}/{name}{mark}{query}"
        except (Exception, KeyboardInterrupt):
            self._remove_staging()
            raise

    def recover(self, last: Manifest | None) -> None:
        """Finish a committed run that was interrupted, which is told, and remove the leftovers of one that was not.

        Raises:
            StoreError: a file of the committed run is neither where it was staged nor in its place.
            UnplacedFilesError: some cannot be moved.
        """
        if last is not None and (moved := self._move_files(last.files)):
            logger.warning(
                "replay.finished: the run up to %d was interrupted after its commit: %d of its %d files are in their "
                "places now; its totals, and what it left out, are in %s",
                last.end.offset,
                moved,
                len(last.files),
                self.path_of(last.begin, last.end.offset),
            )
        if last is not None:
            self._look_for(last)
        self._remove_staging()

    def _look_for(self, last: Manifest) -> None:
        """A copy that ended early may have its manifests, and not all files of the newest; who archives, neither."""
        infos = self._filesystem.get_file_info([f"{self._root}/{file.path}" for file in last.files])
        gone = [file for file, info in zip(last.files, infos, strict=True) if info.type == fs.FileType.NotFound]
        if gone:
            logger.warning(
                "replay.files_gone: of the run up to %d, %d of its %d files with %d messages are not in %s, %s for "
                "one: if nobody took them away, it is a copy that ended early: bring them back; nothing writes them "
                "again",
                last.end.offset,
                len(gone),
                len(last.files),
                sum(file.messages for file in gone),
                self._uri,
                gone[0].path,
            )

    def _remove_staging(self) -> None:
        """An attempt that nobody waits for may still write: what cannot be removed is left to the next run."""
        for path in self._staging():
            try:
                self._filesystem.delete_dir(path)
            except OSError as error:
                logger.warning("replay.staging_left: %r: %s", path, error)
        for info in self._filesystem.get_file_info(fs.FileSelector(self._meta, allow_not_found=True)):
            if _UNCOMMITTED.fullmatch(info.base_name):
                with suppress(OSError):
                    self._filesystem.delete_file(info.path)

    def _staging(self) -> list[str]:
        infos = self._filesystem.get_file_info(fs.FileSelector(self._meta, allow_not_found=True))
        return [info.path for info in infos if info.base_name.startswith(f"{_STAGING}-")]

    def check_staged(self, results: Sequence[TaskResult]) -> None:
        """Whatever tasks wrote must be here as they wrote it.

        Raises:
            StoreError: files are missing or cut short, as when workers do not share the output's directory.
        """
        files = [(result.host, file) for result in results for file in result.files]
        infos = self._filesystem.get_file_info([self._staged(file) for _, file in files])
        lost = [(host, file) for (host, file), info in zip(files, infos, strict=True) if info.size != file.bytes]
        if lost:
            host, file = lost[0]
            raise StoreError(
                f"{len(lost)} of {len(files)} files that tasks wrote are not in {self._uri} as this machine, "
                f"{gethostname()}, sees it; the first is {file.staged}/{file.path}, written on {host}. Nothing was "
                "committed; give an --out that all machines share"
            )

    def _staged(self, file: OutputFile) -> str:
        return f"{self._meta}/{file.staged}/{file.path}"

    def path_of(self, begin: int, end: int) -> str:
        """Of the manifest of this run."""
        return f"{self._meta}/{manifest_name(begin, end)}"

    def commit(self, begin: int, end: int, *, files: Sequence[OutputFile], manifest: bytes) -> str:
        """Make a run part of the output, all of it or nothing; the manifest's path.

        Raises:
            UnplacedFilesError: it is, but some of its files are not in their places yet.
        """
        temporary, final = f"{self._meta}/.{manifest_name(begin, end)}", self.path_of(begin, end)
        with writing(temporary), self._filesystem.open_output_stream(temporary) as stream:
            stream.write(manifest)
        if self._is_local:
            sync(temporary)
            self._sync_staging()
        self._filesystem.move(temporary, final)
        if self._is_local:
            sync(self._meta)
        self._move_files(files)
        self._remove_staging()
        return final

    def _sync_staging(self) -> None:
        for staging in self._staging():
            for directory, _, _ in os.walk(staging):
                sync(directory)

    def _move_files(self, files: Sequence[OutputFile]) -> int:
        """How many were moved. A directory that takes none holds back no other."""
        staging = {path.rpartition("/")[2] for path in self._staging()}
        unmoved = defaultdict[str, list[OutputFile]](list)
        for file in files:
            if file.staged.partition("/")[0] in staging:
                unmoved[file.path.rpartition("/")[0]].append(file)
        moved, problems = 0, list[OSError]()
        for directory, files_of_topic in sorted(unmoved.items()):
            try:
                self._filesystem.create_dir(f"{self._root}/{directory}", recursive=True)
                moved += sum([self._move(file) for file in files_of_topic])
                if self._is_local:
                    sync(f"{self._root}/{directory}")
            except OSError as error:
                problems.append(error)
        if self._is_local and unmoved:
            sync(self._root)
        if problems:
            raise UnplacedFilesError(problems, self._meta)
        return moved

    def _move(self, file: OutputFile) -> bool:
        """Whether it was not in its place yet."""
        staged, place = self._staged(file), f"{self._root}/{file.path}"
        if self._is_file(staged):
            self._filesystem.move(staged, place)
            return True
        if not self._is_file(place):
            raise StoreError(
                f"{file.path} belongs to a committed run, but is neither in {self._uri} nor in {staged}, where it "
                f"was to be moved from: bring it back, or choose another --out; if you removed it, remove "
                f"{self._meta}/{file.staged.partition('/')[0]}, too"
            )
        return False

    def _is_file(self, path: str) -> bool:
        return bool(self._filesystem.get_file_info(path).type == fs.FileType.File)
