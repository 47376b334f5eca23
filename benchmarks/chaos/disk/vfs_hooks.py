"""Intercepts the file changes of SQLite in this process, for all connections opened later.

An SQLite VFS in Python has no shared memory, so two processes could not share a file. This module
keeps SQLite's own VFS and replaces only the few C functions that change files, with `ctypes`.
"""

from __future__ import annotations

import ctypes
import sys
import traceback
from collections.abc import Callable
from ctypes import CFUNCTYPE, Structure, c_char_p, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any, TypeAlias

import apsw

RealCall: TypeAlias = Callable[[], int]  # makes the change and returns the code of SQLite

_Open = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)
_Delete = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int)
_Write = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_Truncate = CFUNCTYPE(c_int, c_void_p, c_int64)
_Sync = CFUNCTYPE(c_int, c_void_p, c_int)


class _Vfs(Structure):
    """The beginning of `sqlite3_vfs`."""

    _fields_ = (
        ("version", c_int),
        ("file_size", c_int),
        ("path_size", c_int),
        ("next", c_void_p),
        ("name", c_char_p),
        ("data", c_void_p),
        ("open", c_void_p),
        ("delete", c_void_p),
    )


class _Methods(Structure):
    """`sqlite3_io_methods`; unchanged entries are copied."""

    _fields_ = (
        ("version", c_int),
        ("close", c_void_p),
        ("read", c_void_p),
        ("write", c_void_p),
        ("truncate", c_void_p),
        ("sync", c_void_p),
        ("others", c_void_p * 13),
    )


class Disk:
    """Handles each change of a file; this base makes it unchanged. `name` has no directory."""

    def opened(self, name: str) -> None:
        """A file was opened, and created if it did not exist."""

    def write(self, name: str, data: bytes, offset: int, real_call: RealCall) -> int:  # noqa: ARG002
        return real_call()

    def truncate(self, name: str, size: int, real_call: RealCall) -> int:  # noqa: ARG002
        return real_call()

    def sync(self, name: str, real_call: RealCall) -> int:  # noqa: ARG002
        return real_call()

    def delete(self, name: str, syncs: bool, real_call: RealCall) -> int:  # noqa: ARG002
        return real_call()


class VfsHooks:
    """Routes file changes of SQLite through a `Disk`. Must live as long as SQLite is used."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._names: dict[int, str] = {}  # by the address of the open file
        self._tables: dict[int, _Methods] = {}  # the replacements, by the address of the original
        self._kept: list[Any] = []  # keeps the functions that C calls alive
        vfs = _default_vfs()
        self._open, self._delete = _Open(vfs.open), _Delete(vfs.delete)
        vfs.open = self._function(_Open, self._on_open)
        vfs.delete = self._function(_Delete, self._on_delete)

    def _function(self, kind: Any, function: Callable[..., int]) -> int | None:
        def guarded(*arguments: Any) -> int:
            try:
                return function(*arguments)
            except Exception:  # noqa: BLE001 - C would see a success
                traceback.print_exc(file=sys.stderr)
                return apsw.SQLITE_IOERR

        made = kind(guarded)
        self._kept.append(made)
        return ctypes.cast(made, c_void_p).value

    def _on_open(self, vfs: int, path: int | None, file: int, flags: int, out: int) -> int:
        code: int = self._open(vfs, path, file, flags, out)
        if code == apsw.SQLITE_OK and path is not None:
            self._names[file] = Path(ctypes.string_at(path).decode()).name
            table = c_void_p.from_address(file)  # a file begins with the address of its functions
            assert table.value is not None
            table.value = ctypes.addressof(self._hooked_methods(table.value))
            self._disk.opened(self._names[file])
        return code

    def _hooked_methods(self, address: int) -> _Methods:
        if address not in self._tables:
            hooked = _Methods.from_buffer_copy(ctypes.string_at(address, ctypes.sizeof(_Methods)))
            write, truncate, sync = (
                _Write(hooked.write),
                _Truncate(hooked.truncate),
                _Sync(hooked.sync),
            )
            self._kept += [hooked, write, truncate, sync]
            disk, names = self._disk, self._names

            def on_write(file: int, data: int, size: int, offset: int) -> int:
                content = ctypes.string_at(data, size)
                return disk.write(
                    names[file], content, offset, lambda: write(file, data, size, offset)
                )

            def on_truncate(file: int, size: int) -> int:
                return disk.truncate(names[file], size, lambda: truncate(file, size))

            def on_sync(file: int, flags: int) -> int:
                return disk.sync(names[file], lambda: sync(file, flags))

            hooked.write = self._function(_Write, on_write)
            hooked.truncate = self._function(_Truncate, on_truncate)
            hooked.sync = self._function(_Sync, on_sync)
            self._tables[address] = hooked
        return self._tables[address]

    def _on_delete(self, vfs: int, path: bytes, syncs: int) -> int:
        name = Path(path.decode()).name
        return self._disk.delete(name, bool(syncs), lambda: self._delete(vfs, path, syncs))


def _default_vfs() -> _Vfs:
    connection = apsw.Connection(":memory:")
    found = c_void_p()
    connection.file_control("main", apsw.SQLITE_FCNTL_VFS_POINTER, ctypes.addressof(found))
    connection.close()
    assert found.value is not None
    return _Vfs.from_address(found.value)
