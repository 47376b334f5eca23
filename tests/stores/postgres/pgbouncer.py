"""Starts pgbouncer in transaction mode, if it is installed."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

SETTINGS = """
[databases]
* = host={host} port={port} user={user}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 200
logfile = {directory}/log
pidfile = {directory}/pid
"""


def installed() -> str | None:
    return shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def pgbouncer(server: str, *, size: int = 4) -> Iterator[str]:
    """Yield host and port of a pgbouncer for this server; skip the test if it is not installed."""
    program = installed()
    if program is None:
        pytest.skip("pgbouncer is not installed (apt-get install pgbouncer)")
    parts = urlsplit(server)
    options = parse_qs(parts.query)
    host = parts.hostname or options["host"][0]
    with tempfile.TemporaryDirectory(prefix="windlass-bouncer-") as directory:
        port = _free_port()
        file = Path(directory) / "pgbouncer.ini"
        values = {"host": host, "port": parts.port or 5432, "user": parts.username, "size": size}
        file.write_text(SETTINGS.format(**values, own_port=port, directory=directory))
        command = [program, "-q", str(file)]
        if os.geteuid() == 0:  # pgbouncer refuses to run as root
            # The owner of the socket directory can access it.
            user = Path(host).owner() if host.startswith("/") else "nobody"
            command[1:1] = ["-u", user]
            os.chown(directory, pwd.getpwnam(user).pw_uid, -1)
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            _await_port(process, port, Path(directory) / "log")
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(20)


def _await_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise AssertionError(f"pgbouncer did not start: {log.read_text() if log.exists() else ''}")
