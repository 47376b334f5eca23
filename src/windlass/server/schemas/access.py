"""Who may come in, and what was done by whom, as the server tells of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from windlass.core.clock import to_datetime
from windlass.server.auth.api_keys import Key
from windlass.server.auth.audit import Note
from windlass.server.schemas.jobs import Wire, taken


class KeyView(Wire):
    id: str
    name: str
    roles: Sequence[str]
    owner: str | None
    team: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None

    @classmethod
    def of(cls, key: Key) -> KeyView:
        return KeyView(**taken(KeyView, key) | {"roles": sorted(key.roles)})


class NewKeyView(KeyView):
    """`key` is what its holder sends; it is not kept, and not told again."""

    key: str

    @staticmethod
    def made(key: Key, token: str) -> NewKeyView:
        return NewKeyView(**KeyView.of(key).model_dump(), key=token)


class KeyList(Wire):
    keys: Sequence[KeyView]


class TicketView(Wire):
    ticket: str
    expires_at: datetime


class WhoView(Wire):
    """`by` is how one came in: with a session, with a key, or without either (`open`).

    `rights` are what one may do here, by the roles and for as much as one sees.
    """

    name: str
    roles: Sequence[str]
    rights: Sequence[str]
    owner: str | None
    team: str | None
    key_id: str | None
    by: Literal["session", "key", "open"]


class SessionView(WhoView):
    expires_at: datetime


class AuditNote(Wire):
    at: datetime
    key_id: str | None
    name: str
    action: str
    target: str


class AuditPage(Wire):
    """The newest first; `cursor` leads to those before."""

    notes: Sequence[AuditNote]
    cursor: str | None

    @staticmethod
    def of(notes: Sequence[Note], limit: int) -> AuditPage:
        told = [
            AuditNote(at=to_datetime(one.at), key_id=one.key_id, name=one.name,
                      action=one.action, target=one.target)
            for one in notes
        ]  # fmt: skip
        return AuditPage(notes=told, cursor=notes[-1].cursor if len(notes) == limit else None)
