"""Signing keys of task tokens: one record in the store, shared by all servers.

Two keys are valid at any time. The newer one signs, until a new one replaces it after a month (or
by `rotate`). Tokens of the previous key stay valid until then: longer than any lease should last.
"""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from windlass.core import task_token
from windlass.core.clock import SECOND, Instant, SystemClock
from windlass.core.task_token import KEY_ID, TaskToken
from windlass.core.versioned_record import Entry, Put
from windlass.store import DAY, Store

SIGNING_KEY = "signing-key"  # the record kind
SIGNING_RECORD = "task-token"  # the record key
VALID_KEYS = 2
ROTATION = 30 * DAY
CACHE_TTL = 30.0  # seconds
RELOAD_INTERVAL = 1.0  # seconds between two reloads because of an unknown key


@dataclass(frozen=True, slots=True)
class SigningKey:
    id: bytes
    secret: bytes
    at: Instant

    @staticmethod
    def generate(now: Instant) -> SigningKey:
        return SigningKey(secrets.token_bytes(KEY_ID), secrets.token_bytes(32), now)


class TokenSigner:
    """Signs and verifies task tokens, with cached keys."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._keys: list[SigningKey] = []  # newest first
        self._loaded_at = float("-inf")

    async def sign(self, token: TaskToken) -> str:
        if not self._keys or time.monotonic() - self._loaded_at > CACHE_TTL:
            await self._load()
        newest = self._keys[0]
        return token.signed(newest.id, newest.secret)

    async def read(self, text: str) -> TaskToken | None:
        """Return the verified token; None if its signature is invalid, or its key expired."""
        key_id = task_token.signing_key_id(text)
        if key_id is None:
            return None
        known = any(key.id == key_id for key in self._keys)
        if time.monotonic() - self._loaded_at > (CACHE_TTL if known else RELOAD_INTERVAL):
            await self._load()
        return task_token.verify_token(text, {key.id: key.secret for key in self._keys})

    async def rotate(self) -> None:
        """Sign with a new key from now on. Two rotations invalidate all issued tokens."""
        await self._load(rotate=True)

    async def _load(self, *, rotate: bool = False) -> None:
        """Load the keys; create one if there is none, or if the newest is too old."""
        started_at = time.monotonic()
        store = self._store()
        now = SystemClock().now()
        while True:
            [entry] = await store.get_records(SIGNING_KEY, [SIGNING_RECORD])
            keys = [] if entry is None else _decoded(entry)
            if keys and not rotate and now - keys[0].at < ROTATION * SECOND:
                break
            keys = [SigningKey.generate(now), *keys][:VALID_KEYS]
            version = 0 if entry is None else entry.version
            put = Put(kind=SIGNING_KEY, key=SIGNING_RECORD, value=_encoded(keys), expected=version)
            [result] = await store.put_records([put])
            if result.applied:
                break
        self._keys, self._loaded_at = keys, started_at


def _encoded(keys: list[SigningKey]) -> bytes:
    values = [
        {
            "id": key.id.hex(),
            "secret": base64.b64encode(key.secret).decode(),
            "at": key.at,
        }
        for key in keys
    ]
    return json.dumps(values, separators=(",", ":")).encode()


def _decoded(entry: Entry) -> list[SigningKey]:
    return [
        SigningKey(bytes.fromhex(key["id"]), base64.b64decode(key["secret"]), key["at"])
        for key in json.loads(entry.value)
    ]
