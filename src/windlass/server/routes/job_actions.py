"""What is done to one job: submit, cancel, retry, resume, delete."""

from __future__ import annotations

from uuid import UUID

from fastapi import Response, status

from windlass.client import accepted
from windlass.core.decisions.enqueue import Enqueued
from windlass.core.errors import ConflictError
from windlass.core.job.state import State
from windlass.server.auth.ownership import told
from windlass.server.context import Here, Id, Visit
from windlass.server.routes.bulk_actions import deleted
from windlass.server.schemas.jobs import CancelView, EnqueuedView, Moved
from windlass.server.schemas.requests import Why


async def submit(here: Here, job_id: Id) -> Moved:
    """Queue a job that was held."""
    await _about_to(here, "submit", job_id)
    return Moved(id=job_id, state=await here.client.submit(job_id))


async def cancel(here: Here, job_id: Id, body: Why | None = None) -> CancelView:
    """Cancel a job. One that runs is told to stop, and ends as canceled whatever it does."""
    await _about_to(here, "cancel", job_id)
    reason = None if body is None else body.reason
    try:
        state = await here.client.cancel(job_id, by=here.caller.name, reason=reason)
    except ConflictError:
        state = (await here.job(job_id)).state  # the end that came first is the answer
        if not state.final:
            raise
        return CancelView(id=job_id, status=state.value, cleanup_scheduled=False)
    requested = state is not State.CANCELED
    return CancelView(
        id=job_id,
        status="requested" if requested else state.value,
        cleanup_scheduled=requested,
    )


async def retry(here: Here, job_id: Id, response: Response) -> EnqueuedView:
    """Do a finished job again, from its beginning, as a new one."""
    await _about_to(here, "retry", job_id)
    return _anew(here, await here.client.retry(job_id), response)


async def resume(here: Here, job_id: Id, response: Response) -> EnqueuedView:
    """The same, going on after the last step that it completed."""
    await _about_to(here, "resume", job_id)
    return _anew(here, await here.client.resume(job_id), response)


def _anew(here: Visit, answer: Enqueued, response: Response) -> EnqueuedView:
    row = accepted(told(here.caller, answer))
    duplicate = row.id != answer.new.id
    response.status_code = status.HTTP_200_OK if duplicate else status.HTTP_201_CREATED
    return EnqueuedView.seen(row, here.app.codec, duplicate=duplicate)


async def delete(here: Here, job_id: Id) -> None:
    """Delete a finished job with its log, for good."""
    await _about_to(here, "delete", job_id)
    await deleted(here, job_id)


async def _about_to(here: Visit, action: str, job_id: UUID) -> None:
    await here.job(job_id)  # of another's job nothing is told, and nothing is noted
    await here.record(action, str(job_id))
