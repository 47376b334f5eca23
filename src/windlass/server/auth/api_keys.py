"""API keys: records of the store that let their holders in, and say what they may do there.

A key is `wl_<id>_<secret>`. Its secret is 256 random bits, told once, when the key is made; what is
kept is a hash. A revoked key stays on record: a store that had keys does not become open again.
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
from windlass.core.decisions.retry import MAX_DELAY
from windlass.core.errors import InvalidArgumentError, NotFoundError
from windlass.core.records import Put
from windlass.core.sizes import MAX_KEY, MAX_NAME, check_text
from windlass.store import Store

KEY = "api-key"  # the kind of these records; the key is the id
_TOKEN = re.compile(r"wl_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


class Role(StrEnum):
    """What a key may do."""

    VIEWER = "viewer"  # look
    PRODUCER = "producer"  # look; enqueue, submit, cancel, retry, resume
    WORKER = "worker"  # look; run jobs
    OPERATOR = "operator"  # all that concerns jobs, queues and schedules
    ADMIN = "admin"  # everything


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """With an owner (or a team), it sees and makes only jobs of that owner (and team)."""

    id: str
    name: str
    hash: str
    roles: frozenset[Role]
    owner: str | None = None
    team: str | None = None
    created_at: Instant = 0
    expires_at: Instant | None = None
    revoked_at: Instant | None = None

    def valid(self, now: Instant) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def encode(self) -> bytes:
        facts = asdict(self) | {"roles": sorted(self.roles)}
        return json.dumps(facts, separators=(",", ":")).encode()

    @staticmethod
    def decode(data: bytes) -> Key:
        """A newer version may know more roles and fields than this one: they are left out."""
        facts = json.loads(data)
        known = {name: facts[name] for name in Key.__slots__ if name in facts}
        roles = frozenset(Role(role) for role in facts["roles"] if role in list(Role))
        return Key(**{**known, "roles": roles})


def parts(token: str) -> tuple[str, str] | None:
    """The id of a key, and the hash of its secret; None for what has not the form of a key."""
    found = _TOKEN.fullmatch(token)
    return None if found is None else (found[1], _hash(found[2]))


def _hash(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


class Keys:
    """Speaks to one store handle, on the event loop that owns it."""

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
    ) -> tuple[Key, str]:
        """The key, and the text that its holder sends: it is not kept, and not told again."""
        given = frozenset(roles)
        if not given:
            raise InvalidArgumentError(f"the key has no role; it may be {', '.join(Role)}")
        check_text("the name of the key", name, MAX_NAME)
        check_text("owner", owner, MAX_KEY)
        check_text("team", team, MAX_KEY)
        if expires_in is not None and not 0 < expires_in <= MAX_DELAY:
            raise InvalidArgumentError(f"a key lasts up to {MAX_DELAY:g} s, not {expires_in:g}")
        now = await self._store.ping()
        secret = secrets.token_urlsafe(32)
        key = Key(
            id=secrets.token_hex(6),
            name=name,
            hash=_hash(secret),
            roles=given,
            owner=owner,
            team=team,
            created_at=now,
            expires_at=None if expires_in is None else after(now, expires_in),
        )
        await self._put(key, 0)
        return key, f"wl_{key.id}_{secret}"

    async def any(self) -> bool:
        """Whether the store has, or ever had, a key."""
        return bool(await self._store.list_records(KEY, limit=1))

    async def list(self) -> list[Key]:
        """All of them, also those that were revoked, the oldest first."""
        found: list[Key] = []
        last = ""
        while entries := await self._store.list_records(KEY, last):
            found += [Key.decode(entry.value) for entry in entries]
            last = entries[-1].key
        return sorted(found, key=lambda key: key.created_at)

    async def get(self, key_id: str) -> Key | None:
        [entry] = await self._store.get_records(KEY, [key_id])
        return None if entry is None else Key.decode(entry.value)

    async def revoke(self, key_id: str) -> Key:
        """Let its holder in no more; to repeat it is harmless."""
        while True:
            [entry] = await self._store.get_records(KEY, [key_id])
            if entry is None:
                raise NotFoundError(f"no key {key_id!r}; `windlass keys list` names all of them")
            key = Key.decode(entry.value)
            if key.revoked_at is not None:
                return key
            revoked = replace(key, revoked_at=await self._store.ping())
            if await self._put(revoked, entry.version):
                return revoked

    async def _put(self, key: Key, expected: int) -> bool:
        put = Put(kind=KEY, key=key.id, value=key.encode(), expected=expected)
        [answer] = await self._store.put_records([put])
        return answer.applied


def matches(key: Key, hashed: str) -> bool:
    """In the same time, whether it does or not."""
    return hmac.compare_digest(key.hash, hashed)
