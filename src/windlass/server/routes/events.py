"""What happens to jobs: as pages of JSON, or as it happens (`Accept: text/event-stream`)."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Header, Query, Response, status
from fastapi.responses import JSONResponse

from windlass.core.errors import NotFoundError, WindlassError
from windlass.core.job.row import JobRow
from windlass.server.context import Here, Id, Visit
from windlass.server.problems import wrong
from windlass.server.schemas.feed_requests import FollowMany, filters_of
from windlass.server.schemas.jobs import EventPageView
from windlass.server.schemas.requests import Follow
from windlass.server.streaming import feeds as event_feeds
from windlass.server.streaming import sse
from windlass.server.streaming.event_format import Teller
from windlass.server.streaming.hub import Wanted

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
    feed = event_feeds.one(here.site.hub, job_id, wanted)
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
    """Many jobs on one stream: the logs of those named in `after`, and snapshots of lists.

    A line of a log says whose it is and carries its number, for the vector that the reader keeps. A
    snapshot says where a job of a list stands (`state` null: it was deleted; `listed` false: it has
    left the list); the newest wins. With `list`, it names the list, and `whole` says that all of it
    was told.
    """
    if follow.after is None and not follow.lists:
        feed = here.site.watches.snapshots(follow.query(here.caller))
        return sse.EventStream(here.site, here.caller, feed, None)
    told, feeds = await _named(here, follow)
    more, lists = _lists(here, follow)
    told, feeds = told + more, feeds + lists
    if not told and not feeds:
        return Response(status_code=status.HTTP_204_NO_CONTENT)
    return sse.EventStream(here.site, here.caller, event_feeds.together(told, feeds), None)


Members = tuple[list[bytes], list[event_feeds.Feed]]  # what is to be said at once, and what comes


async def _named(here: Visit, follow: FollowMany) -> Members:
    found: dict[UUID, Wanted] = {}
    told, feeds = [], []
    for text in follow.named():
        try:
            job_id, wanted = follow.cursor_of(text)
        except WindlassError as error:
            told.append(_refused(follow, {"jobId": text.partition(":")[0]}, error))
        else:
            found[job_id] = wanted
    rows = await here.client.store.get(list(found))
    for (job_id, wanted), row in zip(found.items(), rows, strict=True):
        whose = {"jobId": str(job_id)}
        try:
            _check_cursor(seen := here.seen(job_id, row), wanted)
        except WindlassError as error:
            told.append(_refused(follow, whose, error))
            continue
        if not (seen.final and wanted.after >= seen.seq):
            feeds.append(event_feeds.named(here.site.hub, job_id, wanted, each=follow.each))
        elif follow.each:
            told.append(event_feeds.over(whose))
    return told, feeds


def _lists(here: Visit, follow: FollowMany) -> Members:
    told, feeds = [], []
    for text in dict.fromkeys(follow.lists):
        try:
            query = filters_of(text).query(here.caller)
        except WindlassError as error:
            told.append(_refused(follow, {"list": text}, error))
        else:
            feeds.append(here.site.watches.snapshots(query, text))
    return told, feeds


def _refused(follow: FollowMany, whose: dict[str, str], error: WindlassError) -> bytes:
    if not follow.each:
        raise error
    return event_feeds.over(whose, error)
