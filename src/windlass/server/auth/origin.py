"""Where a request comes from: which machine, by which of our names, and from whose page."""

from __future__ import annotations

import ipaddress

from fastapi import Request

from windlass.server.problems import Refusal

_SAFE = frozenset({"GET", "HEAD"})
_OWN_SITE = frozenset({"same-origin", "none"})
_OF_PROXIES = frozenset(
    {"cf-connecting-ip", "forwarded", "true-client-ip", "via", "x-client-ip", "x-real-ip"}
)
_NEIGHBOURS = 64  # bits of an IPv6 address that one customer's machines have in common


def check_site(request: Request) -> None:
    """Nothing is changed for a page of another site."""
    if request.method in _SAFE:
        return
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None and site not in _OWN_SITE:
        raise Refusal("cross_site", f"the request comes from a page of another site ({site})")
    if site is None and origin is not None and not _is_own(origin, request):
        raise Refusal("cross_site", f"the request comes from a page of {origin}")


def from_own_page(request: Request) -> bool:
    """Whether a cookie counts: browsers send it by themselves, whoever made them ask.

    Those that say nothing of the site (a plain http address) name the origin of what changes
    something; without it, a request may only look.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        return site in _OWN_SITE
    if origin is not None:
        return _is_own(origin, request)
    return request.method in _SAFE


def _is_own(origin: str, request: Request) -> bool:
    return origin.partition("://")[2] == request.headers.get("host")


def proxied(request: Request) -> str | None:
    """By what it shows that a request came by a proxy: from whom, nobody can say for sure.

    Proxies that follow the standards say `Via` or `Forwarded`, most others one of the `X-` names.
    nginx says nothing by itself, but speaks HTTP/1.0, which clients of today do not.
    """
    for name in request.headers:
        if name in _OF_PROXIES or name.startswith("x-forwarded-"):
            return f"the header {name}"
    return "HTTP/1.0" if request.scope.get("http_version") in {"1.0", "0.9"} else None


def is_address(name: str) -> bool:
    """Whether a host is called by its number."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_local(request: Request) -> bool:
    """Whether the caller is on this machine; a proxy on it does not lend its own place."""
    if proxied(request) is not None:
        return False
    if request.client is None:
        return True  # by a socket of this machine that is no network's
    try:
        return ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False


def address_of(request: Request) -> str:
    """By which callers are told apart who have shown no key."""
    host = "" if request.client is None else request.client.host
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 4:  # noqa: PLR2004 - of the protocol
        return host
    return str(ipaddress.ip_network((int(address) >> _NEIGHBOURS << _NEIGHBOURS, _NEIGHBOURS)))


def host_name(host: str) -> str:
    """Without the port, and without the brackets of an IPv6 address."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()
