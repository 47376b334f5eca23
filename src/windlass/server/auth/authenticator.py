"""Authentication of requests, and the permissions of callers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from types import MappingProxyType

from fastapi import Request

from windlass.core import task_token
from windlass.core.clock import SystemClock
from windlass.core.task_token import TaskToken
from windlass.server.auth.api_keys import ApiKey, ApiKeys, Role, parse_key, secret_matches
from windlass.server.auth.caller import ANONYMOUS_ADMIN, PUBLIC_CALLER, Caller
from windlass.server.auth.permissions import UNSCOPED_ONLY, Permission
from windlass.server.auth.rate_limit import RateLimiter
from windlass.server.auth.request_origin import (
    client_address,
    cookie_allowed,
    host_name,
    is_ip_address,
    is_local,
    proxy_evidence,
    reject_cross_site,
)
from windlass.server.auth.sessions import Sessions, session_from_cookie
from windlass.server.auth.tickets import Tickets
from windlass.server.auth.token_signer import TokenSigner
from windlass.server.auth.ttl_cache import TtlCache
from windlass.server.config import LOOPBACK, AuthMode, ServerConfig
from windlass.server.problem_details import ApiError
from windlass.store import Store

CLAIM_KEY_INVALID = "the key that claimed the job was revoked, or has expired"
CHALLENGE = MappingProxyType({"WWW-Authenticate": 'Bearer realm="windlass"'})


class Credential(StrEnum):
    """A credential that a route accepts in addition to an API key or a session."""

    TICKET = "ticket"  # opens one stream
    TASK_TOKEN = "task token"  # noqa: S105 - acts for the attempt that it was issued for


class Authenticator:
    """Authenticates requests. Keys and sessions are cached for `key_cache_ttl` seconds."""

    def __init__(self, store: Callable[[], Store], config: ServerConfig) -> None:
        ttl = config.key_cache_ttl
        self.token_signer = TokenSigner(store)
        self._store = store
        self._config = config
        self._rate_limit = RateLimiter(config.rate, config.burst) if config.rate else None
        self._failure_limit = RateLimiter(config.auth_failure_rate, config.auth_failure_burst)
        self._keys = TtlCache[ApiKey](lambda key_id: ApiKeys(store()).get(key_id), ttl)
        self._sessions = TtlCache[str](lambda session: Sessions(store()).key_id(session), ttl)
        self._has_keys = TtlCache[bool](self._load_has_keys, ttl)
        self._locked = False

    async def authorize(
        self,
        request: Request,
        permission: Permission,
        credentials: frozenset[Credential] = frozenset(),
    ) -> Caller:
        """Return the caller of a request, or raise ApiError.

        `credentials` are accepted in addition to an API key or a session.
        """
        reject_cross_site(request)
        caller = await self._authenticate(request, permission, credentials)
        self._check_rate(caller)
        if not caller.role_permits(permission):
            roles = ", ".join(sorted(caller.roles)) or "none"
            raise ApiError(
                "forbidden", f"this needs the permission '{permission}'; roles of the key: {roles}"
            )
        if caller.scoped and permission in UNSCOPED_ONLY:
            raise ApiError(
                "forbidden",
                f"this needs the permission '{permission}' for all jobs; "
                "the key is limited to one owner or team",
            )
        return caller

    async def sign_in(self, request: Request, token: str) -> Caller:
        """Return the caller of an API key that a browser sends in the body to sign in."""
        self._check_host(request, local=False)
        caller = await self._by_key(request, token)
        self._check_rate(caller)
        return caller

    async def still_authorized(self, caller: Caller) -> bool:
        """Return whether a caller of a long-lasting request would be authenticated again."""
        if caller.key_id is None:
            return self._config.auth is not AuthMode.LOCAL or not await self._any_key()
        if caller.session is not None and await self._sessions.get(caller.session) is None:
            return False
        key = await self._keys.get(caller.key_id)
        return key is not None and key.valid(SystemClock().now())

    async def claim_key_valid(self, token: TaskToken) -> bool:
        """Return whether the key that claimed the job is still valid."""
        if not token.api_key_id:
            return True
        key = await self._keys.get(token.api_key_id)
        return key is not None and key.valid(SystemClock().now())

    def forget_session(self, session: str) -> None:
        """Drop an ended session from the cache."""
        self._sessions.forget(session)

    async def _authenticate(
        self, request: Request, permission: Permission, credentials: frozenset[Credential]
    ) -> Caller:
        """Try in order: API key or task token, ticket, session, no credential.

        Browsers send the session cookie by themselves, so explicit credentials take precedence.
        """
        token = _bearer(request)
        ticket = request.query_params.get("ticket") if Credential.TICKET in credentials else None
        session = session_from_cookie(request) if cookie_allowed(request) else None
        if token is None and ticket is None:
            caller = None if session is None else await self._by_session(session)
            if caller is None:
                return await self._without_credential(request, permission, session)
            self._check_host(request, local=False)
            return caller
        self._check_host(request, local=False)
        if token is None:
            assert ticket is not None
            return await self._by_ticket(request, ticket)
        if Credential.TASK_TOKEN in credentials and token.startswith(task_token.PREFIX):
            return await self._by_task_token(request, token)
        return await self._by_key(request, token)

    def _check_rate(self, caller: Caller) -> None:
        if self._rate_limit is None or caller.key_id is None:
            return
        wait = self._rate_limit.take(caller.key_id)
        if wait:
            raise _rate_limited(f"key {caller.key_id} exceeds its request rate", wait)

    def _unauthorized(self, request: Request, detail: str) -> ApiError:
        """Return the error of a failed authentication; after too many, with a time to wait.

        Valid keys from the same address still work. The limit does not protect the keys: 256 random
        bits cannot be guessed. It slows down clients that never give up.
        """
        wait = self._failure_limit.take(client_address(request))
        if wait:
            return _rate_limited("too many failed authentications from your address", wait)
        return ApiError("unauthorized", detail, CHALLENGE)

    # -- by credential

    async def _by_key(self, request: Request, token: str) -> Caller:
        parsed = parse_key(token)
        key = None if parsed is None else await self._keys.get(parsed[0])
        if parsed is None or key is None or not secret_matches(key, parsed[1]):
            raise self._unauthorized(request, "invalid API key")
        return self._key_caller(request, key)

    async def _by_ticket(self, request: Request, ticket: str) -> Caller:
        redeemed = await Tickets(self._store()).redeem(ticket)
        key = None if redeemed is None else await self._keys.get(redeemed[0])
        if redeemed is None or key is None:
            raise self._unauthorized(
                request, "the ticket is invalid, used, or expired; request a new one"
            )
        return replace(self._key_caller(request, key), session=redeemed[1])

    async def _by_session(self, session: str) -> Caller | None:
        key_id = await self._sessions.get(session)
        key = None if key_id is None else await self._keys.get(key_id)
        if key is None or not key.valid(SystemClock().now()):
            return None
        return replace(_caller_of(key), session=session)

    async def _by_task_token(self, request: Request, text: str) -> Caller:
        token = await self.token_signer.read(text)
        if token is None:
            raise self._unauthorized(request, "invalid task token")
        if token.expires_at <= SystemClock().now():
            raise ApiError(
                "unauthorized",
                "the task token has expired; extend the lease in time, and use its new token",
                CHALLENGE,
            )
        if not await self.claim_key_valid(token):
            raise self._unauthorized(request, CLAIM_KEY_INVALID)
        job_id, fence = token.lease.job_id, token.lease.fence
        return Caller(
            name=f"attempt {fence} of {job_id}",
            key_id=f"{job_id}/{fence}",
            roles=frozenset({Role.WORKER}),
            attempt=token,
        )

    def _key_caller(self, request: Request, key: ApiKey) -> Caller:
        if not key.valid(SystemClock().now()):
            state = "was revoked" if key.revoked_at is not None else "has expired"
            raise self._unauthorized(request, f"key {key.id} {state}")
        return _caller_of(key)

    # -- without a credential

    async def _without_credential(
        self, request: Request, permission: Permission, session: str | None
    ) -> Caller:
        if permission is Permission.PUBLIC:
            return PUBLIC_CALLER
        mode = self._config.auth
        if mode is AuthMode.KEYS or (
            mode is AuthMode.LOCAL and not (is_local(request) and not await self._any_key())
        ):
            if session is not None:
                raise self._unauthorized(request, "the session has ended; sign in again")
            raise ApiError("unauthorized", self._key_required(request), CHALLENGE)
        # DNS rebinding: a foreign name that resolves to this machine must not get access.
        self._check_host(request, local=mode is AuthMode.LOCAL)
        return ANONYMOUS_ADMIN

    def _key_required(self, request: Request) -> str:
        evidence = proxy_evidence(request)
        if self._config.auth is AuthMode.KEYS or self._locked or evidence is None:
            return "this server requires an API key"
        return (
            f"the request came through a proxy ({evidence}), so it may not be from this machine: "
            "create a key with windlass keys create"
        )

    async def _any_key(self) -> bool:
        if not self._locked and await self._has_keys.get(""):
            self._locked = True  # permanently
        return self._locked

    async def _load_has_keys(self, _: str) -> bool:
        return await ApiKeys(self._store()).any()

    def _check_host(self, request: Request, *, local: bool) -> None:
        allowed = self._config.hosts | (LOOPBACK if local or self._config.hosts else set())
        name = host_name(request.headers.get("host", ""))
        # DNS rebinding needs a host name; an IP address is safe.
        if self._config.auth is AuthMode.OPEN and is_ip_address(name):
            return
        if allowed and name not in allowed:
            raise ApiError(
                "host",
                f"{name!r} is not an allowed host name (windlass serve --allow-host NAME)",
            )


def _caller_of(key: ApiKey) -> Caller:
    return Caller(
        name=key.name or key.id, key_id=key.id, roles=key.roles, owner=key.owner, team=key.team
    )


def _rate_limited(detail: str, wait: float) -> ApiError:
    return ApiError("rate_limited", detail, {"Retry-After": str(math.ceil(wait))})


def _bearer(request: Request) -> str | None:
    header = request.headers.get("authorization")
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer":
        raise ApiError(
            "unauthorized", f"unsupported authorization scheme {scheme!r}; use Bearer", CHALLENGE
        )
    return token.strip()
