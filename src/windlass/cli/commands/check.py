"""`windlass check`: checks configuration and store, and how to fix problems."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import typer
from rich.markup import escape

from windlass.app import Windlass
from windlass.cli import terminal
from windlass.cli.app_loader import load_app
from windlass.cli.common_options import AppPath, AsJson, Url
from windlass.cli.event_loop import run
from windlass.cli.store_durability import url_durability
from windlass.core.clock import SECOND, SystemClock
from windlass.core.errors import StoreError, WindlassError
from windlass.core.query.job_query import JobQuery
from windlass.settings import load_settings
from windlass.stores import Finding, Verdict, checkup, open_store, public_url, sqlite_path

MIB = 1024 * 1024
LOW_DISK = 1024 * MIB
FULL_DISK = 100 * MIB
_NETWORK_FILE_SYSTEMS = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "fuse.sshfs",
    "9p",
    "afs",
    "ceph",
    "glusterfs",
}


_MARKS = {Verdict.OK: "[green]✓[/]", Verdict.WARNING: "[yellow]![/]", Verdict.ERROR: "[red]✗[/]"}


def check(url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Check the configuration and the store; report problems and how to fix them.

    Exit code 1 if there is a problem, 3 if the store is unavailable.
    """
    findings, unavailable = run(_check(url, app))
    errors = [finding for finding in findings if finding.verdict is Verdict.ERROR]
    if as_json:
        terminal.print_json({"ok": not errors, "findings": [asdict(one) for one in findings]})
    else:
        console = terminal.out()
        for one in findings:
            line = f"{_MARKS[one.verdict]} [bold]{one.check:<11}[/] {escape(one.message)}"
            console.print(line, soft_wrap=True)
            if one.fix:
                console.print(f"  {'':<11} → {escape(one.fix)}", soft_wrap=True)
    if errors:
        raise typer.Exit(terminal.UNAVAILABLE if unavailable else terminal.FAILED)


async def _check(url: str | None, app_path: str | None) -> tuple[list[Finding], bool]:
    findings: list[Finding] = []
    found = load_settings({"url": url, "app": app_path})
    store_url, origin = found["url"].value, found["url"].origin
    key: str | None = None
    if found["app"].is_set:
        try:
            app = load_app(found["app"].value)
        except WindlassError as error:
            findings.append(Finding("app", Verdict.ERROR, str(error)))
        else:
            findings += _app(app)
            if url is None:
                store_url, origin, key = app.url, f"the app {found['app'].value}", app.key
            await app.aclose()
    findings.insert(
        0, Finding("settings", Verdict.OK, f"url is {public_url(store_url)} ({origin})")
    )
    try:
        path = sqlite_path(store_url)
        store_findings = await checkup(store_url, key=key)
    except WindlassError as error:
        failed = Finding("store", Verdict.ERROR, str(error))
        return [*findings, failed], isinstance(error, StoreError)
    if store_findings is not None:
        return [*findings, *store_findings], False
    findings.append(url_durability(store_url))
    if path is not None:
        findings.append(Finding("driver", Verdict.OK, f"SQLite via apsw {_version('apsw')}"))
        findings += _disk(path)
        if not path.exists():
            finding = _no_file(path)
            return [*findings, finding], finding.verdict is Verdict.ERROR
    try:
        findings += await _store(store_url)
    except WindlassError as error:
        findings.append(Finding("store", Verdict.ERROR, str(error)))
        return findings, isinstance(error, StoreError)
    return findings, False


def _no_file(path: Path) -> Finding:
    if not path.parent.is_dir():
        fix = f"create it (mkdir -p {path.parent}), or correct the URL"
        return Finding("store", Verdict.ERROR, f"directory {path.parent} does not exist", fix)
    if not os.access(path.parent, os.W_OK):
        fix = "give this user write permission, or choose another directory"
        return Finding("store", Verdict.ERROR, f"cannot create a file in {path.parent}", fix)
    fix = "is this the right directory? windlass migrate, or the first job, creates it"
    return Finding("store", Verdict.WARNING, f"no database at {path} yet", fix)


def _version(package: str) -> str:
    return importlib.metadata.version(package)


def _app(app: Windlass) -> Iterator[Finding]:
    specs = list(app.tasks)
    if specs:
        yield Finding("app", Verdict.OK, "1 task" if len(specs) == 1 else f"{len(specs)} tasks")
    else:
        fix = "import the modules that define tasks where the app is created"
        yield Finding("app", Verdict.WARNING, "the app has no tasks", fix)
    for spec in specs:
        if not spec.is_async and spec.options.policy.timeout is not None:
            yield Finding(
                "task",
                Verdict.WARNING,
                f"{spec.name} has a timeout but runs in a thread, which cannot be stopped",
                "make it async, or check ctx.cancelled in the task",
            )


def _disk(path: Path) -> Iterator[Finding]:
    folder = next(parent for parent in path.parents if parent.exists())
    free = shutil.disk_usage(folder).free
    used = sum(part.stat().st_size for part in path.parent.glob(f"{path.name}*") if part.is_file())
    message = f"{free / MIB:,.0f} MiB free; database size {used / MIB:,.1f} MiB"
    if free < LOW_DISK:
        verdict = Verdict.ERROR if free < FULL_DISK else Verdict.WARNING
        yield Finding("disk", verdict, message, "make space, or move the file to a larger disk")
    else:
        yield Finding("disk", Verdict.OK, message)
    kind = _file_system(folder)
    if kind in _NETWORK_FILE_SYSTEMS:
        fix = "SQLite needs file locks of a local disk: move the file to one"
        yield Finding("disk", Verdict.ERROR, f"{folder} is on a network file system ({kind})", fix)


def _file_system(folder: Path) -> str | None:
    """Return the type of the file system; None without /proc/mounts."""
    try:
        lines = [line.split() for line in Path("/proc/mounts").read_text("utf-8").splitlines()]
    except OSError:
        return None
    above = [(line[1], line[2]) for line in lines if folder.resolve().is_relative_to(line[1])]
    return max(above, key=lambda mount: len(mount[0]))[1] if above else None


async def _store(url: str) -> list[Finding]:
    async with open_store(url) as store:
        now = await store.ping()
        findings = [Finding("store", Verdict.OK, "reachable and writable")]
        done = await store.migrate()
        message = f"migrated now: {', '.join(done)}" if done else "up to date"
        findings.append(Finding("schema", Verdict.OK, message))
        newest = (await store.find(JobQuery(limit=1))).rows
        ahead = max((row.updated_at for row in newest), default=0) - now
        drift = abs(now - SystemClock().now())
        if max(ahead, drift) > SECOND:
            finding = Finding(
                "clock",
                Verdict.ERROR,
                f"the newest job is {terminal.span(ahead / SECOND)} in the future"
                if ahead > drift
                else f"the store's clock and this machine's differ by {drift / SECOND:.1f} s",
                "synchronize the clock with NTP: delays and leases depend on it",
            )
            return [*findings, finding]
        return [*findings, Finding("clock", Verdict.OK, "in sync with the store")]
