"""The keys that task tokens are signed with: one record of the store, shared by all its servers.

Two of them are good at any time. The newer one signs; after a month (or by `rotate`) another takes
its place, and tokens of the one before it stay good until then: longer than any lease should last.
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
from windlass.core.records import Entry, Put
from windlass.core.task_token import KEY_ID, TaskToken
from windlass.store import DAY, Store

SIGNING = "signing-key"  # the kind of this record
NAME = "task-token"
LIVE = 2
MONTH = 30 * DAY
TRUST = 30.0  # seconds for which the keys are taken to be known
PAUSE = 1.0  # between two looks for a key that nobody knows


@dataclass(frozen=True, slots=True)
class SigningKey:
    id: bytes
    secret: bytes
    at: Instant

    @staticmethod
    def fresh(now: Instant) -> SigningKey:
        return SigningKey(secrets.token_bytes(KEY_ID), secrets.token_bytes(32), now)


class Signing:
    """Signs and reads task tokens. Keys are looked up now and then, not with every token."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._keys: list[SigningKey] = []  # the newest first
        self._looked = float("-inf")

    async def sign(self, token: TaskToken) -> str:
        if not self._keys or time.monotonic() - self._looked > TRUST:
            await self._look()
        newest = self._keys[0]
        return token.signed(newest.id, newest.secret)

    async def read(self, text: str) -> TaskToken | None:
        """None for what nobody signed here, or no more."""
        key_id = task_token.key_of(text)
        if key_id is None:
            return None
        known = any(key.id == key_id for key in self._keys)
        if time.monotonic() - self._looked > (TRUST if known else PAUSE):
            await self._look()
        return task_token.read(text, {key.id: key.secret for key in self._keys})

    async def rotate(self) -> None:
        """Sign with another key from now on. Done twice, it ends all tokens that were given out."""
        await self._look(rotate=True)

    async def _look(self, *, rotate: bool = False) -> None:
        """Read the keys; make one if there is none, or the newest is old."""
        asked_at = time.monotonic()
        store = self._store()
        now = SystemClock().now()
        while True:
            [entry] = await store.get_records(SIGNING, [NAME])
            keys = [] if entry is None else _decoded(entry)
            if keys and not rotate and now - keys[0].at < MONTH * SECOND:
                break
            keys = [SigningKey.fresh(now), *keys][:LIVE]
            version = 0 if entry is None else entry.version
            put = Put(kind=SIGNING, key=NAME, value=_encoded(keys), expected=version)
            [answer] = await store.put_records([put])
            if answer.applied:
                break
        self._keys, self._looked = keys, asked_at


def _encoded(keys: list[SigningKey]) -> bytes:
    facts = [
        {
            "id": key.id.hex(),
            "secret": base64.b64encode(key.secret).decode(),
            "at": key.at,
        }
        for key in keys
    ]
    return json.dumps(facts, separators=(",", ":")).encode()


def _decoded(entry: Entry) -> list[SigningKey]:
    return [
        SigningKey(bytes.fromhex(one["id"]), base64.b64decode(one["secret"]), one["at"])
        for one in json.loads(entry.value)
    ]
