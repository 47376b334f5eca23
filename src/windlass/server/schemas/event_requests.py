"""Parameters of event requests: of one job, or of a shared stream of jobs and lists."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from urllib.parse import parse_qsl
from uuid import UUID

from pydantic import Field, ValidationError

from windlass.core.clock import Instant, from_datetime
from windlass.core.errors import InvalidArgumentError
from windlass.core.event import EventType, parse_wire_id
from windlass.server.problem_details import (
    FieldProblem,
    InvalidFieldsError,
    field_problems,
    invalid_field,
)
from windlass.server.schemas.base import RequestModel
from windlass.server.schemas.job_requests import JobFilters
from windlass.server.streaming.stream_filter import StreamFilter

MAX_STREAM_JOBS = 100  # jobs of one stream
MAX_STREAM_LISTS = 20
_MILLISECONDS = 1000  # microseconds
_REPEATABLE = {"state", "queue", "task", "tag"}  # filters of a list


Types = Annotated[str | None, Field(description="Event types, separated by commas; default: all.")]
Ticket = Annotated[
    str | None, Field(description="A ticket of `POST /api/tickets`, in place of an API key.")
]


class SharedStreamRequest(JobFilters):
    """The jobs in `after`, and the lists in `list`. Without both, the filters select one list."""

    after: Annotated[
        str | None,
        Field(description="Jobs to follow, each after a cursor: `<job id>:<seq>,…`; at most 100."),
    ] = None
    lists: Annotated[
        tuple[str, ...],
        Field(
            alias="list",
            max_length=MAX_STREAM_LISTS,
            description="A list to watch: the URL-encoded query string of `GET /api/jobs`. "
            "Repeatable.",
        ),
    ] = ()
    report_errors: Annotated[
        bool,
        Field(
            description="Report an invalid or finished job or list by the event `closed`, "
            "without ending the stream for the others."
        ),
    ] = False
    types: Types = None
    ticket: Ticket = None

    def cursors(self) -> list[str]:
        """Split `after` into texts for `parse_cursor`."""
        texts = [] if self.after is None else [text.strip() for text in self.after.split(",")]
        if len(texts) > MAX_STREAM_JOBS:
            raise invalid_field("after", f"{len(texts)} jobs, the limit is {MAX_STREAM_JOBS}")
        return texts

    def parse_cursor(self, text: str) -> tuple[UUID, StreamFilter]:
        types = parse_types(self.types)
        job, _, cursor = text.partition(":")
        try:
            return UUID(job), StreamFilter(after=parse_wire_id(cursor or "0"), types=types)
        except (ValueError, InvalidArgumentError):
            raise invalid_field("after", f"{text!r:.80} is not <job id>:<seq>") from None


def parse_filters(text: str) -> JobFilters:
    """Parse the filters of a list: a query string of `GET /api/jobs`."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text))
    except ValueError:
        raise invalid_field(
            "list", f"{text!r:.80} is not a query string like state=running&limit=50"
        ) from None
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in _REPEATABLE:
            values.setdefault(name, []).append(value)
        else:
            values[name] = value
    try:
        return JobFilters.model_validate(values)
    except ValidationError as error:
        raise InvalidFieldsError(
            *(
                FieldProblem(field=f"list.{problem.field}", message=problem.message)
                for problem in field_problems(error.errors())
            )
        ) from None


class EventsRequest(RequestModel):
    """Cursor and filters of a job's events. The final event is always included."""

    last_event_id: Annotated[
        str | None,
        Field(description="Return events after this id. The header `Last-Event-ID` overrides it."),
    ] = None
    from_sequence: Annotated[
        int | None, Field(ge=1, lt=10**18, description="Return events from this `seq`.")
    ] = None
    from_timestamp: Annotated[
        str | None,
        Field(description="Return events from this time: ISO 8601, or milliseconds since 1970."),
    ] = None
    types: Types = None
    limit: Annotated[
        int,
        Field(ge=1, le=1000, description="Maximum number of events in a page; not for streams."),
    ] = 100
    ticket: Ticket = None

    def stream_filter(self, header: str | None) -> StreamFilter:
        """Return the filter. The header wins: a browser reconnects with it and the original URL."""
        cursor = header or self.last_event_id
        if cursor is not None:
            after = parse_wire_id(cursor)
        else:
            after = 0 if self.from_sequence is None else self.from_sequence - 1
        return StreamFilter(
            after=after, since=_since(self.from_timestamp), types=parse_types(self.types)
        )


def parse_types(text: str | None) -> frozenset[EventType]:
    if not text:
        return frozenset()
    try:
        return frozenset(EventType(item.strip()) for item in text.split(","))
    except ValueError as error:
        raise invalid_field("types", f"{error}; use {', '.join(EventType)}") from None


def _since(text: str | None) -> Instant | None:
    """Parse milliseconds since 1970, as in event ids, or a time with a time zone."""
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) < 16:  # noqa: PLR2004 - the year 9999
        return int(text) * _MILLISECONDS
    try:
        return from_datetime(datetime.fromisoformat(text))
    except (ValueError, InvalidArgumentError):
        raise invalid_field(
            "fromTimestamp", f"{text!r:.80} is neither milliseconds nor a time with a time zone"
        ) from None
