"""Events of jobs: as pages of JSON, or as event streams (`Accept: text/event-stream`)."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Header, Query, Response, status
from fastapi.responses import JSONResponse

from windlass.core.errors import NotFoundError, WindlassError
from windlass.core.job.row import JobRow
from windlass.server.context import Ctx, PathId, RequestContext
from windlass.server.problems import invalid_field
from windlass.server.schemas.feed_requests import SharedStreamRequest, parse_filters
from windlass.server.schemas.jobs import EventPageView
from windlass.server.schemas.requests import EventsRequest
from windlass.server.streaming import feeds as event_feeds
from windlass.server.streaming import sse
from windlass.server.streaming.event_format import StreamFormatter
from windlass.server.streaming.hub import StreamFilter

LastEventId = Annotated[str | None, Header(alias="Last-Event-ID")]
Accept = Annotated[str, Header()]


async def events(
    ctx: Ctx,
    job_id: PathId,
    params: Annotated[EventsRequest, Query()],
    last_event_id: LastEventId = None,
    accept: Accept = "*/*",
) -> Response:
    """Read the events of a job after a cursor; as a stream, also follow new ones."""
    selection = params.selection(last_event_id)
    row = await ctx.job(job_id)
    _check_cursor(row, selection)
    if sse.MEDIA_TYPE not in accept:
        page = await _page(ctx, job_id, selection, params.limit)
        return JSONResponse(page.model_dump(mode="json", by_alias=True))
    if row.final and selection.after >= row.seq:
        return Response(status_code=status.HTTP_204_NO_CONTENT)
    feed = event_feeds.job_feed(ctx.server.hub, job_id, selection)
    return sse.EventStream(ctx.server, ctx.caller, feed, row.correlation_id)


def _check_cursor(row: JobRow, selection: StreamFilter) -> None:
    if selection.after > row.seq:
        raise invalid_field(
            "lastEventId",
            f"job {row.id} has {row.seq} events; there is no event {selection.after}",
        )


async def _page(
    ctx: RequestContext, job_id: UUID, selection: StreamFilter, limit: int
) -> EventPageView:
    store = ctx.client.store
    page = await store.events(job_id, selection.after, limit)
    if page is None:
        raise NotFoundError(f"no job {job_id}")
    formatter = StreamFormatter(store, ctx.app.codec, job_id, selection.after)
    lines = [await formatter.format(event) for event in page.events]
    return EventPageView(
        events=[line.view for line in lines if selection.matches(line)],
        cursor=page.events[-1].wire_id if page.events else None,
        ended=page.ended,
    )


async def all_events(ctx: Ctx, params: Annotated[SharedStreamRequest, Query()]) -> Response:
    """Follow many jobs on one stream: logs of the jobs in `after`, and snapshots of lists.

    Each log event has its job id and sequence, with which the client updates its cursors. A
    snapshot has the current state of a listed job (`state` null: deleted; `listed` false: it left
    the list); the newest one counts. With `list`, it names the list, and the event `whole` follows
    the first snapshots of the full list.
    """
    if params.after is None and not params.lists:
        feed = ctx.server.list_watches.snapshots(params.query(ctx.caller))
        return sse.EventStream(ctx.server, ctx.caller, feed, None)
    messages, feeds = await _job_members(ctx, params)
    more, lists = _list_members(ctx, params)
    messages, feeds = messages + more, feeds + lists
    if not messages and not feeds:
        return Response(status_code=status.HTTP_204_NO_CONTENT)
    return sse.EventStream(ctx.server, ctx.caller, event_feeds.merge(messages, feeds), None)


Members = tuple[list[bytes], list[event_feeds.Feed]]  # messages to send at once, and feeds


async def _job_members(ctx: RequestContext, params: SharedStreamRequest) -> Members:
    jobs: dict[UUID, StreamFilter] = {}
    messages, feeds = [], []
    for text in params.cursors():
        try:
            job_id, selection = params.parse_cursor(text)
        except WindlassError as error:
            messages.append(_rejected(params, {"jobId": text.partition(":")[0]}, error))
        else:
            jobs[job_id] = selection
    rows = await ctx.client.store.get(list(jobs))
    for (job_id, selection), row in zip(jobs.items(), rows, strict=True):
        member = {"jobId": str(job_id)}
        try:
            _check_cursor(visible := ctx.visible(job_id, row), selection)
        except WindlassError as error:
            messages.append(_rejected(params, member, error))
            continue
        if not (visible.final and selection.after >= visible.seq):
            feeds.append(
                event_feeds.shared_job_feed(ctx.server.hub, job_id, selection, each=params.each)
            )
        elif params.each:
            messages.append(event_feeds.closed_message(member))
    return messages, feeds


def _list_members(ctx: RequestContext, params: SharedStreamRequest) -> Members:
    messages, feeds = [], []
    for text in dict.fromkeys(params.lists):
        try:
            query = parse_filters(text).query(ctx.caller)
        except WindlassError as error:
            messages.append(_rejected(params, {"list": text}, error))
        else:
            feeds.append(ctx.server.list_watches.snapshots(query, text))
    return messages, feeds


def _rejected(params: SharedStreamRequest, member: dict[str, str], error: WindlassError) -> bytes:
    if not params.each:
        raise error
    return event_feeds.closed_message(member, error)
