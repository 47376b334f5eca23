"""A disk that can lose its power: it knows which writes were synced, and what a cut would leave.

`PowerCutDisk` is an SQLite file system layer over the real one. It keeps, for every file, what was
synced and what was only written since, and for the directory which names would be found again.
`state()` freezes all that at any moment, and `State.images` makes the files that could be on the
disk after a power cut just then: nothing unsynced, all of it, or any part, torn writes included.

SQLite's layers written in Python have no shared memory, so a store on such a disk is opened with
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

SECTOR = 512  # what a disk writes whole
_JOURNALS = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL

Op: TypeAlias = tuple[int, bytes | None]  # a write at an offset; None cuts the file off there
Image: TypeAlias = Mapping[str, bytes]  # a directory after the power came back
Moment = Literal["open", "read", "write", "truncate", "sync", "synced", "delete"]
Hook: TypeAlias = Callable[[Moment, str], None]


def _nothing(moment: Moment, name: str) -> None:
    pass


class _Inode:
    """One file's content, whatever names lead to it."""

    __slots__ = ("lasting", "pending")

    def __init__(self) -> None:
        self.lasting = b""
        self.pending: list[Op] = []


@dataclass(frozen=True, slots=True)
class Content:
    """A file at one moment: what was synced, and what was only written since."""

    lasting: bytes
    pending: Sequence[Op]

    def after(self, kept: Sequence[Op]) -> bytes:
        content = bytearray(self.lasting)
        for op in kept:
            apply(content, op)
        return bytes(content)


@dataclass(frozen=True, slots=True)
class State:
    """All that a power cut at one moment could make of the files."""

    names: Mapping[str, int]  # the names that are safe, and whose content they lead to
    changes: Sequence[tuple[str, int | None]]  # names made and removed since, not yet safe
    contents: Mapping[int, Content]

    def images(self, seed: int, parts: int) -> Iterator[Image]:
        """Nothing unsynced, then all of it, then `parts` seeded mixtures."""
        yield self._image(_none, 0)
        yield self._image(list, len(self.changes))
        for turn in range(parts):
            chance = random.Random(seed * 1_000 + turn)  # noqa: S311 - a seed reproduces it
            # A journaling file system keeps the order of its directory's changes.
            kept_changes = chance.randint(0, len(self.changes))
            yield self._image(partial(_part, chance), kept_changes)

    def _image(self, keep: Callable[[Sequence[Op]], Sequence[Op]], kept_changes: int) -> Image:
        names = dict(self.names)
        for name, number in self.changes[:kept_changes]:
            if number is None:
                names.pop(name, None)
            else:
                names[name] = number
        found = {name: self.contents[number] for name, number in names.items()}
        return {name: file.after(keep(file.pending)) for name, file in found.items()}


def apply(content: bytearray, op: Op) -> None:
    """Do to a file's content what an operation does."""
    offset, data = op
    if data is None:
        del content[offset:]
        return
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def _none(_: Sequence[Op]) -> list[Op]:
    return []


def _part(chance: random.Random, ops: Sequence[Op]) -> list[Op]:
    """Some of the writes, in any mixture: a disk writes back in the order that suits it."""
    kept: list[Op] = []
    share = chance.choice((0.1, 0.5, 0.9))
    for op in ops:
        if chance.random() >= share:
            continue
        if op[1] is not None and chance.random() < 0.3:  # noqa: PLR2004 - torn now and then
            kept += _torn(op[0], op[1], chance)
        else:
            kept.append(op)
    return kept


def _torn(offset: int, data: bytes, chance: random.Random) -> Iterator[Op]:
    """A write of which only some sectors arrived."""
    at = 0
    while at < len(data):
        end = min(len(data), at + SECTOR - (offset + at) % SECTOR)
        if chance.random() < 0.5:  # noqa: PLR2004
            yield offset + at, data[at:end]
        at = end


class PowerCutDisk(apsw.VFS):
    """Hand its `name` to SQLite as the `vfs`; `close` it when no connection uses it any more.

    `hook` is told of every operation before it is done (and of a sync after it, as "synced"); what
    it raises is the operation's failure. A disk that is not `honest` ignores syncs.
    """

    def __init__(self, *, honest: bool = True, hook: Hook = _nothing) -> None:
        self.name = f"windlass-power-{uuid4().hex}"
        self.hook = hook
        self.honest = honest
        self.lock = RLock()
        self._live: dict[str, _Inode] = {}
        self._safe: dict[str, _Inode] = {}
        self._changes: list[tuple[str, _Inode | None]] = []
        super().__init__(self.name, "")

    def close(self) -> None:
        self.unregister()

    def state(self) -> State:
        with self.lock:
            inodes = [*self._safe.values(), *(inode for _, inode in self._changes if inode)]
            return State(
                names={name: id(inode) for name, inode in self._safe.items()},
                changes=[(name, id(inode) if inode else None) for name, inode in self._changes],
                contents={
                    id(inode): Content(inode.lasting, tuple(inode.pending)) for inode in inodes
                },
            )

    # -- what SQLite calls

    def xOpen(  # noqa: N802 - SQLite's own name
        self, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        base = Path(path).name if path else ""
        self.hook("open", base)
        file = _File(self, name, base, flags)
        with self.lock:
            if base not in self._live:
                inode = self._live[base] = _Inode()
                self._changes.append((base, inode))
                # SQLite syncs the directory with the first sync of a journal that it made.
                file.syncs_directory = bool(flags[0] & _JOURNALS)
            file.inode = self._live[base]
        return file

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        base = Path(filename).name
        self.hook("delete", base)
        super().xDelete(filename, syncdir)
        with self.lock:
            if self._live.pop(base, None) is not None:
                self._changes.append((base, None))
            if syncdir:
                self.sync_directory()

    def sync_directory(self) -> None:
        with self.lock:
            if not self.honest:
                return
            for name, inode in self._changes:
                if inode is None:
                    self._safe.pop(name, None)
                else:
                    self._safe[name] = inode
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
        """The real file is not synced: it is the model that loses power."""
        self.disk.hook("sync", self.base)
        with self.disk.lock:
            if self.disk.honest:
                content = bytearray(self.inode.lasting)
                for op in self.inode.pending:
                    apply(content, op)
                self.inode.lasting = bytes(content)
                self.inode.pending.clear()
            if self.syncs_directory:
                self.disk.sync_directory()
                self.syncs_directory = False
        self.disk.hook("synced", self.base)


def write_image(image: Image, directory: Path) -> None:
    """Lay the files of an image into an empty directory."""
    for name, content in image.items():
        (directory / name).write_bytes(content)
