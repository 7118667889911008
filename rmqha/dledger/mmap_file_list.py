"""MmapFileList: files of equal length that together are one range of bytes."""

import errno
from collections.abc import Callable, Sequence
from typing import Final

from rmqha.codec.dledger_entry import MIN_BLANK_LEN, encode_blank
from rmqha.dledger.mmap_file import MmapFile
from rmqha.errors import CorruptLogError, StoreWriteError
from rmqha.memory import BytesLike
from rmqha.store.disk import DataFile, Disk
from rmqha.store.mapped_file import LOST_AND_FOUND, file_name, parse_file_name
from rmqha.store.open_files import OpenFiles
from rmqha.store.passing import is_lack

_DELETED_FILES_MAX: Final = 10


class MmapFileList:
    """The files of one directory, in ascending order (spec: dledger §1.5).

    Invariants: neighbours touch; all but the last are full; ``flushed_where <= max_wrote_position``.
    """

    def __init__(
        self, disk: Disk, store_path: str, *, mapped_file_size: int, open_files: OpenFiles, size_key: str
    ) -> None:
        """Nothing is read here.

        Args:
            disk: where the directory is.
            store_path: holds such files and nothing else.
            mapped_file_size: of each file, in bytes.
            open_files: shared by all that compete for descriptors.
            size_key: the option of that size.
        """
        self._disk: Final = disk
        self.store_path: Final = store_path
        self.mapped_file_size: Final = mapped_file_size
        self._open_files: Final = open_files
        self._size_key: Final = size_key
        self.mapped_files: Final[list[MmapFile]] = []

    @property
    def directories(self) -> list[str]:
        """Where files may lie."""
        return [self.store_path]

    def _directories_for(self, offset: int) -> Sequence[str]:  # noqa: ARG002 - which matters where there are several
        """Where the file that begins at ``offset`` may be made: in the first that has room."""
        return [self.store_path]

    def load(self) -> None:
        """Take in every file as if it were full: recovery finds the end.

        A last file that is shorter and holds nothing is removed: making it was interrupted. So is one that is there
        twice: there was no room for it in one directory.

        Raises:
            CorruptLogError: a foreign file, or one of another length.
            StoreReadError, StoreWriteError: the directory cannot be read, or that file not removed.
        """
        found: dict[int, str] = {}
        for directory in self.directories:
            for name in self._disk.listdir(directory):
                if name == LOST_AND_FOUND:
                    continue
                path, offset = f"{directory}/{name}", parse_file_name(name)
                if offset is None:
                    raise CorruptLogError(0, f"{path} is no file of DLedger's: move it out of this directory")
                found[offset] = self._only_one(offset, path, found[offset]) if offset in found else path
        for offset in sorted(found):
            if not self._remove_unborn(found[offset], is_last=offset == max(found)):
                file = self._mapped(offset, found[offset])
                file.take_as_written(file.file_size)
                self.mapped_files.append(file)

    def _only_one(self, offset: int, *paths: str) -> str:
        for unborn, other in (paths, paths[::-1]):
            if self._is_unborn(unborn, self._disk.file_size(unborn)):
                self._disk.unlink(unborn)
                return other
        raise CorruptLogError(offset, f"the file is there twice: {paths[1]} and {paths[0]}")

    def _is_unborn(self, path: str, size: int) -> bool:
        return size < self.mapped_file_size and self._disk.read_bytes(path).count(0) == size

    def _remove_unborn(self, path: str, *, is_last: bool) -> bool:
        size = self._disk.file_size(path)
        if size == self.mapped_file_size:
            return False
        if is_last and self._is_unborn(path, size):
            self._disk.unlink(path)
            return True
        raise CorruptLogError(
            parse_file_name(path.rpartition("/")[2]) or 0,
            f"{path} has {size} bytes, but {self.mapped_file_size} are configured ({self._size_key}): the store was "
            "made with another size, which all members share, or this file is damaged",
        )

    def _mapped(self, offset: int, path: str) -> MmapFile:
        return MmapFile(
            self._disk,
            path,
            file_from_offset=offset,
            file_size=self.mapped_file_size,
            open_files=self._open_files,
        )

    def check_self(self) -> None:
        """Neighbours touch.

        Raises:
            CorruptLogError: a file is missing.
        """
        for file, following in zip(self.mapped_files, self.mapped_files[1:], strict=False):
            if file.end_offset != following.file_from_offset:
                missing = file_name(file.end_offset)
                raise CorruptLogError(file.end_offset, f"{missing} is missing between {file.path} and {following.path}")

    @property
    def min_offset(self) -> int:
        """Of the first byte that is written; 0 without files."""
        first = self.mapped_files[0] if self.mapped_files else None
        return first.file_from_offset + first.start_position if first else 0

    @property
    def max_wrote_position(self) -> int:
        """Behind the last byte that is written; 0 without files."""
        return self.mapped_files[-1].wrote_offset if self.mapped_files else 0

    @property
    def flushed_where(self) -> int:
        """All before it is durable."""
        for file in self.mapped_files:
            if file.flushed_position < file.file_size:
                return file.file_from_offset + file.flushed_position
        return self.max_wrote_position

    def find(self, offset: int) -> MmapFile | None:
        """The file that has this byte, written or not."""
        if not self.mapped_files:
            return None
        number = (offset - self.mapped_files[0].file_from_offset) // self.mapped_file_size
        return self.mapped_files[number] if 0 <= number < len(self.mapped_files) else None

    def get_data(self, offset: int, size: int) -> memoryview | None:
        """``size`` bytes from ``offset`` on, in one file; None if they are not written. Raises StoreReadError."""
        file = self.find(offset)
        return file.select_mapped_buffer(offset - file.file_from_offset, size) if file else None

    def next_position(self, length: int, *, use_blank: bool = True) -> int:
        """Where ``length`` bytes would go, without a change."""
        return self.position_behind(self.max_wrote_position, length, use_blank=use_blank)

    def position_behind(self, end: int, length: int, *, use_blank: bool = True) -> int:
        """Where ``length`` bytes would go in a list that ends at ``end``."""
        room = self.mapped_file_size - end % self.mapped_file_size
        return end if length + MIN_BLANK_LEN * use_blank <= room else end + room

    def may_lie_at(self, offset: int, end: int, length: int) -> bool:
        """Whether the next record of a log that ends at ``end`` lies there: where it would go, or in the next file.

        A leader that was killed between a blank and the entry for which it ended the file goes on in the next one.
        """
        in_next_file = end + -end % self.mapped_file_size
        return offset in {self.position_behind(end, length), in_next_file}

    def pre_append(self, length: int, *, use_blank: bool = True, at: int | None = None) -> int:
        """Make room for ``length`` bytes in one file, with a blank behind them, or the file ended by one.

        Args:
            length: of what is to be appended.
            use_blank: whether room for a blank must remain.
            at: where they have to lie, one of the two places of :meth:`may_lie_at`; None: where they go.

        Returns:
            Where they will lie.

        Raises:
            StoreWriteError, StoreReadError: there is none, and nothing has changed; DLedger returns -1.
        """
        assert length + MIN_BLANK_LEN * use_blank <= self.mapped_file_size, "the store looks what can ever fit"
        at = self.next_position(length, use_blank=use_blank) if at is None else at
        last = self.mapped_files[-1] if self.mapped_files else None
        if last is None or at == last.end_offset:
            self._create_mapped_file(at - at % self.mapped_file_size)
            if last is not None and not last.is_full:
                last.append_message(encode_blank(last.end_offset - last.wrote_offset))
                last.fill_up()
        return at

    def append(self, data: BytesLike, *, use_blank: bool = True) -> int:
        """Write ``data``; returns where. Raises StoreWriteError, StoreReadError: DLedger returns -1."""
        at = self.pre_append(len(data), use_blank=use_blank)
        self.mapped_files[-1].append_message(data)
        return at

    def write(self, data: BytesLike) -> int:
        """Write ``data`` where :meth:`pre_append` has made room for it; returns where.

        Raises:
            StoreWriteError, StoreReadError: what lies there is unknown.
        """
        at = self.max_wrote_position
        self.mapped_files[-1].append_message(data)
        return at

    def write_again(self, data: BytesLike, offset: int) -> None:
        """Write over what is there, and append what goes beyond. Raises StoreWriteError, StoreReadError."""
        done = 0
        while done < len(data):
            at = offset + done
            piece = data[done : done + self.mapped_file_size - at % self.mapped_file_size]
            file = self.find(at)
            if file is not None and at + len(piece) <= file.wrote_offset:
                file.file().pwrite([piece], at - file.file_from_offset)
            else:
                assert at == self.max_wrote_position, "no hole, and no piece that is half there"
                self.append(piece, use_blank=False)
            done += len(piece)

    def sync(self, start: int) -> None:
        """Make durable what is written from ``start`` on, as what lies before is.

        Raises:
            StoreWriteError, StoreReadError: not done.
        """
        for file in self.mapped_files:
            if file.end_offset > start:
                file.file().sync()
            file.note_flushed()

    def _create_mapped_file(self, offset: int) -> MmapFile:
        path, data_file = self._make_file(offset, self._directories_for(offset))
        file = self._mapped(offset, path)
        self._open_files.keep(file, data_file)
        self.mapped_files.append(file)
        return file

    def _make_file(self, offset: int, directories: Sequence[str]) -> tuple[str, DataFile]:
        """In the first of them that has room. Raises StoreWriteError: in none it can be made."""
        lacking: StoreWriteError | None = None
        for directory in directories:
            path = f"{directory}/{file_name(offset)}"
            try:
                self._disk.makedirs(directory)
                return path, self._create(path)
            except StoreWriteError as error:
                if not is_lack(error):
                    raise
                lacking = lacking or error
        assert lacking is not None, "there is a directory"
        raise lacking

    def _create(self, path: str) -> DataFile:
        try:
            return self._disk.create(path, self.mapped_file_size)
        except StoreWriteError as error:
            if not self._open_files.make_room(error.errno):
                raise
            return self._disk.create(path, self.mapped_file_size)

    def could_make_next(self) -> bool:
        """Make the next file, and remove it again; False: no disk has so much space that this is tried.

        What a crash in between leaves is what one leaves before the first write into a new file.

        Raises:
            StoreWriteError, StoreReadError: it cannot be made, or how much space there is cannot be told.
        """
        offset = self.mapped_files[-1].end_offset if self.mapped_files else 0
        roomy = [directory for directory in self._directories_for(offset) if self._has_space(directory)]
        if not roomy:
            return False
        path, file = self._make_file(offset, roomy)
        file.close()
        self._disk.unlink(path)
        return True

    def _has_space(self, directory: str) -> bool:
        self._disk.makedirs(directory)
        return self._disk.usage(directory).available >= self.mapped_file_size

    def loses_files(self, offset: int) -> bool:
        """Whether some go when the list is cut at ``offset``."""
        return bool(self.mapped_files) and self.mapped_files[-1].file_from_offset > offset

    def truncate_offset(self, offset: int) -> None:
        """Make ``offset`` the end: files behind it are deleted, from the last one on, the rest of its own is zeroed.

        Durable when it returns, and idempotent. Raises StoreWriteError, StoreReadError: the cut is not done.
        """
        while self.mapped_files and self.mapped_files[-1].file_from_offset > offset:
            self._destroy(self.mapped_files[-1])
        if self.mapped_files and offset < self.mapped_files[-1].end_offset:
            self.mapped_files[-1].cut(offset - self.mapped_files[-1].file_from_offset)

    def reset_offset(self, offset: int) -> None:
        """Delete the files that end at or before ``offset``, but the last. Raises StoreWriteError."""
        while len(self.mapped_files) > 1 and self.mapped_files[0].end_offset <= offset:
            self._destroy(self.mapped_files[0])
        file = self.find(offset)
        if file is not None and file is self.mapped_files[0]:
            file.start_position = min(offset - file.file_from_offset, file.wrote_position)

    def rebuild_with_pos(self, pos: int, *, use_blank: bool = True) -> None:
        """Drop everything; the list begins anew at ``pos``, in the middle of a file if need be.

        What lies before it in that file is made a blank, or the next start would find nothing there.

        Raises:
            StoreWriteError, StoreReadError: not done.
        """
        self.destroy()
        position = pos % self.mapped_file_size
        file = self._create_mapped_file(pos - position)
        if position and use_blank:
            file.append_message(encode_blank(position))
        file.wrote_position = file.start_position = position

    def destroy(self) -> None:
        """Delete all files, the last one first. Raises StoreWriteError."""
        while self.mapped_files:
            self._destroy(self.mapped_files[-1])

    def _destroy(self, file: MmapFile) -> None:
        try:
            self._disk.unlink(file.path)
        except StoreWriteError as error:
            if error.errno != errno.ENOENT:  # else it is being deleted in a thread at this moment
                raise
        self._forget(file)

    def forget_first(self) -> None:
        """The oldest file is deleted."""
        self._forget(self.mapped_files[0])

    def _forget(self, file: MmapFile) -> None:
        self.mapped_files.remove(file)
        self._open_files.forget(file)

    async def flush_in_thread(self) -> None:
        """Make durable what was written before the call. Raises StoreWriteError, StoreReadError."""
        for file in [file for file in self.mapped_files if file.flushed_position < file.wrote_position]:
            await file.flush_in_thread()

    async def delete_expired_file_by_time(self, is_expired: Callable[[str], bool], *, kept_from: int) -> int:
        """Delete the oldest files, at most ten, never the last; returns how many.

        Args:
            is_expired: asked with a file's path; the first that is not stays, and with it all behind.
            kept_from: what has anything behind this offset stays, too.

        Raises:
            StoreWriteError, StoreReadError: one cannot be deleted; the next call tries again.
        """
        deleted = 0
        for file in self.mapped_files[:-1][:_DELETED_FILES_MAX]:
            if file.end_offset > kept_from or not is_expired(file.path):
                break
            await self._disk.unlink_in_thread(file.path)
            if file in self.mapped_files:  # else the whole list was dropped meanwhile
                self._forget(file)
            deleted += 1
        return deleted

    def close(self) -> None:
        """Close every file."""
        for file in self.mapped_files:
            held = self._open_files.forget(file)
            if held is not None:
                held.close()
        self.mapped_files.clear()
