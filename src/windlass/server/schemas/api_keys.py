"""Schemas of API keys, for the HTTP API and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Self

from windlass.core.clock import Instant
from windlass.schemas.base import JsonModel, shared_fields
from windlass.server.auth.api_keys import ApiKey, KeyState, Role


class KeyView(JsonModel):
    """A key, without its secret."""

    id: str
    name: str
    roles: Sequence[Role]
    owner: str | None
    team: str | None
    state: KeyState
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None

    @classmethod
    def of(cls, key: ApiKey, now: Instant, /, **more: Any) -> Self:
        computed = {"roles": sorted(key.roles), "state": key.state(now)}
        return cls(**shared_fields(KeyView, key) | computed | more)


class NewKeyView(KeyView):
    """A new key; `key` is its secret text, which cannot be shown again."""

    key: str


class KeyList(JsonModel):
    """Keys, also revoked ones."""

    keys: Sequence[KeyView]

    @staticmethod
    def of(keys: Sequence[ApiKey], now: Instant) -> KeyList:
        return KeyList(keys=[KeyView.of(key, now) for key in keys])
