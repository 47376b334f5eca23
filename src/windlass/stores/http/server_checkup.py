"""Checkup of a Windlass server for `windlass check`: connection, API key, durability, clock."""

from __future__ import annotations

from windlass.core.clock import SECOND, SystemClock
from windlass.stores.checkup_finding import Finding, Verdict
from windlass.stores.http.config import HttpConfig
from windlass.stores.http.store import HttpStore
from windlass.stores.urls import split

_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


async def checkup(url: str, key: str | None) -> list[Finding]:
    """Check the server; raise StoreError if it cannot be reached."""
    config = HttpConfig(url=url, key=key)
    async with HttpStore(config) as store:
        now = await store.ping()
        hello = await store.hello()
    reachable = f"Windlass {hello.version} and its store respond"
    findings = [Finding("server", Verdict.OK, reachable), _check_connection(config)]
    scope = " ".join(
        f"{name} {value}" for name, value in (("owner", hello.owner), ("team", hello.team)) if value
    )
    access = f"{', '.join(hello.roles) or 'no role'}, for {scope or 'all jobs'}"
    key_name = f"key {config.key_id} of {hello.name}" if config.key else "no key required"
    findings.append(Finding("key", Verdict.OK, f"{key_name}: {access}"))
    if not hello.capabilities.durable:
        fix = "serve a durable store: windlass serve --url sqlite:///jobs.db"
        message = "jobs are in memory: they are lost when the server stops"
        findings.append(Finding("durability", Verdict.WARNING, message, fix))
    drift = abs(now - SystemClock().now())
    if drift > SECOND:
        message = f"the clocks of the server and this machine differ by {drift / SECOND:.1f} s"
        fix = "synchronize both with NTP: all times shown here are the server's"
        findings.append(Finding("clock", Verdict.WARNING, message, fix))
    else:
        findings.append(Finding("clock", Verdict.OK, "in sync with this machine"))
    return findings


def _check_connection(config: HttpConfig) -> Finding:
    if config.secure:
        return Finding("connection", Verdict.OK, "encrypted, with a trusted certificate")
    if split(config.url).hostname in _LOCAL:
        return Finding("connection", Verdict.OK, "local to this machine")
    fix = "put a TLS proxy in front of the server, and use https://"
    return Finding(
        "connection", Verdict.WARNING, "not encrypted: the key and all jobs can be read", fix
    )
