"""Who may come in: keys, and tickets for streams; and who did what."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from windlass.core.clock import to_datetime
from windlass.core.duration import seconds
from windlass.server.auth.api_keys import Keys
from windlass.server.auth.audit import Audit
from windlass.server.auth.tickets import Tickets
from windlass.server.context import Here
from windlass.server.problems import Refusal
from windlass.server.schemas.access import AuditPage, KeyList, KeyView, NewKeyView, TicketView
from windlass.server.schemas.requests import KeyAsked


async def create_key(here: Here, body: KeyAsked) -> NewKeyView:
    """Make an API key. It is told in this answer, and never again."""
    await here.record("create key", body.name)
    key, token = await Keys(here.client.store).create(
        body.name,
        body.roles,
        owner=body.owner,
        team=body.team,
        expires_in=None if body.expires_in is None else seconds(body.expires_in, "expiresIn"),
    )
    return NewKeyView.made(key, token)


async def keys(here: Here) -> KeyList:
    """All keys, also those that were revoked; none of their secrets."""
    return KeyList(keys=[KeyView.of(key) for key in await Keys(here.client.store).list()])


async def revoke_key(here: Here, key_id: Annotated[str, Path(alias="id")]) -> KeyView:
    """Let its holder in no more: within 5 seconds, on every server, streams included."""
    await here.record("revoke key", key_id)
    return KeyView.of(await Keys(here.client.store).revoke(key_id))


async def ticket(here: Here) -> TicketView:
    """A ticket for one stream, to be opened within a minute: `…/events?ticket=…`."""
    if here.caller.key_id is None:
        raise Refusal("conflict", "nobody needs a ticket here: this server asks for no keys")
    made, until = await Tickets(here.client.store).issue(here.caller.key_id, here.caller.session)
    return TicketView(ticket=made, expires_at=to_datetime(until))


async def audit(
    here: Here, after: str = "", limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> AuditPage:
    """Who did what, the newest first; kept for 90 days."""
    return AuditPage.of(await Audit(here.client.store).list(after, limit), limit)
