"""The origin of a request: client address, proxy, host name, and the site of its page."""

from __future__ import annotations

import ipaddress

from fastapi import Request

from windlass.server.problem_details import ApiError

_SAFE_METHODS = frozenset({"GET", "HEAD"})
_SAME_ORIGIN = frozenset({"same-origin", "none"})
_PROXY_HEADERS = frozenset(
    {"cf-connecting-ip", "forwarded", "true-client-ip", "via", "x-client-ip", "x-real-ip"}
)
_IPV6_PREFIX = 64  # bits that the machines of one customer share


def reject_cross_site(request: Request) -> None:
    """Raise ApiError for a request from a page of another site that may change something."""
    if request.method in _SAFE_METHODS:
        return
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None and site not in _SAME_ORIGIN:
        raise ApiError("cross_site", f"the request comes from a page of another site ({site})")
    if site is None and origin is not None and not _is_own(origin, request):
        raise ApiError("cross_site", f"the request comes from a page of {origin}")


def cookie_allowed(request: Request) -> bool:
    """Return whether a session cookie counts: browsers send it also for pages of other sites.

    Without Sec-Fetch-Site (plain HTTP), browsers send the Origin of requests that change
    something. Without both, only safe methods may use the cookie.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        return site in _SAME_ORIGIN
    if origin is not None:
        return _is_own(origin, request)
    return request.method in _SAFE_METHODS


def _is_own(origin: str, request: Request) -> bool:
    return origin.partition("://")[2] == request.headers.get("host")


def proxy_evidence(request: Request) -> str | None:
    """Return the sign that a request came through a proxy, which hides the client; None without.

    Standard proxies send `Via` or `Forwarded`, most others one of the `X-` headers.
    nginx sends none by default, but uses HTTP/1.0, which current clients do not.
    """
    for name in request.headers:
        if name in _PROXY_HEADERS or name.startswith("x-forwarded-"):
            return f"header {name}"
    return "HTTP/1.0" if request.scope.get("http_version") in {"1.0", "0.9"} else None


def is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_local(request: Request) -> bool:
    """Return whether the client runs on this machine; through a local proxy, it does not count."""
    if proxy_evidence(request) is not None:
        return False
    if request.client is None:
        return True  # a Unix socket
    try:
        return ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False


def client_address(request: Request) -> str:
    """Return the address by which unauthenticated clients are limited; IPv6 by its /64 network."""
    host = "" if request.client is None else request.client.host
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 4:  # noqa: PLR2004 - IPv4
        return host
    return str(ipaddress.ip_network((int(address) >> _IPV6_PREFIX << _IPV6_PREFIX, _IPV6_PREFIX)))


def host_name(host: str) -> str:
    """Strip the port of a Host header, and the brackets of an IPv6 address."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()
