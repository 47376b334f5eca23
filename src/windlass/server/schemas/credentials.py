"""Schemas of sessions and tickets, and of requests for keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from windlass.schemas.base import JsonModel
from windlass.server.auth.api_keys import Role
from windlass.server.auth.permissions import Permission
from windlass.server.schemas.base import Duration, RequestModel


class TicketView(JsonModel):
    """A ticket that opens one stream."""

    ticket: str
    expires_at: datetime


class CallerView(JsonModel):
    """The caller; `by` is its authentication: a session, a key, or none (`open`).

    `permissions` follow from its roles, and its owner or team.
    """

    name: str
    roles: Sequence[Role]
    permissions: Sequence[Permission]
    owner: str | None
    team: str | None
    key_id: str | None
    by: Literal["session", "key", "open"]


class SessionView(CallerView):
    """The caller of a new session, which ends at `expiresAt`."""

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
