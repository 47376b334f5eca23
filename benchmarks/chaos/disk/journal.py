"""Journal of all file changes of all processes, and the possible disk contents after a power cut.

Every process appends to one file. It records a change after making it, inside the same call and
under SQLite's locks. So two changes of one range are recorded in their true order, and every
recorded change was made. It records a sync after its return, with the journal length before its
start: only earlier entries count as synced. A change that a process did not record counts as made
after the cut.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Literal, NamedTuple, TypeAlias

import apsw

from benchmarks.chaos.disk.vfs_hooks import Disk, RealCall
from windlass.testing.power_cut import Content, DiskState, FileOp, apply

Kind: TypeAlias = Literal["open", "write", "truncate", "sync", "delete"]
_KINDS: tuple[Kind, ...] = ("open", "write", "truncate", "sync", "delete")
_HEAD = Struct("<BBqI")  # kind, length of the name, number, length of the data


class Entry(NamedTuple):
    at: int  # position in the journal
    kind: Kind
    name: str
    number: int  # offset of a write, new size, what a sync covers, whether a delete is synced
    data: bytes


class JournaledDisk(Disk):
    """The real disk with a journal of its changes. Without `honors_sync`, syncs are ignored."""

    def __init__(self, path: Path, *, honors_sync: bool = True) -> None:
        self._honors_sync = honors_sync
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def opened(self, name: str) -> None:
        self._note("open", name)

    def write(self, name: str, data: bytes, offset: int, real_call: RealCall) -> int:
        return self._done(real_call(), "write", name, offset, data)

    def truncate(self, name: str, size: int, real_call: RealCall) -> int:
        return self._done(real_call(), "truncate", name, size)

    def sync(self, name: str, real_call: RealCall) -> int:
        covered = os.fstat(self._file).st_size if self._honors_sync else 0
        return self._done(real_call(), "sync", name, covered)

    def delete(self, name: str, syncs: bool, real_call: RealCall) -> int:
        return self._done(real_call(), "delete", name, int(syncs and self._honors_sync))

    def _done(self, code: int, kind: Kind, name: str, number: int = 0, data: bytes = b"") -> int:
        if code == apsw.SQLITE_OK:
            self._note(kind, name, number, data)
        return code

    def _note(self, kind: Kind, name: str, number: int = 0, data: bytes = b"") -> None:
        """Append with one write call, so that entries of two processes do not mix."""
        head = _HEAD.pack(_KINDS.index(kind), len(name), number, len(data))
        entry = head + name.encode() + data
        if os.write(self._file, entry) != len(entry):
            raise OSError("short write to the journal of the disk")


def read(path: Path) -> Iterator[Entry]:
    content, at = path.read_bytes(), 0
    while at < len(content):
        kind, name_size, number, size = _HEAD.unpack_from(content, at)
        begin = at + _HEAD.size
        name, data = begin + name_size, begin + name_size + size
        yield Entry(at, _KINDS[kind], content[begin:name].decode(), number, content[name:data])
        at = data


class _File:
    def __init__(self, synced: bytes = b"") -> None:
        self.synced = bytearray(synced)
        self.pending: deque[tuple[int, FileOp]] = deque()

    def sync(self, covered: int) -> None:
        while self.pending and self.pending[0][0] < covered:
            apply(self.synced, self.pending.popleft()[1])


class Replay:
    """Replays a journal on the files at its start.

    The directory is that of a journaling file system (ext4, XFS, btrfs): synced names survive, and
    of later changes a prefix.
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        self._live = {name: _File(content) for name, content in files.items()}
        self._safe = dict(self._live)
        self._changes: deque[tuple[int, str, _File | None]] = deque()

    def apply_entries(self, entries: Iterator[Entry]) -> DiskState:
        for entry in entries:
            match entry.kind:
                case "sync":
                    self._file(entry).sync(entry.number)
                    self._sync_directory(entry.number)
                case "delete":
                    if self._live.pop(entry.name, None) is not None:
                        self._changes.append((entry.at, entry.name, None))
                    if entry.number:
                        self._sync_directory(entry.at + 1)
                case "open":
                    self._file(entry)
                case "write":
                    self._file(entry).pending.append((entry.at, (entry.number, entry.data)))
                case "truncate":
                    self._file(entry).pending.append((entry.at, (entry.number, None)))
        return self._state()

    def _file(self, entry: Entry) -> _File:
        if entry.name not in self._live:
            made = self._live[entry.name] = _File()
            self._changes.append((entry.at, entry.name, made))
        return self._live[entry.name]

    def _sync_directory(self, covered: int) -> None:
        while self._changes and self._changes[0][0] < covered:
            _, name, file = self._changes.popleft()
            if file is None:
                self._safe.pop(name, None)
            else:
                self._safe[name] = file

    def _state(self) -> DiskState:
        files = [*self._safe.values(), *(file for _, _, file in self._changes if file)]
        return DiskState(
            names={name: id(file) for name, file in self._safe.items()},
            changes=[(name, id(file) if file else None) for _, name, file in self._changes],
            contents={
                id(file): Content(bytes(file.synced), [op for _, op in file.pending])
                for file in files
            },
        )
