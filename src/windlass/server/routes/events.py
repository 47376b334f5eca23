"""Events of jobs: as pages of JSON, or as event streams (`Accept: text/event-stream`)."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Header, Query, Response, status
from fastapi.responses import JSONResponse

from windlass.core.errors import NotFoundError, WindlassError
from windlass.core.job.row import JobRow
from windlass.schemas.events import EventPageView
from windlass.server.context import Ctx, PathId, RequestContext
from windlass.server.problem_details import invalid_field
from windlass.server.schemas.event_requests import EventsRequest, SharedStreamRequest, parse_filters
from windlass.server.streaming import feeds as event_feeds
from windlass.server.streaming import sse
from windlass.server.streaming.event_encoder import EventEncoder
from windlass.server.streaming.stream_filter import StreamFilter

LastEventId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", description="Id of the last event received; sent on reconnect."),
]
Accept = Annotated[str, Header(description="`text/event-stream` for a stream.")]


async def events(
    ctx: Ctx,
    job_id: PathId,
    params: Annotated[EventsRequest, Query()],
    last_event_id: LastEventId = None,
    accept: Accept = "*/*",
) -> Response:
    """Read the events of a job after a cursor; as a stream, also follow new ones."""
    stream_filter = params.stream_filter(last_event_id)
    row = await ctx.job(job_id)
    _check_cursor(row, stream_filter)
    if sse.MEDIA_TYPE not in accept:
        page = await _page(ctx, job_id, stream_filter, params.limit)
        return JSONResponse(page.to_json())
    if row.final and stream_filter.after >= row.seq:
        return Response(status_code=status.HTTP_204_NO_CONTENT)
    feed = event_feeds.job_feed(ctx.server.hub, job_id, stream_filter)
    return sse.EventStream(ctx.server, ctx.caller, feed, row.correlation_id)


def _check_cursor(row: JobRow, stream_filter: StreamFilter) -> None:
    if stream_filter.after > row.seq:
        raise invalid_field(
            "lastEventId",
            f"job {row.id} has {row.seq} events; there is no event {stream_filter.after}",
        )


async def _page(
    ctx: RequestContext, job_id: UUID, stream_filter: StreamFilter, limit: int
) -> EventPageView:
    store = ctx.client.store
    page = await store.events(job_id, stream_filter.after, limit)
    if page is None:
        raise NotFoundError(f"no job {job_id}")
    encoder = EventEncoder(store, ctx.app.codec, job_id, stream_filter.after)
    encoded = [await encoder.encode(event) for event in page.events]
    return EventPageView(
        events=[event.view for event in encoded if stream_filter.matches(event)],
        cursor=page.events[-1].wire_id if page.events else None,
        ended=page.ended,
    )


async def all_events(ctx: Ctx, params: Annotated[SharedStreamRequest, Query()]) -> Response:
    """Follow many jobs on one stream: logs of the jobs in `after`, and snapshots of lists.

    Each log event has its job id and sequence, with which the client updates its cursors. A
    snapshot has the current state of a listed job (`state` null: deleted; `listed` false: it left
    the list); the newest one counts. With `list`, it names the list, and the event `loaded` follows
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
            job_id, stream_filter = params.parse_cursor(text)
        except WindlassError as error:
            messages.append(_rejected(params, {"jobId": text.partition(":")[0]}, error))
        else:
            jobs[job_id] = stream_filter
    rows = await ctx.client.store.get(list(jobs))
    for (job_id, stream_filter), row in zip(jobs.items(), rows, strict=True):
        member = {"jobId": str(job_id)}
        try:
            _check_cursor(visible := ctx.visible(job_id, row), stream_filter)
        except WindlassError as error:
            messages.append(_rejected(params, member, error))
            continue
        if not (visible.final and stream_filter.after >= visible.seq):
            feeds.append(
                event_feeds.shared_job_feed(
                    ctx.server.hub, job_id, stream_filter, report_errors=params.report_errors
                )
            )
        elif params.report_errors:
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
    if not params.report_errors:
        raise error
    return event_feeds.closed_message(member, error)
