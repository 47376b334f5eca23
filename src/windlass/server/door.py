"""Who is at the door, and what they may do inside."""

from __future__ import annotations

import ipaddress
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from fastapi import Request

from windlass.core import task_token
from windlass.core.clock import SystemClock
from windlass.core.job import JobRow
from windlass.core.task_token import TaskToken
from windlass.server.config import LOOPBACK, Door, ServerConfig
from windlass.server.keys import Key, Keys, Role, matches, parts
from windlass.server.pace import Pace
from windlass.server.problems import Refusal
from windlass.server.signing import Signing
from windlass.server.tickets import Tickets
from windlass.store import Store

_SAFE = frozenset({"GET", "HEAD"})
_OWN_SITE = frozenset({"same-origin", "none"})
_CHALLENGE = MappingProxyType({"WWW-Authenticate": 'Bearer realm="windlass"'})


class By(StrEnum):
    """What may let somebody in beside an API key."""

    TICKET = "ticket"  # a stream, once
    ATTEMPT = "attempt"  # a task token: what concerns the attempt that it was given for


class Need(StrEnum):
    """What a route asks of whoever comes."""

    NOTHING = "nothing"  # probes: they learn whether it is well, and no more
    READ = "read"  # jobs, as far as one sees them
    SURVEY = "survey"  # what is told of all jobs together: queues, workers, numbers
    PRODUCE = "produce"  # enqueue, and act on one's own jobs
    WORK = "work"  # take jobs, and speak for their attempts
    REMOVE = "remove"  # delete jobs that one sees
    OPERATE = "operate"  # pause queues, change schedules
    ADMIN = "admin"  # who did what


GRANTS: Mapping[Role, frozenset[Need]] = {
    Role.VIEWER: frozenset({Need.READ, Need.SURVEY}),
    Role.PRODUCER: frozenset({Need.READ, Need.SURVEY, Need.PRODUCE}),
    Role.WORKER: frozenset({Need.READ, Need.SURVEY, Need.WORK}),
    Role.OPERATOR: frozenset(Need) - {Need.ADMIN, Need.WORK},
    Role.ADMIN: frozenset(Need),
}
# Nothing for who sees but a part.
_FOR_ALL = frozenset({Need.SURVEY, Need.WORK, Need.OPERATE, Need.ADMIN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks. Without an owner (or a team) they see the jobs of every owner (and team)."""

    name: str
    key_id: str | None = None
    roles: frozenset[Role] = frozenset()
    owner: str | None = None
    team: str | None = None
    attempt: TaskToken | None = None  # all that one may speak for who came with its token

    @property
    def confined(self) -> bool:
        return self.owner is not None or self.team is not None

    def may(self, need: Need) -> bool:
        return need is Need.NOTHING or any(need in GRANTS[role] for role in self.roles)

    def has(self, *needs: Need) -> bool:
        """Whether one of these rights is theirs, for as much as they see."""
        return any(self.may(need) and not (self.confined and need in _FOR_ALL) for need in needs)

    def sees(self, row: JobRow) -> bool:
        return self.owner in {None, row.owner} and self.team in {None, row.team}


NOBODY = Caller(name="nobody")
ANYBODY = Caller(name="anybody", roles=frozenset({Role.ADMIN}))


class Doorkeeper:
    """Lets callers in by their keys, which it remembers for a moment: `config.trust` seconds."""

    def __init__(self, store: Callable[[], Store], config: ServerConfig) -> None:
        self.signing = Signing(store)
        self._store = store
        self._config = config
        self._pace = Pace(config.rate, config.burst) if config.rate else None
        self._known: dict[str, tuple[float, Key]] = {}
        self._locked = (-math.inf, False)  # when it was looked up, and what was found

    async def admit(self, request: Request, need: Need, by: frozenset[By] = frozenset()) -> Caller:
        """The caller, or a refusal that says why; `by` is what counts here beside a key."""
        self._check_site(request)
        token = _bearer(request)
        ticket = request.query_params.get("ticket") if By.TICKET in by else None
        if token is None and ticket is not None:
            self._check_host(request, at_home=False)
            caller = await self._by_ticket(ticket)
        elif token is None:
            caller = await self._without_key(request, need)
        elif By.ATTEMPT in by and token.startswith(task_token.PREFIX):
            self._check_host(request, at_home=False)
            caller = await self._by_task_token(token)
        else:
            self._check_host(request, at_home=False)
            caller = await self._by_key(token)
        if not caller.may(need):
            held = ", ".join(sorted(caller.roles)) or "no role"
            raise Refusal("forbidden", f"this needs the right to {need}; the key has {held}")
        if caller.confined and need in _FOR_ALL:
            raise Refusal("forbidden", "this speaks of all jobs, and the key is for some of them")
        self._check_pace(caller)
        return caller

    def _check_pace(self, caller: Caller) -> None:
        if self._pace is None or caller.key_id is None:
            return
        wait = self._pace.take(caller.key_id)
        if wait:
            after = {"Retry-After": str(math.ceil(wait))}
            raise Refusal("too_often", f"the key {caller.key_id} asks too often", after)

    async def still(self, caller: Caller) -> bool:
        """Whether a caller who was let in before would be again: for what lasts long."""
        if caller.key_id is None:
            return self._config.door is not Door.LOCAL or not await self._any_key()
        key = await self._look_up(caller.key_id)
        return key is not None and key.valid(SystemClock().now())

    # -- by a key

    async def _by_key(self, token: str) -> Caller:
        found = parts(token)
        key = None if found is None else await self._look_up(found[0])
        if found is None or key is None or not matches(key, found[1]):
            raise Refusal("unauthorized", "there is no such key", _CHALLENGE)
        return _holder(key)

    async def _by_ticket(self, ticket: str) -> Caller:
        key_id = await Tickets(self._store()).redeem(ticket)
        key = None if key_id is None else await self._look_up(key_id)
        if key is None:
            raise Refusal(
                "unauthorized", "the ticket is used, or too old; ask for another", _CHALLENGE
            )
        return _holder(key)

    async def _by_task_token(self, text: str) -> Caller:
        token = await self.signing.read(text)
        if token is None:
            raise Refusal("unauthorized", "the task token was not given out here", _CHALLENGE)
        if token.expires_at <= SystemClock().now():
            raise Refusal(
                "unauthorized",
                "the task token has expired; extend the lease in time, and use its new token",
                _CHALLENGE,
            )
        job_id, fence = token.lease.job_id, token.lease.fence
        return Caller(
            name=f"attempt {fence} of {job_id}",
            key_id=f"{job_id}/{fence}",
            roles=frozenset({Role.WORKER}),
            attempt=token,
        )

    async def _look_up(self, key_id: str) -> Key | None:
        known = self._known.get(key_id)
        now = time.monotonic()
        if known is not None and now - known[0] < self._config.trust:
            return known[1]
        if known is not None:  # of a thousand streams, one asks; the others go by what is known
            self._known[key_id] = (now, known[1])
        try:
            key = await Keys(self._store()).get(key_id)
        except BaseException:
            if known is not None:
                self._known[key_id] = known
            raise
        if key is None:
            self._known.pop(key_id, None)
        else:
            self._known[key_id] = (now, key)  # of when it was asked for, not answered
        return key

    # -- without one

    async def _without_key(self, request: Request, need: Need) -> Caller:
        if need is Need.NOTHING:
            return NOBODY
        door = self._config.door
        if door is Door.KEYS or (
            door is Door.LOCAL and not (_is_local(request) and not await self._any_key())
        ):
            raise Refusal("unauthorized", "this server asks for an API key", _CHALLENGE)
        # Whoever makes a browser here ask by another name must not be taken for its user.
        self._check_host(request, at_home=door is Door.LOCAL)
        return ANYBODY

    async def _any_key(self) -> bool:
        now = time.monotonic()
        at, locked = self._locked
        if not locked and now - at >= self._config.trust:  # once it is locked, it stays so
            self._locked = (now, await Keys(self._store()).any())
        return self._locked[1]

    def _check_host(self, request: Request, *, at_home: bool) -> None:
        allowed = self._config.hosts | (LOOPBACK if at_home or self._config.hosts else set())
        name = host_name(request.headers.get("host", ""))
        if allowed and name not in allowed:
            raise Refusal("host", f"{name!r} is none of the names of this server")

    @staticmethod
    def _check_site(request: Request) -> None:
        if request.method in _SAFE:
            return
        site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
        if site is not None and site not in _OWN_SITE:
            raise Refusal("cross_site", f"the request comes from a page of another site ({site})")
        if site is None and origin is not None:
            theirs = origin.partition("://")[2]
            if theirs != request.headers.get("host"):
                raise Refusal("cross_site", f"the request comes from a page of {origin}")


def _holder(key: Key) -> Caller:
    if not key.valid(SystemClock().now()):
        how = "was revoked" if key.revoked_at is not None else "has expired"
        raise Refusal("unauthorized", f"the key {key.id} {how}", _CHALLENGE)
    return Caller(
        name=key.name or key.id, key_id=key.id, roles=key.roles, owner=key.owner, team=key.team
    )


def _is_local(request: Request) -> bool:
    """Whether the caller is on this machine; who asks for somebody else, and says so, is not it."""
    if request.client is None:
        return True  # by a socket of this machine that is no network's
    try:
        return ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False


def _bearer(request: Request) -> str | None:
    given = request.headers.get("authorization")
    if given is None:
        return None
    scheme, _, token = given.partition(" ")
    if scheme.lower() != "bearer":
        raise Refusal("unauthorized", f"{scheme!r} is not understood here", _CHALLENGE)
    return token.strip()


def host_name(host: str) -> str:
    """Without the port, and without the brackets of an IPv6 address."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()
