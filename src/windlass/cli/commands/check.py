"""`windlass check`: what is wrong here, and how to mend it."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from urllib.parse import urlsplit

import typer
from rich.markup import escape

from windlass.app import Windlass
from windlass.cli import terminal
from windlass.cli.app_loader import load_app
from windlass.cli.store_options import AppPath, AsJson, Url, run, url_option
from windlass.config import settings
from windlass.core.clock import SECOND, SystemClock
from windlass.core.errors import StoreError, WindlassError
from windlass.core.query.job_query import Query
from windlass.stores import Finding, Verdict, checkup, file_of, open_store, public_url

MIB = 1024 * 1024
LITTLE_DISK = 1024 * MIB
NO_DISK = 100 * MIB
_NETWORKED = {
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


_MARKS = {Verdict.FINE: "[green]✓[/]", Verdict.WARNING: "[yellow]![/]", Verdict.WRONG: "[red]✗[/]"}


def check(url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Look whether everything is as it should be; say what is wrong and how to mend it.

    Exit code 1 if something is wrong, 3 if the store cannot be reached.
    """
    findings, unavailable = run(_check(url, app))
    wrong = [finding for finding in findings if finding.verdict is Verdict.WRONG]
    if as_json:
        terminal.print_json({"ok": not wrong, "findings": [asdict(one) for one in findings]})
    else:
        console = terminal.out()
        for one in findings:
            line = f"{_MARKS[one.verdict]} [bold]{one.what:<11}[/] {escape(one.found)}"
            console.print(line, soft_wrap=True)
            if one.mend:
                console.print(f"  {'':<11} → {escape(one.mend)}", soft_wrap=True)
    if wrong:
        raise typer.Exit(terminal.UNAVAILABLE if unavailable else terminal.FAILED)


async def _check(url: str | None, app_path: str | None) -> tuple[list[Finding], bool]:
    findings: list[Finding] = []
    found = settings({"url": url, "app": app_path})
    place, origin = found["url"].value, found["url"].origin
    key: str | None = None
    if found["app"].given:
        try:
            app = load_app(found["app"].value)
        except WindlassError as error:
            findings.append(Finding("app", Verdict.WRONG, str(error)))
        else:
            findings += _app(app)
            if url is None:
                place, origin, key = app.url, f"the app {found['app'].value}", app.key
            await app.aclose()
    findings.insert(0, Finding("settings", Verdict.FINE, f"url is {public_url(place)} ({origin})"))
    try:
        path = file_of(place)
        said = await checkup(place, key=key)
    except WindlassError as error:
        lost = Finding("store", Verdict.WRONG, str(error))
        return [*findings, lost], isinstance(error, StoreError)
    if said is not None:
        return [*findings, *said], False
    findings.append(_durability(place))
    if path is not None:
        findings.append(Finding("driver", Verdict.FINE, f"SQLite of apsw {_version('apsw')}"))
        findings += _disk(path)
        if not path.exists():
            finding = _no_file(path)
            return [*findings, finding], finding.verdict is Verdict.WRONG
    try:
        findings += await _store(place)
    except WindlassError as error:
        findings.append(Finding("store", Verdict.WRONG, str(error)))
        return findings, isinstance(error, StoreError)
    return findings, False


def _no_file(path: Path) -> Finding:
    if not path.parent.is_dir():
        mend = f"make it (mkdir -p {path.parent}), or correct the URL"
        return Finding("store", Verdict.WRONG, f"there is no directory {path.parent}", mend)
    if not os.access(path.parent, os.W_OK):
        mend = "give this user the right to write there, or name another place"
        return Finding("store", Verdict.WRONG, f"no file can be made in {path.parent}", mend)
    mend = "is this the right directory? windlass migrate, or the first job, makes it"
    return Finding("store", Verdict.WARNING, f"there is no file {path} yet", mend)


def _version(package: str) -> str:
    return importlib.metadata.version(package)


def _app(app: Windlass) -> Iterator[Finding]:
    specs = list(app.tasks)
    if specs:
        yield Finding("app", Verdict.FINE, "1 task" if len(specs) == 1 else f"{len(specs)} tasks")
    else:
        mend = "import the modules that define them where the app is made"
        yield Finding("app", Verdict.WARNING, "it has no tasks", mend)
    for spec in specs:
        if not spec.is_async and spec.options.policy.timeout is not None:
            yield Finding(
                "task",
                Verdict.WARNING,
                f"{spec.name} has a timeout but runs in a thread, which cannot be stopped",
                "make it async, or look at ctx.cancelled as it goes",
            )


def _durability(url: str) -> Finding:
    if urlsplit(url).scheme == "memory":
        mend = "fine for tests; else use sqlite:///jobs.db"
        return Finding("durability", Verdict.WARNING, "jobs in memory end with their process", mend)
    match url_option(url, "durability"):
        case "off":
            mend = "take durability=off out of the URL; it is for tests"
            return Finding("durability", Verdict.WRONG, "a power cut may corrupt the file", mend)
        case "normal":
            mend = "take durability=normal out of the URL, if that matters"
            found = "a power cut may lose the last moments"
            return Finding("durability", Verdict.WARNING, found, mend)
        case None | "full":
            return Finding("durability", Verdict.FINE, "full: accepted jobs survive a power cut")
        case other:
            mend = "take it out of the URL: full is the default"
            return Finding("durability", Verdict.WRONG, f"there is no durability {other!r}", mend)


def _disk(path: Path) -> Iterator[Finding]:
    place = next(parent for parent in path.parents if parent.exists())
    free = shutil.disk_usage(place).free
    used = sum(part.stat().st_size for part in path.parent.glob(f"{path.name}*") if part.is_file())
    found = f"{free / MIB:,.0f} MiB free, the jobs use {used / MIB:,.1f} MiB"
    if free < LITTLE_DISK:
        verdict = Verdict.WRONG if free < NO_DISK else Verdict.WARNING
        yield Finding("disk", verdict, found, "make room, or move the file to a larger disk")
    else:
        yield Finding("disk", Verdict.FINE, found)
    kind = _file_system(place)
    if kind in _NETWORKED:
        mend = "SQLite needs the locks of a local disk: move the file to one"
        yield Finding("disk", Verdict.WRONG, f"{place} is on a network file system ({kind})", mend)


def _file_system(place: Path) -> str | None:
    """Of the longest mount point above it; None where there is no such list."""
    try:
        lines = [line.split() for line in Path("/proc/mounts").read_text("utf-8").splitlines()]
    except OSError:
        return None
    above = [(line[1], line[2]) for line in lines if place.resolve().is_relative_to(line[1])]
    return max(above, key=lambda mount: len(mount[0]))[1] if above else None


async def _store(url: str) -> list[Finding]:
    async with open_store(url) as store:
        now = await store.ping()
        findings = [Finding("store", Verdict.FINE, "reachable, and takes writes")]
        done = await store.migrate()
        found = f"brought up to date just now: {', '.join(done)}" if done else "up to date"
        findings.append(Finding("schema", Verdict.FINE, found))
        newest = (await store.find(Query(limit=1))).rows
        ahead = max((row.updated_at for row in newest), default=0) - now
        drift = abs(now - SystemClock().now())
        if max(ahead, drift) > SECOND:
            finding = Finding(
                "clock",
                Verdict.WRONG,
                f"the newest job is {terminal.span(ahead / SECOND)} in the future"
                if ahead > drift
                else f"the store's clock and this machine's differ by {drift / SECOND:.1f} s",
                "set the clock by NTP: waiting jobs and leases go by it",
            )
            return [*findings, finding]
        return [*findings, Finding("clock", Verdict.FINE, "agrees with the jobs")]
