"""Signing in with a browser: a key, shown once, for a cookie that lasts half a day."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastapi import Request, Response

from windlass.core.clock import to_datetime
from windlass.server.auth.authenticator import CHALLENGE, Caller, Need
from windlass.server.auth.sessions import Sessions, drop_cookie, set_cookie
from windlass.server.context import Here
from windlass.server.problems import Refusal
from windlass.server.schemas.access import SessionView, WhoView
from windlass.server.schemas.requests import SignInAsked


async def sign_in(
    here: Here, request: Request, response: Response, body: SignInAsked | None = None
) -> SessionView:
    """Sign a browser in with an API key, for 12 hours: the answer sets a cookie.

    The session may do what the key may, and ends with it.
    """
    caller = here.caller
    if body is not None:
        caller = await here.site.door.sign_in(request, body.key)
    if caller.key_id is None or caller.session is not None:
        raise Refusal("unauthorized", 'show an API key: {"key": "wl_…"}', CHALLENGE)
    await replace(here, caller=caller).record("sign in", caller.key_id)
    secret, until = await Sessions(here.client.store).start(caller.key_id)
    set_cookie(request, response, secret)
    return SessionView(**_facts(caller) | {"by": "session"}, expires_at=to_datetime(until))


async def who(here: Here) -> WhoView:
    """Who one is here, and what one may do."""
    return WhoView(**_facts(here.caller))


async def sign_out(here: Here, request: Request, response: Response) -> None:
    """End the session of this browser, and the streams that it opened."""
    session = here.caller.session
    if session is not None:
        await Sessions(here.client.store).end(session)
        here.site.door.forget(session)
    drop_cookie(request, response)


def _facts(caller: Caller) -> dict[str, Any]:
    return {
        "name": caller.name,
        "roles": sorted(caller.roles),
        "rights": sorted(need for need in Need if caller.has(need) and need is not Need.NOTHING),
        "owner": caller.owner,
        "team": caller.team,
        "key_id": caller.key_id,
        "by": "session" if caller.session else "key" if caller.key_id else "open",
    }
