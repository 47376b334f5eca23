"""Task tokens of remote workers: issued with a claim, verified in each report."""

from __future__ import annotations

from windlass.core.clock import SECOND, SystemClock, after
from windlass.core.job.lease import Lease
from windlass.core.job.row import JobRow
from windlass.core.task_token import TaskToken
from windlass.server.auth.authenticator import CLAIM_KEY_INVALID
from windlass.server.context import RequestContext
from windlass.server.problem_details import ApiError, invalid_field
from windlass.server.schemas.worker_api import (
    TaskTokenItem,
)

# Seconds after the lease: an expired lease counts until a rescue, and server clocks differ.
TOKEN_SLACK = 300.0


async def issue_token(
    ctx: RequestContext, lease: Lease, queue: str, seconds: float, api_key_id: str
) -> str:
    """Return a token that lasts as long as the lease by the server's clock, plus `TOKEN_SLACK`."""
    expires = after(SystemClock().now(), seconds + TOKEN_SLACK)
    token = TaskToken(lease=lease, queue=queue, expires_at=expires, api_key_id=api_key_id)
    return await ctx.server.token_signer.sign(token)


def lease_seconds(row: JobRow) -> float:
    """Return the duration of the lease, by the store's clock alone."""
    assert row.lease_until is not None
    return (row.lease_until - (row.started_at or row.updated_at)) / SECOND


async def verify_token(ctx: RequestContext, item: TaskTokenItem) -> TaskToken:
    """Return the verified task token of an item, or raise."""
    own = ctx.caller.attempt
    if item.task_token is None:
        if own is None:
            raise invalid_field(
                "taskToken", "missing; use the token of the claim or of the last extension"
            )
        return own
    token = await ctx.server.token_signer.read(item.task_token)
    if token is None:
        raise invalid_field("taskToken", "invalid task token")
    if own is not None and token.lease != own.lease:
        raise ApiError("forbidden", "the Authorization header has the token of another attempt")
    if token.expires_at <= SystemClock().now():
        raise invalid_field("taskToken", "expired; extend the lease in time, and use its new token")
    if not await ctx.server.authenticator.claim_key_valid(token):
        raise invalid_field("taskToken", CLAIM_KEY_INVALID)
    return token
