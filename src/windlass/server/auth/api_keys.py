"""API keys: records of the store that authenticate callers and hold their roles.

A key is `wl_<id>_<secret>`. Its secret is 256 random bits, shown only when the key is created; the
store keeps a hash. A revoked key stays on record: a store that had keys never becomes open again.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from hashlib import sha256

from windlass.core.clock import Instant, after
from windlass.core.errors import InvalidArgumentError, NotFoundError
from windlass.core.job.retry_policy import MAX_DELAY
from windlass.core.size_limits import MAX_KEY, MAX_NAME, check_text
from windlass.core.versioned_record import Put
from windlass.store import Store

API_KEY = "api-key"  # the record kind; the record key is the id
_TOKEN = re.compile(r"wl_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


class Role(StrEnum):
    """A role of a key: a set of permissions."""

    VIEWER = "viewer"  # read
    PRODUCER = "producer"  # read; enqueue, submit, cancel, retry, resume
    WORKER = "worker"  # read; run jobs
    OPERATOR = "operator"  # manage jobs, queues and schedules
    ADMIN = "admin"  # everything


class KeyState(StrEnum):
    """Whether a key can be used."""

    VALID = "valid"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key. With an owner (or team), it sees and creates only jobs of that owner (and team)."""

    id: str
    name: str
    hash: str
    roles: frozenset[Role]
    owner: str | None = None
    team: str | None = None
    created_at: Instant = 0
    expires_at: Instant | None = None
    revoked_at: Instant | None = None

    def state(self, now: Instant) -> KeyState:
        if self.revoked_at is not None:
            return KeyState.REVOKED
        expired = self.expires_at is not None and now >= self.expires_at
        return KeyState.EXPIRED if expired else KeyState.VALID

    def valid(self, now: Instant) -> bool:
        return self.state(now) is KeyState.VALID

    def encode(self) -> bytes:
        values = asdict(self) | {"roles": sorted(self.roles)}
        return json.dumps(values, separators=(",", ":")).encode()

    @staticmethod
    def decode(data: bytes) -> ApiKey:
        """Decode a key; ignore roles and fields of newer versions."""
        values = json.loads(data)
        fields = {name: values[name] for name in ApiKey.__slots__ if name in values}
        roles = frozenset(Role(role) for role in values["roles"] if role in list(Role))
        return ApiKey(**{**fields, "roles": roles})


def parse_key(token: str) -> tuple[str, str] | None:
    """Return the id of a key and the hash of its secret; None for a malformed key."""
    found = _TOKEN.fullmatch(token)
    return None if found is None else (found[1], _hash(found[2]))


def _hash(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


class ApiKeys:
    """The API keys of a store; use it on the event loop of the store handle."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def create(
        self,
        name: str,
        roles: Iterable[Role],
        *,
        owner: str | None = None,
        team: str | None = None,
        expires_in: float | None = None,
    ) -> tuple[ApiKey, str]:
        """Return a new key and its secret text, which is not stored and cannot be shown again."""
        role_set = frozenset(roles)
        if not role_set:
            raise InvalidArgumentError(f"the key needs at least one role: {', '.join(Role)}")
        check_text("the name of the key", name, MAX_NAME)
        check_text("owner", owner, MAX_KEY)
        check_text("team", team, MAX_KEY)
        if expires_in is not None and not 0 < expires_in <= MAX_DELAY:
            raise InvalidArgumentError(
                f"expires_in must be above 0 and at most {MAX_DELAY:g} s, not {expires_in:g}"
            )
        now = await self._store.ping()
        secret = secrets.token_urlsafe(32)
        key = ApiKey(
            id=secrets.token_hex(6),
            name=name,
            hash=_hash(secret),
            roles=role_set,
            owner=owner,
            team=team,
            created_at=now,
            expires_at=None if expires_in is None else after(now, expires_in),
        )
        await self._put(key, 0)
        return key, f"wl_{key.id}_{secret}"

    async def any(self) -> bool:
        """Return whether the store has, or ever had, a key."""
        return bool(await self._store.list_records(API_KEY, limit=1))

    async def list(self) -> list[ApiKey]:
        """Return all keys, also revoked ones, oldest first."""
        keys: list[ApiKey] = []
        last = ""
        while entries := await self._store.list_records(API_KEY, last):
            keys += [ApiKey.decode(entry.value) for entry in entries]
            last = entries[-1].key
        return sorted(keys, key=lambda key: key.created_at)

    async def get(self, key_id: str) -> ApiKey | None:
        [entry] = await self._store.get_records(API_KEY, [key_id])
        return None if entry is None else ApiKey.decode(entry.value)

    async def revoke(self, key_id: str) -> ApiKey:
        """Revoke a key; safe to repeat."""
        while True:
            [entry] = await self._store.get_records(API_KEY, [key_id])
            if entry is None:
                raise NotFoundError(f"no key {key_id!r}; `windlass keys list` lists all keys")
            key = ApiKey.decode(entry.value)
            if key.revoked_at is not None:
                return key
            revoked = replace(key, revoked_at=await self._store.ping())
            if await self._put(revoked, entry.version):
                return revoked

    async def _put(self, key: ApiKey, expected: int) -> bool:
        put = Put(kind=API_KEY, key=key.id, value=key.encode(), expected=expected)
        [result] = await self._store.put_records([put])
        return result.applied


def secret_matches(key: ApiKey, secret_hash: str) -> bool:
    """Compare the hash of a secret, in constant time."""
    return hmac.compare_digest(key.hash, secret_hash)
