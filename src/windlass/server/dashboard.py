"""The dashboard: pages at `/`, and the files that they load.

One document is answered at the address of every page; which one it shows is its script's business.
It and what it loads are for everybody: they hold no secrets, and whoever opens them signs in.
Addresses of files begin with a digest of all of them, so that browsers may keep them for ever, and
a new release is new to them as a whole.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import quote

from fastapi import Request, Response

from windlass.core.errors import NotFoundError
from windlass.server import javascript_client

FOLDER = Path(__file__).parent / "pages"
ASSET = "/assets/{digest}/{name:path}"
CLIENT = "client"  # where the pages find the JavaScript client, among their own files
PAGES = (
    "",
    "jobs",
    "jobs/{id}",
    "failures",
    "flows",
    "flows/{id}",
    "schedules",
    "workers",
    "enqueue",
    "audit",
    "keys",
)
_KINDS = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
_SENT = {*_KINDS, ".svg", ".png", ".woff2"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; worker-src 'self'; base-uri 'self'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types windlass"  # the one that names the script of the shared worker
)
_OF_PAGES = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
_FIRST = {"style/tokens.css": 0, "style/base.css": 1, "style/parts.css": 2}  # which others build on
_APART = {"live/hub.js"}  # the shared worker's, which is no script of the page
_AS_IT_IS = "%/:?&=+,;@!$'()*~"  # in an address that somebody sent, and that they get back
_FOR_EVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class Asset:
    body: bytes
    packed: bytes
    kind: str

    @staticmethod
    def of(path: Path) -> Asset:
        body = path.read_bytes()
        kind = _KINDS.get(path.suffix) or mimetypes.guess_type(path.name)[0]
        return Asset(body, gzip.compress(body, mtime=0), kind or "application/octet-stream")


@dataclass(frozen=True, slots=True)
class Assets:
    files: dict[str, Asset]
    digest: str
    document: str


@cache
def assets() -> Assets:
    """Read once: they are small, and change with a release only."""
    found = {name: Asset.of(path) for name, path in sorted(_named())}
    digest = hashlib.sha256()
    for name, one in found.items():
        digest.update(f"{name}\0{len(one.body)}\0".encode() + one.body)
    return Assets(found, digest.hexdigest()[:12], (FOLDER / "index.html").read_text())


def _named() -> list[tuple[str, Path]]:
    roots = (
        ("", FOLDER, FOLDER),
        (f"{CLIENT}/", javascript_client.folder(), javascript_client.folder() / "src"),
    )
    found = [
        (prefix + path.relative_to(root).as_posix(), path)
        for prefix, root, below in roots
        for path in below.rglob("*")
        if path.suffix in _SENT
    ]
    client = javascript_client.folder() / "windlass.js"
    return [*found, (f"{CLIENT}/{client.name}", client)]


def page(depth: int) -> Callable[[], Awaitable[Response]]:
    """What answers at an address so many folders deep."""

    async def document() -> Response:
        """A page of the dashboard."""
        return answer(depth)

    return document


def answer(depth: int, status: int = 200) -> Response:
    return Response(_document(depth), status, media_type="text/html", headers=_OF_PAGES)


def lost(request: Request) -> Response | None:
    """A page that says so, for a person at an address where there is nothing.

    One who typed a slash too many is led on, by a way that names no host.
    """
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    if request.method != "GET" or "text/html" not in request.headers.get("accept", ""):
        return None
    if path.startswith(("/api/", "/assets/")):
        return None
    asked: bytes = request.scope.get("raw_path") or quote(request.scope["path"]).encode()
    if asked.endswith(b"/") and (last := asked[:-1].rpartition(b"/")[2]):
        query = quote(request.scope["query_string"], safe=_AS_IT_IS)
        led = f"../{quote(last, safe=_AS_IT_IS)}" + (f"?{query}" if query else "")
        return Response(status_code=307, headers={"Location": led})
    return answer(path.count("/") - 1, 404)


def _document(depth: int) -> str:
    """Its base is relative: it works wherever the server is mounted, or behind which proxy."""
    return _frame().replace("{base}", "../" * depth or "./", 1)


@cache
def _frame() -> str:
    every = assets()
    folder = f"assets/{every.digest}"
    styles = sorted(
        _suffixed(every, ".css"), key=lambda name: (_FIRST.get(name, len(_FIRST)), name)
    )
    loaded = [f'<link rel="stylesheet" href="{folder}/{name}">' for name in styles]
    loaded += [
        f'<link rel="modulepreload" href="{folder}/{name}">'
        for name in _suffixed(every, ".js")
        if name not in _APART
    ]
    return every.document.format(base="{base}", folder=folder, loaded="\n".join(loaded))


def _suffixed(every: Assets, suffix: str) -> list[str]:
    return [name for name in every.files if name.endswith(suffix)]


async def asset(request: Request, digest: str, name: str) -> Response:
    """A file that pages load."""
    every = assets()
    found = every.files.get(name) if digest == every.digest else None
    if found is None:
        raise NotFoundError(f"no file {name!r:.80} in this release; load the page again")
    headers = {"Cache-Control": _FOR_EVER, "Vary": "Accept-Encoding"}
    body = found.body
    if "gzip" in request.headers.get("accept-encoding", ""):
        body, headers["Content-Encoding"] = found.packed, "gzip"
    # What a shared worker may do is said by its own script's answer, not by the page's.
    headers["Content-Security-Policy"] = "default-src 'none'; connect-src 'self'; script-src 'self'"
    return Response(body, media_type=found.kind, headers=headers)
