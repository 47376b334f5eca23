"""Parameters of a shared event stream: jobs with cursors, and lists."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import parse_qsl
from uuid import UUID

from pydantic import Field, ValidationError

from windlass.core.errors import InvalidArgumentError
from windlass.core.event import parse_wire_id
from windlass.server.problems import FieldProblem, InvalidFieldsError, field_problems, invalid_field
from windlass.server.schemas.requests import JobFilters, parse_types
from windlass.server.streaming.hub import StreamFilter

MAX_JOBS = 100  # jobs of one stream
MAX_LISTS = 20
_REPEATABLE = {"state", "queue", "task", "tag"}  # filters of a list


class SharedStreamRequest(JobFilters):
    """`after=<job>:<seq>,…` selects jobs, repeated `list=<url-encoded filters>` selects lists.

    Without both, the filters select one list. With `each`, an invalid or finished job or list is
    reported on the stream by the event `over`, and does not affect the others.
    """

    after: str | None = None
    lists: Annotated[tuple[str, ...], Field(alias="list", max_length=MAX_LISTS)] = ()
    each: bool = False
    types: str | None = None
    ticket: str | None = None

    def cursors(self) -> list[str]:
        """Split `after` into texts for `parse_cursor`."""
        texts = [] if self.after is None else [text.strip() for text in self.after.split(",")]
        if len(texts) > MAX_JOBS:
            raise invalid_field("after", f"{len(texts)} jobs, the limit is {MAX_JOBS}")
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
                FieldProblem(field=f"list.{one.field}", message=one.message)
                for one in field_problems(error.errors())
            )
        ) from None
