"""What happens to jobs: as pages of JSON, or as it happens (`Accept: text/event-stream`)."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Header, Query, Response, status
from fastapi.responses import JSONResponse

from windlass.core.errors import NotFoundError
from windlass.core.job import JobRow
from windlass.server import many, sse
from windlass.server.asked import Follow, FollowMany
from windlass.server.lines import Teller
from windlass.server.problems import wrong
from windlass.server.site import Here, Id, Visit
from windlass.server.streams import Wanted
from windlass.server.wire.jobs import EventPageView

MOST = 100  # jobs that one stream may name
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID")]
Accept = Annotated[str, Header()]


async def events(
    here: Here,
    job_id: Id,
    follow: Annotated[Follow, Query()],
    last_event_id: LastEventId = None,
    accept: Accept = "*/*",
) -> Response:
    """The log of a job: all that happened after a cursor; as a stream, also all that will."""
    wanted = follow.wanted(last_event_id)
    row = await here.job(job_id)
    _check_cursor(row, wanted)
    if sse.MEDIA_TYPE not in accept:
        page = await _page(here, job_id, wanted, follow.limit)
        return JSONResponse(page.model_dump(mode="json", by_alias=True))
    if row.final and wanted.after >= row.seq:
        return Response(status_code=status.HTTP_204_NO_CONTENT)
    feed = many.one(here.site.hub, job_id, wanted)
    return sse.EventStream(here.site, here.caller, feed, row.correlation_id)


def _check_cursor(row: JobRow, wanted: Wanted) -> None:
    if wanted.after > row.seq:
        raise wrong(
            "lastEventId",
            f"job {row.id} has {row.seq} events, and none is numbered {wanted.after}",
        )


async def _page(here: Visit, job_id: UUID, wanted: Wanted, limit: int) -> EventPageView:
    store = here.client.store
    page = await store.events(job_id, wanted.after, limit)
    if page is None:
        raise NotFoundError(f"no job {job_id}")
    teller = Teller(store, here.app.codec, job_id, wanted.after)
    lines = [await teller.line(event) for event in page.events]
    return EventPageView(
        events=[line.view for line in lines if wanted.takes(line)],
        cursor=page.events[-1].wire_id if page.events else None,
        ended=page.ended,
    )


async def all_events(here: Here, follow: Annotated[FollowMany, Query()]) -> Response:
    """Many jobs on one stream: the logs of those named in `after`, or snapshots of a list.

    A line of a log says whose it is and carries its number, for the vector that the reader keeps. A
    snapshot says where a job of the list stands (state null: it was deleted); the newest wins.
    """
    if follow.after is None:
        feed = here.site.watches.snapshots(follow.query(here.caller))
        return sse.EventStream(here.site, here.caller, feed, None)
    named = follow.named()
    if len(named) > MOST:
        raise wrong("after", f"it names {len(named)} jobs, the limit is {MOST}")
    open_ = {}
    for row in await here.jobs(list(named)):
        wanted = named[row.id]
        _check_cursor(row, wanted)
        if not (row.final and wanted.after >= row.seq):
            open_[row.id] = wanted
    if not open_:
        return Response(status_code=status.HTTP_204_NO_CONTENT)
    return sse.EventStream(here.site, here.caller, many.several(here.site.hub, open_), None)
