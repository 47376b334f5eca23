"""Access to `Store.apply` over HTTP: the permissions that each request needs.

A call is rejected as a whole, before it changes anything, if the caller may not do one of its
requests: a permission to cancel never lets a settle pass in the same call. A job that is invisible
to the caller counts as missing, for each request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from windlass.core.decisions.transition import (
    ApplyRequest,
    ApplyResult,
    CancelRequest,
    SignalRequest,
    Transition,
)
from windlass.core.job.state import Trigger
from windlass.server.auth.permissions import Permission
from windlass.server.context import RequestContext
from windlass.server.remote.store_access import act_on_visible, audit, require

# Callers that are no workers may also do what a running task does.
_ACT = frozenset({Permission.PRODUCE, Permission.WORK})
_WORK = frozenset({Permission.WORK})

PERMISSIONS: Mapping[Trigger | type[CancelRequest | SignalRequest], frozenset[Permission]] = {
    CancelRequest: _ACT,
    SignalRequest: _ACT,
    Trigger.SUBMIT: _ACT,
    Trigger.CANCEL: _ACT,
    Trigger.ENQUEUE: _WORK,
    Trigger.PROMOTE: _WORK,
    Trigger.CLAIM: _WORK,
    Trigger.SUCCEED: _WORK,
    Trigger.RETRY: _WORK,
    Trigger.FAIL: _WORK,
    Trigger.RELEASE: _WORK,
    Trigger.SNOOZE: _WORK,
    Trigger.SUSPEND: _WORK,
    Trigger.ABORT: _WORK,
    Trigger.CRASH: _WORK,
    Trigger.GIVE_UP: _WORK,
    Trigger.EXPIRE: _WORK,
    Trigger.PARENT_CANCEL: _WORK,
    Trigger.PARENT_FAIL: _WORK,
}
"""The permissions for each kind of request and each trigger of a transition: any one is enough."""


async def apply(ctx: RequestContext, requests: Sequence[ApplyRequest]) -> list[ApplyResult]:
    """Apply the requests, if the caller may do all of them."""
    for permissions in {_permissions(request) for request in requests} or {_ACT}:
        require(ctx.caller, *permissions)
    actions: dict[str, list[UUID]] = {}
    for request in requests:
        action = _audited_action(request)
        if action is not None:
            actions.setdefault(action, []).append(request.job_id)
    for action, ids in actions.items():
        await audit(ctx, action, ids)
    return await act_on_visible(ctx, requests, ctx.client.store.apply)


def _permissions(request: ApplyRequest) -> frozenset[Permission]:
    if not isinstance(request, Transition):
        return PERMISSIONS[type(request)]
    return PERMISSIONS[request.trigger] if _is_plain(request) else _WORK


def _is_plain(transition: Transition) -> bool:
    """Return whether it carries nothing that only a worker may write: result, children, records."""
    return transition == Transition(
        job_id=transition.job_id,
        fence=transition.fence,
        trigger=transition.trigger,
        reason=transition.reason,
    )


def _audited_action(request: ApplyRequest) -> str | None:
    """Return the action for the audit log; None for what workers do for attempts."""
    if isinstance(request, CancelRequest):
        return "cancel"
    if isinstance(request, SignalRequest):
        return "signal"
    return request.trigger.value if PERMISSIONS[request.trigger] is _ACT else None
