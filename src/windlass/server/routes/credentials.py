"""API keys and stream tickets."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

from windlass.core.clock import to_datetime
from windlass.core.duration import to_seconds
from windlass.server.auth.api_keys import ApiKeys
from windlass.server.auth.tickets import Tickets
from windlass.server.context import Ctx
from windlass.server.problem_details import ApiError
from windlass.server.schemas.api_keys import KeyList, KeyView, NewKeyView
from windlass.server.schemas.credentials import CreateKeyRequest, TicketView


async def create_key(ctx: Ctx, body: CreateKeyRequest) -> NewKeyView:
    """Create an API key. Only this response contains its secret."""
    await ctx.audit("create key", body.name)
    key, token = await ApiKeys(ctx.client.store).create(
        body.name,
        body.roles,
        owner=body.owner,
        team=body.team,
        expires_in=None if body.expires_in is None else to_seconds(body.expires_in, "expiresIn"),
    )
    return NewKeyView.of(key, await ctx.client.store.ping(), key=token)


async def list_keys(ctx: Ctx) -> KeyList:
    """List all keys, also revoked ones, without their secrets."""
    store = ctx.client.store
    return KeyList.of(await ApiKeys(store).list(), await store.ping())


async def revoke_key(
    ctx: Ctx, key_id: Annotated[str, Path(alias="id", description="Id of the API key.")]
) -> KeyView:
    """Revoke a key: within 5 seconds on all servers, open streams included."""
    await ctx.audit("revoke key", key_id)
    store = ctx.client.store
    return KeyView.of(await ApiKeys(store).revoke(key_id), await store.ping())


async def create_ticket(ctx: Ctx) -> TicketView:
    """Create a ticket that opens one stream within a minute: `…/events?ticket=…`."""
    if ctx.caller.key_id is None:
        raise ApiError("conflict", "streams of this server need no ticket: it requires no API keys")
    issued, until = await Tickets(ctx.client.store).issue(ctx.caller.key_id, ctx.caller.session)
    return TicketView(ticket=issued, expires_at=to_datetime(until))
