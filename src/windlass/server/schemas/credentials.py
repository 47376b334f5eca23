"""Schemas of API keys, sessions and tickets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from windlass.server.auth.api_keys import ApiKey, Role
from windlass.server.schemas.base import Duration, RequestModel, ResponseModel, shared_fields


class KeyView(ResponseModel):
    id: str
    name: str
    roles: Sequence[str]
    owner: str | None
    team: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None

    @classmethod
    def of(cls, key: ApiKey) -> KeyView:
        return KeyView(**shared_fields(KeyView, key) | {"roles": sorted(key.roles)})


class NewKeyView(KeyView):
    """A new key; `key` is its secret text, which cannot be shown again."""

    key: str

    @staticmethod
    def created(key: ApiKey, token: str) -> NewKeyView:
        return NewKeyView(**KeyView.of(key).model_dump(), key=token)


class KeyList(ResponseModel):
    keys: Sequence[KeyView]


class TicketView(ResponseModel):
    ticket: str
    expires_at: datetime


class CallerView(ResponseModel):
    """The caller; `by` is its authentication: a session, a key, or none (`open`).

    `permissions` follow from its roles, and its owner or team.
    """

    name: str
    roles: Sequence[str]
    permissions: Sequence[str]
    owner: str | None
    team: str | None
    key_id: str | None
    by: Literal["session", "key", "open"]


class SessionView(CallerView):
    expires_at: datetime


class CreateKeyRequest(RequestModel):
    """A key to create. With an owner or team, it is limited to their jobs."""

    name: str
    roles: tuple[Role, ...]
    owner: str | None = None
    team: str | None = None
    expires_in: Duration | None = None


class SignInRequest(RequestModel):
    """The API key to sign in with; optional if the Authorization header has one."""

    key: Annotated[str, Field(max_length=200)]
