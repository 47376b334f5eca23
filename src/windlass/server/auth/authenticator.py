"""Who is at the door, and what they may do inside."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from fastapi import Request

from windlass.core import task_token
from windlass.core.clock import SystemClock
from windlass.core.job.row import JobRow
from windlass.core.task_token import TaskToken
from windlass.server.auth.api_keys import Key, Keys, Role, matches, parts
from windlass.server.auth.cache import Known
from windlass.server.auth.origin import (
    address_of,
    check_site,
    from_own_page,
    host_name,
    is_address,
    is_local,
    proxied,
)
from windlass.server.auth.rate_limit import Pace
from windlass.server.auth.sessions import Sessions, session_of
from windlass.server.auth.task_tokens import Signing
from windlass.server.auth.tickets import Tickets
from windlass.server.config import LOOPBACK, Door, ServerConfig
from windlass.server.problems import Refusal
from windlass.store import Store

REVOKED = "the key that the job was claimed with was revoked, or has expired"
CHALLENGE = MappingProxyType({"WWW-Authenticate": 'Bearer realm="windlass"'})


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
    session: str | None = None  # by which they came, if they did; its hash

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
        self._failures = Pace(config.failure_rate, config.failure_burst)
        self._keys = Known[Key](lambda key_id: Keys(store()).get(key_id), config.trust)
        self._sessions = Known[str](lambda one: Sessions(store()).key_of(one), config.trust)
        self._any = Known[bool](self._look_for_keys, config.trust)
        self._locked = False

    async def admit(self, request: Request, need: Need, by: frozenset[By] = frozenset()) -> Caller:
        """The caller, or a refusal that says why; `by` is what counts here beside a key."""
        check_site(request)
        caller = await self._caller(request, need, by)
        self._check_pace(caller)
        if not caller.may(need):
            held = ", ".join(sorted(caller.roles)) or "no role"
            raise Refusal("forbidden", f"this needs the right to {need}; the key has {held}")
        if caller.confined and need in _FOR_ALL:
            raise Refusal("forbidden", "this speaks of all jobs, and the key is for some of them")
        return caller

    async def sign_in(self, request: Request, token: str) -> Caller:
        """Who holds this key: for a browser that shows it once."""
        self._check_host(request, at_home=False)
        caller = await self._by_key(request, token)
        self._check_pace(caller)
        return caller

    async def still(self, caller: Caller) -> bool:
        """Whether a caller who was let in before would be again: for what lasts long."""
        if caller.key_id is None:
            return self._config.door is not Door.LOCAL or not await self._any_key()
        if caller.session is not None and await self._sessions.get(caller.session) is None:
            return False
        key = await self._keys.get(caller.key_id)
        return key is not None and key.valid(SystemClock().now())

    async def trusts(self, token: TaskToken) -> bool:
        """Whether the key that its job was claimed with is still good."""
        if not token.holder:
            return True
        key = await self._keys.get(token.holder)
        return key is not None and key.valid(SystemClock().now())

    def forget(self, session: str) -> None:
        """It was ended here, and is not to be taken for good any longer."""
        self._sessions.forget(session)

    async def _caller(self, request: Request, need: Need, by: frozenset[By]) -> Caller:
        """By what they show: a key (or a task token), a ticket, a session, nothing; in this order.

        Only a browser shows what it has without being told to, so all others come first.
        """
        token = _bearer(request)
        ticket = request.query_params.get("ticket") if By.TICKET in by else None
        session = session_of(request) if from_own_page(request) else None
        if token is None and ticket is None:
            caller = None if session is None else await self._by_session(session)
            if caller is None:
                return await self._without_key(request, need, session)
            self._check_host(request, at_home=False)
            return caller
        self._check_host(request, at_home=False)
        if token is None:
            assert ticket is not None
            return await self._by_ticket(request, ticket)
        if By.ATTEMPT in by and token.startswith(task_token.PREFIX):
            return await self._by_task_token(request, token)
        return await self._by_key(request, token)

    def _check_pace(self, caller: Caller) -> None:
        if self._pace is None or caller.key_id is None:
            return
        wait = self._pace.take(caller.key_id)
        if wait:
            raise _too_often(f"the key {caller.key_id} asks too often", wait)

    def _wrong(self, request: Request, detail: str) -> Refusal:
        """Who shows what is not good, again and again, is told to wait.

        Who comes from the same address with a good key is let in nevertheless. 256 random bits are
        not guessed, however often; what is kept away is a client that does not give up.
        """
        wait = self._failures.take(address_of(request))
        if wait:
            return _too_often("too many keys that are not good came from your address", wait)
        return Refusal("unauthorized", detail, CHALLENGE)

    # -- by what they show

    async def _by_key(self, request: Request, token: str) -> Caller:
        found = parts(token)
        key = None if found is None else await self._keys.get(found[0])
        if found is None or key is None or not matches(key, found[1]):
            raise self._wrong(request, "there is no such key")
        return self._holder(request, key)

    async def _by_ticket(self, request: Request, ticket: str) -> Caller:
        found = await Tickets(self._store()).redeem(ticket)
        key = None if found is None else await self._keys.get(found[0])
        if found is None or key is None:
            raise self._wrong(request, "the ticket is used, or too old; ask for another")
        return replace(self._holder(request, key), session=found[1])

    async def _by_session(self, session: str) -> Caller | None:
        key_id = await self._sessions.get(session)
        key = None if key_id is None else await self._keys.get(key_id)
        if key is None or not key.valid(SystemClock().now()):
            return None
        return replace(_caller_of(key), session=session)

    async def _by_task_token(self, request: Request, text: str) -> Caller:
        token = await self.signing.read(text)
        if token is None:
            raise self._wrong(request, "the task token was not given out here")
        if token.expires_at <= SystemClock().now():
            raise Refusal(
                "unauthorized",
                "the task token has expired; extend the lease in time, and use its new token",
                CHALLENGE,
            )
        if not await self.trusts(token):
            raise self._wrong(request, REVOKED)
        job_id, fence = token.lease.job_id, token.lease.fence
        return Caller(
            name=f"attempt {fence} of {job_id}",
            key_id=f"{job_id}/{fence}",
            roles=frozenset({Role.WORKER}),
            attempt=token,
        )

    def _holder(self, request: Request, key: Key) -> Caller:
        if not key.valid(SystemClock().now()):
            how = "was revoked" if key.revoked_at is not None else "has expired"
            raise self._wrong(request, f"the key {key.id} {how}")
        return _caller_of(key)

    # -- without anything

    async def _without_key(self, request: Request, need: Need, session: str | None) -> Caller:
        if need is Need.NOTHING:
            return NOBODY
        door = self._config.door
        if door is Door.KEYS or (
            door is Door.LOCAL and not (is_local(request) and not await self._any_key())
        ):
            if session is not None:
                raise self._wrong(request, "the session has ended; sign in again")
            raise Refusal("unauthorized", self._why_a_key(request), CHALLENGE)
        # Whoever makes a browser here ask by another name must not be taken for its user.
        self._check_host(request, at_home=door is Door.LOCAL)
        return ANYBODY

    def _why_a_key(self, request: Request) -> str:
        sign = proxied(request)
        if self._config.door is Door.KEYS or self._locked or sign is None:
            return "this server asks for an API key"
        return (
            f"the request came by a proxy ({sign}), so nobody knows whether it is from this "
            "machine: make a key with windlass keys create"
        )

    async def _any_key(self) -> bool:
        if not self._locked and await self._any.get(""):
            self._locked = True  # and it stays so
        return self._locked

    async def _look_for_keys(self, _: str) -> bool:
        return await Keys(self._store()).any()

    def _check_host(self, request: Request, *, at_home: bool) -> None:
        allowed = self._config.hosts | (LOOPBACK if at_home or self._config.hosts else set())
        name = host_name(request.headers.get("host", ""))
        # Nobody but its user leads a browser to an address that is not a name.
        if self._config.door is Door.OPEN and is_address(name):
            return
        if allowed and name not in allowed:
            raise Refusal(
                "host",
                f"{name!r} is none of the names of this server (windlass serve --allow-host NAME)",
            )


def _caller_of(key: Key) -> Caller:
    return Caller(
        name=key.name or key.id, key_id=key.id, roles=key.roles, owner=key.owner, team=key.team
    )


def _too_often(detail: str, wait: float) -> Refusal:
    return Refusal("too_often", detail, {"Retry-After": str(math.ceil(wait))})


def _bearer(request: Request) -> str | None:
    given = request.headers.get("authorization")
    if given is None:
        return None
    scheme, _, token = given.partition(" ")
    if scheme.lower() != "bearer":
        raise Refusal("unauthorized", f"{scheme!r} is not understood here", CHALLENGE)
    return token.strip()
