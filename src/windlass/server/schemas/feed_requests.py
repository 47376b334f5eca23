"""What a stream of many is asked for: named jobs, each with a cursor, and lists."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import parse_qsl
from uuid import UUID

from pydantic import Field, ValidationError

from windlass.core.errors import InvalidArgumentError
from windlass.core.event import parse_wire_id
from windlass.server.problems import FieldProblem, WrongFieldsError, fields_of, wrong
from windlass.server.schemas.requests import Filters, types_of
from windlass.server.streaming.hub import Wanted

MOST = 100  # jobs that one stream may name
LISTS = 20
_SEVERAL = {"state", "queue", "task", "tag"}  # may be repeated in a list's filters


class FollowMany(Filters):
    """`after=<job>:<seq>,…` names jobs, `list=<filters, url-encoded>`, repeated, names lists.

    Without both, the filters themselves choose one list. With `each`, what is wrong with one job or
    list, or that a job had ended, is told on the stream as `over`, and does not concern the others.
    """

    after: str | None = None
    lists: Annotated[tuple[str, ...], Field(alias="list", max_length=LISTS)] = ()
    each: bool = False
    types: str | None = None
    ticket: str | None = None

    def named(self) -> list[str]:
        """The pieces of `after`, for `cursor_of`."""
        found = [] if self.after is None else [text.strip() for text in self.after.split(",")]
        if len(found) > MOST:
            raise wrong("after", f"it names {len(found)} jobs, the limit is {MOST}")
        return found

    def cursor_of(self, text: str) -> tuple[UUID, Wanted]:
        types = types_of(self.types)
        job, _, cursor = text.partition(":")
        try:
            return UUID(job), Wanted(after=parse_wire_id(cursor or "0"), types=types)
        except (ValueError, InvalidArgumentError):
            raise wrong("after", f"{text!r:.80} is not <job id>:<seq>") from None


def filters_of(text: str) -> Filters:
    """What a list is asked for by: a query, as `GET /api/jobs` takes it."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text))
    except ValueError:
        raise wrong("list", f"{text!r:.80} is no query like state=running&limit=50") from None
    asked: dict[str, Any] = {}
    for name, value in pairs:
        if name in _SEVERAL:
            asked.setdefault(name, []).append(value)
        else:
            asked[name] = value
    try:
        return Filters.model_validate(asked)
    except ValidationError as error:
        raise WrongFieldsError(
            *(
                FieldProblem(field=f"list.{one.field}", message=one.message)
                for one in fields_of(error.errors())
            )
        ) from None
