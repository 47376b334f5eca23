"""What is done to a flow as a whole: cancel, retry, resume."""

from __future__ import annotations

from functools import partial
from uuid import UUID

from windlass.core.errors import NotFoundError
from windlass.server.auth.ownership import told
from windlass.server.context import Here, Id, Visit
from windlass.server.schemas.overview import FlowActed
from windlass.server.schemas.requests import Why


async def cancel(here: Here, flow_id: Id, body: Why | None = None) -> FlowActed:
    """Cancel all of its jobs that have not ended."""
    await _about_to(here, "cancel flow", flow_id)
    reason = None if body is None else body.reason
    done = await here.client.cancel_flow(flow_id, by=here.caller.name, reason=reason)
    return FlowActed(id=flow_id, jobs=done)


async def retry(here: Here, flow_id: Id) -> FlowActed:
    """Do again what failed or was canceled, and what depends on it; what succeeded stands."""
    await _about_to(here, "retry flow", flow_id)
    return await _again(here, flow_id, resume=False)


async def resume(here: Here, flow_id: Id) -> FlowActed:
    """The same, each job after the last step that it completed."""
    await _about_to(here, "resume flow", flow_id)
    return await _again(here, flow_id, resume=True)


async def _again(here: Visit, flow_id: UUID, *, resume: bool) -> FlowActed:
    rows = await here.client.retry_flow(flow_id, resume=resume, told=partial(told, here.caller))
    return FlowActed(id=flow_id, jobs=len(rows))


async def _about_to(here: Visit, action: str, flow_id: UUID) -> None:
    """Who does not see all of a flow does nothing to the whole of it."""
    found = False
    async for row in here.client.flow_jobs(flow_id):
        found = here.caller.sees(row)
        if not (found and here.caller.confined):
            break  # who is not confined sees all, or none
    if not found:
        raise NotFoundError(f"no flow {flow_id}")
    await here.record(action, str(flow_id))
