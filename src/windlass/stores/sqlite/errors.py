"""Translation of SQLite errors to Windlass errors."""

from __future__ import annotations

import apsw

from windlass.core.errors import StoreCorruptError, StoreError, StoreUnavailableError


def translate(error: apsw.Error, path: str) -> StoreError:
    """Return the error to raise. The outcome of the call is unknown."""
    match error:
        case apsw.FullError():
            return StoreUnavailableError(
                f"the disk of {path} is full: nothing was stored; free disk space and retry"
            )
        case apsw.BusyError() | apsw.LockedError() | apsw.ProtocolError():
            return StoreUnavailableError(
                f"{path} was locked by another process for too long; "
                "check for a long transaction or a backup"
            )
        case apsw.CantOpenError():
            return StoreUnavailableError(
                f"cannot open {path}: check that its directory exists and is writable"
            )
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            return StoreUnavailableError(
                f"{path} is not writable: check the permissions of the file and its directory"
            )
        case apsw.NotADBError() | apsw.CorruptError():
            return StoreCorruptError(
                f"{path} is corrupt or not a SQLite database ({error}): "
                "restore a backup, or use another file"
            )
        case apsw.IOError():
            return StoreUnavailableError(
                f"disk error on {path} ({error}): the outcome of this call is unknown; "
                "check the disk, then retry"
            )
        case _:
            return StoreError(f"SQLite error on {path} ({type(error).__name__}: {error})")
