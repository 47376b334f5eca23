"""Durability of a store: whether accepted jobs survive a power cut."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from windlass.stores import Finding, Verdict, checkup
from windlass.stores.urls import HTTP

CHECK = "durability"


async def store_durability(url: str) -> str | None:
    """Return the durability of the store in words; None if only its server knows it."""
    if urlsplit(url).scheme in HTTP:
        return None
    findings = await checkup(url)
    if findings is None:
        return url_durability(url).message
    return next((finding.message for finding in findings if finding.check == CHECK), None)


def url_durability(url: str) -> Finding:
    if urlsplit(url).scheme == "memory":
        fix = "fine for tests; otherwise use sqlite:///jobs.db"
        return Finding(
            CHECK, Verdict.WARNING, "jobs in memory are lost when their process ends", fix
        )
    match dict(parse_qsl(urlsplit(url).query)).get(CHECK):
        case "off":
            fix = "remove durability=off from the URL; it is for tests"
            return Finding(CHECK, Verdict.ERROR, "a power cut may corrupt the file", fix)
        case "normal":
            fix = "remove durability=normal from the URL if that matters"
            message = "a power cut may lose the most recent writes"
            return Finding(CHECK, Verdict.WARNING, message, fix)
        case None | "full":
            return Finding(CHECK, Verdict.OK, "full: accepted jobs survive a power cut")
        case other:
            fix = "remove it from the URL: full is the default"
            return Finding(CHECK, Verdict.ERROR, f"invalid durability {other!r}", fix)
