"""Simulated disk that models power cuts for SQLite tests.

`PowerCutDisk` is an SQLite VFS over the real one. For each file it tracks the synced content and
the writes since the last sync, and for the directory the synced names. `state()` takes a snapshot.
`DiskState.images` yields possible contents of the disk after a power cut at that moment: with no
unsynced write, with all of them, or with any part, torn writes included.

An SQLite VFS in Python has no shared memory. Open a store on such a disk with
`SqliteConfig(path=…, exclusive=True, vfs=disk.name)`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Literal, TypeAlias
from uuid import uuid4

import apsw

SECTOR = 512  # bytes that a disk writes atomically
_JOURNALS = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL

FileOp: TypeAlias = tuple[int, bytes | None]  # a write at an offset; None truncates the file there
DiskImage: TypeAlias = Mapping[str, bytes]  # the files of a directory after a power cut
DiskOperation = Literal["open", "read", "write", "truncate", "sync", "synced", "delete"]
Hook: TypeAlias = Callable[[DiskOperation, str], None]


def _no_hook(operation: DiskOperation, name: str) -> None:
    pass


class _Inode:
    """The content of one file, independent of its names."""

    __slots__ = ("pending", "synced")

    def __init__(self) -> None:
        self.synced = b""
        self.pending: list[FileOp] = []


@dataclass(frozen=True, slots=True)
class Content:
    """Snapshot of a file: the synced content, and the writes since."""

    synced: bytes
    pending: Sequence[FileOp]

    def after(self, kept: Sequence[FileOp]) -> bytes:
        content = bytearray(self.synced)
        for op in kept:
            apply(content, op)
        return bytes(content)


@dataclass(frozen=True, slots=True)
class DiskState:
    """Snapshot of the disk, from which a power cut makes one of many images."""

    names: Mapping[str, int]  # synced names, with the key of their content
    changes: Sequence[tuple[str, int | None]]  # names created or removed since the last sync
    contents: Mapping[int, Content]

    def images(self, seed: int, parts: int) -> Iterator[DiskImage]:
        """Yield an image without unsynced writes, one with all, then `parts` seeded mixtures."""
        yield self._image(_none, 0)
        yield self._image(list, len(self.changes))
        for part in range(parts):
            rng = random.Random(seed * 1_000 + part)  # noqa: S311 - a seed reproduces it
            # A journaling file system keeps the order of its directory's changes.
            kept_changes = rng.randint(0, len(self.changes))
            yield self._image(partial(_part, rng), kept_changes)

    def _image(
        self, keep: Callable[[Sequence[FileOp]], Sequence[FileOp]], kept_changes: int
    ) -> DiskImage:
        names = dict(self.names)
        for name, number in self.changes[:kept_changes]:
            if number is None:
                names.pop(name, None)
            else:
                names[name] = number
        found = {name: self.contents[number] for name, number in names.items()}
        return {name: file.after(keep(file.pending)) for name, file in found.items()}


def apply(content: bytearray, op: FileOp) -> None:
    """Apply a write or truncate operation to a file's content."""
    offset, data = op
    if data is None:
        del content[offset:]
        return
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def _none(_: Sequence[FileOp]) -> list[FileOp]:
    return []


def _part(rng: random.Random, ops: Sequence[FileOp]) -> list[FileOp]:
    """Return some of the writes: a disk may write back in any order."""
    kept: list[FileOp] = []
    share = rng.choice((0.1, 0.5, 0.9))
    for op in ops:
        if rng.random() >= share:
            continue
        if op[1] is not None and rng.random() < 0.3:  # noqa: PLR2004 - the share of torn writes
            kept += _torn(op[0], op[1], rng)
        else:
            kept.append(op)
    return kept


def _torn(offset: int, data: bytes, rng: random.Random) -> Iterator[FileOp]:
    """Yield the sectors of a write that reached the disk."""
    at = 0
    while at < len(data):
        end = min(len(data), at + SECTOR - (offset + at) % SECTOR)
        if rng.random() < 0.5:  # noqa: PLR2004
            yield offset + at, data[at:end]
        at = end


class PowerCutDisk(apsw.VFS):
    """An SQLite VFS: pass its `name` as `vfs`, and `close` it after the last connection.

    `hook` is called before every operation, and after a sync with "synced". The operation fails
    with the error that `hook` raises. Without `honors_sync`, the disk ignores syncs.
    """

    def __init__(self, *, honors_sync: bool = True, hook: Hook = _no_hook) -> None:
        self.name = f"windlass-power-{uuid4().hex}"
        self.hook = hook
        self.honors_sync = honors_sync
        self.lock = RLock()
        self._current: dict[str, _Inode] = {}
        self._synced_names: dict[str, _Inode] = {}
        self._changes: list[tuple[str, _Inode | None]] = []
        super().__init__(self.name, "")

    def close(self) -> None:
        self.unregister()

    def state(self) -> DiskState:
        with self.lock:
            inodes = [*self._synced_names.values(), *(inode for _, inode in self._changes if inode)]
            return DiskState(
                names={name: id(inode) for name, inode in self._synced_names.items()},
                changes=[(name, id(inode) if inode else None) for name, inode in self._changes],
                contents={
                    id(inode): Content(inode.synced, tuple(inode.pending)) for inode in inodes
                },
            )

    # -- called by SQLite

    def xOpen(  # noqa: N802 - SQLite's own name
        self, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        base = Path(path).name if path else ""
        self.hook("open", base)
        file = _File(self, name, base, flags)
        with self.lock:
            if base not in self._current:
                inode = self._current[base] = _Inode()
                self._changes.append((base, inode))
                # SQLite syncs the directory with the first sync of a new journal.
                file.syncs_directory = bool(flags[0] & _JOURNALS)
            file.inode = self._current[base]
        return file

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        base = Path(filename).name
        self.hook("delete", base)
        super().xDelete(filename, syncdir)
        with self.lock:
            if self._current.pop(base, None) is not None:
                self._changes.append((base, None))
            if syncdir:
                self.sync_directory()

    def sync_directory(self) -> None:
        with self.lock:
            if not self.honors_sync:
                return
            for name, inode in self._changes:
                if inode is None:
                    self._synced_names.pop(name, None)
                else:
                    self._synced_names[name] = inode
            self._changes.clear()


class _File(apsw.VFSFile):
    inode: _Inode

    def __init__(
        self, disk: PowerCutDisk, name: str | apsw.URIFilename | None, base: str, flags: list[int]
    ) -> None:
        super().__init__("", name, flags)
        self.disk = disk
        self.base = base
        self.syncs_directory = False

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        self.disk.hook("read", self.base)
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self.disk.hook("write", self.base)
        super().xWrite(data, offset)
        with self.disk.lock:
            self.inode.pending.append((offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self.disk.hook("truncate", self.base)
        super().xTruncate(newsize)
        with self.disk.lock:
            self.inode.pending.append((newsize, None))

    def xSync(self, flags: int) -> None:  # noqa: ARG002, N802
        """Sync the model only: the real file never loses power."""
        self.disk.hook("sync", self.base)
        with self.disk.lock:
            if self.disk.honors_sync:
                content = bytearray(self.inode.synced)
                for op in self.inode.pending:
                    apply(content, op)
                self.inode.synced = bytes(content)
                self.inode.pending.clear()
            if self.syncs_directory:
                self.disk.sync_directory()
                self.syncs_directory = False
        self.disk.hook("synced", self.base)


def write_image(image: DiskImage, directory: Path) -> None:
    """Write the files of an image into an empty directory."""
    for name, content in image.items():
        (directory / name).write_bytes(content)
