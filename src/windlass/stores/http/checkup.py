"""What `windlass check` finds at a server: whether it answers, whom it takes us for, its clock."""

from __future__ import annotations

from windlass.core.clock import SECOND, SystemClock
from windlass.stores.checkup import Finding, Verdict
from windlass.stores.http.config import HttpConfig
from windlass.stores.http.store import HttpStore
from windlass.stores.urls import split

_HOME = frozenset({"localhost", "127.0.0.1", "::1"})


async def checkup(url: str, key: str | None) -> list[Finding]:
    """Raises what keeps it from being reached."""
    config = HttpConfig(url=url, key=key)
    async with HttpStore(config) as store:
        now = await store.ping()
        hello = await store.hello()
    what = f"Windlass {hello.version} answers, and so does its store"
    findings = [Finding("server", Verdict.FINE, what), _way(config)]
    whose = " ".join(
        f"{name} {value}" for name, value in (("owner", hello.owner), ("team", hello.team)) if value
    )
    may = f"{', '.join(hello.roles) or 'no role'}, for {whose or 'all jobs'}"
    named = f"key {config.key_id} of {hello.name}" if config.key else "no key is asked for"
    findings.append(Finding("key", Verdict.FINE, f"{named}: {may}"))
    if not hello.capabilities.durable:
        mend = "serve a store that keeps them: windlass serve --url sqlite:///jobs.db"
        lost = Finding("durability", Verdict.WARNING, "its jobs end with its process", mend)
        findings.append(lost)
    drift = abs(now - SystemClock().now())
    if drift > SECOND:
        found = f"the server's clock and this machine's differ by {drift / SECOND:.1f} s"
        mend = "set both by NTP: times that are shown and meant here are the server's"
        findings.append(Finding("clock", Verdict.WARNING, found, mend))
    else:
        findings.append(Finding("clock", Verdict.FINE, "agrees with this machine's"))
    return findings


def _way(config: HttpConfig) -> Finding:
    if config.secure:
        return Finding("connection", Verdict.FINE, "encrypted, and the server is who it says")
    if split(config.url).hostname in _HOME:
        return Finding("connection", Verdict.FINE, "stays on this machine")
    mend = "put a proxy with a certificate before the server, and write https://"
    return Finding(
        "connection", Verdict.WARNING, "plain: the key and all jobs can be read on the way", mend
    )
