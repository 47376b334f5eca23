"""Browser sessions: sign in with an API key, sign out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastapi import Request, Response

from windlass.core.clock import to_datetime
from windlass.server.auth.authenticator import CHALLENGE
from windlass.server.auth.caller import Caller
from windlass.server.auth.permissions import Permission
from windlass.server.auth.sessions import Sessions, clear_cookie, set_cookie
from windlass.server.context import Ctx
from windlass.server.problem_details import ApiError
from windlass.server.schemas.credentials import CallerView, SessionView, SignInRequest


async def sign_in(
    ctx: Ctx, request: Request, response: Response, body: SignInRequest | None = None
) -> SessionView:
    """Sign in with an API key for 12 hours; the response sets a session cookie.

    The session has the permissions of the key, and ends when the key is revoked or expires.
    """
    caller = ctx.caller
    if body is not None:
        caller = await ctx.server.authenticator.sign_in(request, body.key)
    if caller.key_id is None or caller.session is not None:
        raise ApiError("unauthorized", 'send an API key: {"key": "wl_…"}', CHALLENGE)
    await replace(ctx, caller=caller).audit("sign in", caller.key_id)
    secret, until = await Sessions(ctx.client.store).start(caller.key_id)
    set_cookie(request, response, secret)
    return SessionView(**_caller_fields(caller) | {"by": "session"}, expires_at=to_datetime(until))


async def current_caller(ctx: Ctx) -> CallerView:
    """Get the identity and the permissions of the caller."""
    return CallerView(**_caller_fields(ctx.caller))


async def sign_out(ctx: Ctx, request: Request, response: Response) -> None:
    """End the session of this browser, and its open streams."""
    session = ctx.caller.session
    if session is not None:
        await Sessions(ctx.client.store).end(session)
        ctx.server.authenticator.forget_session(session)
    clear_cookie(request, response)


def _caller_fields(caller: Caller) -> dict[str, Any]:
    return {
        "name": caller.name,
        "roles": sorted(caller.roles),
        "permissions": sorted(
            item for item in Permission if caller.has_any(item) and item is not Permission.PUBLIC
        ),
        "owner": caller.owner,
        "team": caller.team,
        "key_id": caller.key_id,
        "by": "session" if caller.session else "key" if caller.key_id else "open",
    }
