"""The dashboard: pages at `/`, and their assets.

All pages have the same HTML document; its script shows the page of the current path.
Document and assets need no authentication: they hold no secrets, and users sign in on the page.
Asset paths start with a digest of all assets. So browsers may cache them forever, and a new
release replaces all of them.
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
CLIENT = "client"  # asset folder of the JavaScript client
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
_MEDIA_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
_SUFFIXES = {*_MEDIA_TYPES, ".svg", ".png", ".woff2"}
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; worker-src 'self'; base-uri 'self'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types windlass"  # the policy that allows the script URL of the shared worker
)
_PAGE_HEADERS = {"Content-Security-Policy": _PAGE_POLICY, "Cache-Control": "no-cache"}
# Load order: other stylesheets depend on these.
_STYLE_ORDER = {"style/tokens.css": 0, "style/base.css": 1, "style/components.css": 2}
_NOT_PRELOADED = {"live/hub.js"}  # loaded by the shared worker, not by the page
_UNQUOTED = "%/:?&=+,;@!$'()*~"  # characters that a redirect leaves unquoted
_IMMUTABLE = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class Asset:
    body: bytes
    gzipped: bytes
    media_type: str

    @staticmethod
    def of(path: Path) -> Asset:
        body = path.read_bytes()
        media_type = _MEDIA_TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0]
        return Asset(body, gzip.compress(body, mtime=0), media_type or "application/octet-stream")


@dataclass(frozen=True, slots=True)
class Assets:
    files: dict[str, Asset]
    digest: str
    document: str


@cache
def assets() -> Assets:
    """Read all assets once: they are small, and change only with a release."""
    found = {name: Asset.of(path) for name, path in sorted(_asset_paths())}
    digest = hashlib.sha256()
    for name, entry in found.items():
        digest.update(f"{name}\0{len(entry.body)}\0".encode() + entry.body)
    return Assets(found, digest.hexdigest()[:12], (FOLDER / "index.html").read_text())


def _asset_paths() -> list[tuple[str, Path]]:
    roots = (
        ("", FOLDER, FOLDER),
        (f"{CLIENT}/", javascript_client.folder(), javascript_client.folder() / "src"),
    )
    found = [
        (prefix + path.relative_to(root).as_posix(), path)
        for prefix, root, below in roots
        for path in below.rglob("*")
        if path.suffix in _SUFFIXES
    ]
    client = javascript_client.folder() / "windlass.js"
    return [*found, (f"{CLIENT}/{client.name}", client)]


def page_endpoint(depth: int) -> Callable[[], Awaitable[Response]]:
    """Return the endpoint of a page whose path has this many folders."""

    async def document() -> Response:
        """Return a page of the dashboard."""
        return page_response(depth)

    return document


def page_response(depth: int, status: int = 200) -> Response:
    return Response(_document(depth), status, media_type="text/html", headers=_PAGE_HEADERS)


def not_found_page(request: Request) -> Response | None:
    """Return a page for a browser at an unknown path; None for other clients.

    A trailing slash redirects to the path without it. The redirect is relative: it names no host.
    """
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    if request.method != "GET" or "text/html" not in request.headers.get("accept", ""):
        return None
    if path.startswith(("/api/", "/assets/")):
        return None
    raw_path: bytes = request.scope.get("raw_path") or quote(request.scope["path"]).encode()
    if raw_path.endswith(b"/") and (last := raw_path[:-1].rpartition(b"/")[2]):
        query = quote(request.scope["query_string"], safe=_UNQUOTED)
        location = f"../{quote(last, safe=_UNQUOTED)}" + (f"?{query}" if query else "")
        return Response(status_code=307, headers={"Location": location})
    return page_response(path.count("/") - 1, 404)


def _document(depth: int) -> str:
    """Render the document with a relative base, which works at any mount point and proxy path."""
    return _template().replace("{base}", "../" * depth or "./", 1)


@cache
def _template() -> str:
    bundle = assets()
    folder = f"assets/{bundle.digest}"
    styles = sorted(
        _with_suffix(bundle, ".css"),
        key=lambda name: (_STYLE_ORDER.get(name, len(_STYLE_ORDER)), name),
    )
    loaded = [f'<link rel="stylesheet" href="{folder}/{name}">' for name in styles]
    loaded += [
        f'<link rel="modulepreload" href="{folder}/{name}">'
        for name in _with_suffix(bundle, ".js")
        if name not in _NOT_PRELOADED
    ]
    return bundle.document.format(base="{base}", folder=folder, loaded="\n".join(loaded))


def _with_suffix(bundle: Assets, suffix: str) -> list[str]:
    return [name for name in bundle.files if name.endswith(suffix)]


async def asset(request: Request, digest: str, name: str) -> Response:
    """Return an asset of the pages."""
    bundle = assets()
    found = bundle.files.get(name) if digest == bundle.digest else None
    if found is None:
        raise NotFoundError(f"no asset {name!r:.80} in this release; reload the page")
    headers = {"Cache-Control": _IMMUTABLE, "Vary": "Accept-Encoding"}
    body = found.body
    if "gzip" in request.headers.get("accept-encoding", ""):
        body, headers["Content-Encoding"] = found.gzipped, "gzip"
    # A shared worker takes its policy from the response of its script, not from the page.
    headers["Content-Security-Policy"] = "default-src 'none'; connect-src 'self'; script-src 'self'"
    return Response(body, media_type=found.media_type, headers=headers)
