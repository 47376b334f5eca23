"""The one place where SQLite's errors become ours."""

from __future__ import annotations

import apsw

from windlass.core.errors import StoreCorruptError, StoreError, StoreUnavailableError


def translate(error: apsw.Error, path: str) -> StoreError:
    """What went wrong, where, and what to do. The outcome of the call is unknown."""
    match error:
        case apsw.FullError():
            return StoreUnavailableError(
                f"the disk that holds {path} is full: nothing was stored; "
                "make room, and the next call works again"
            )
        case apsw.BusyError() | apsw.LockedError() | apsw.ProtocolError():
            return StoreUnavailableError(
                f"{path} was locked by another process for too long; "
                "look for a long transaction or a backup that holds it"
            )
        case apsw.CantOpenError():
            return StoreUnavailableError(
                f"cannot open {path}: does its directory exist, and may this user write there?"
            )
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            return StoreUnavailableError(
                f"{path} cannot be written: check the file's and the directory's permissions"
            )
        case apsw.NotADBError() | apsw.CorruptError():
            return StoreCorruptError(
                f"{path} is not a sound SQLite database ({error}): "
                "move it away, restore a backup, or name another file"
            )
        case apsw.IOError():
            return StoreUnavailableError(
                f"the disk refused to read or write {path} ({error}): nothing can be promised "
                "about this call; see to the disk, then call again"
            )
        case _:
            return StoreError(f"SQLite refused ({type(error).__name__}: {error}) on {path}")
