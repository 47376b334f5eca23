"""What is read of jobs that depend on jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias
from uuid import UUID

import apsw

from windlass.core.job.dependency import Edges, FlowPage, FlowStats
from windlass.store import FLOW_RANGE
from windlass.stores.sqlite.connection import every, single
from windlass.stores.sqlite.queries import SQL

Whose: TypeAlias = tuple[str | None, str | None]  # an owner's, and a team's
_BEYOND = b"\xff" * 16  # after every id: this one is nobody's


def edges(connection: apsw.Connection, ids: Sequence[UUID], most: int | None) -> list[Edges]:
    def named(sql: str, job_id: UUID) -> tuple[UUID, ...]:
        found = every(connection, sql, (job_id.bytes, -1 if most is None else most))
        return tuple(UUID(bytes=value) for (value,) in found)

    return [Edges(named(SQL.parents_of, id_), named(SQL.children_of, id_)) for id_ in ids]


def flows(connection: apsw.Connection, ids: Sequence[UUID], whose: Whose) -> list[FlowStats | None]:
    return [_flow(connection, flow_id, whose) for flow_id in ids]


def _flow(connection: apsw.Connection, flow_id: UUID, whose: Whose) -> FlowStats | None:
    found = every(connection, SQL.flow, (flow_id.bytes, *whose))
    if not found:
        return None
    return FlowStats.of(flow_id, found)


def newest(
    connection: apsw.Connection,
    before: UUID | None,
    limit: int,
    whose: Whose,
) -> FlowPage:
    last = _BEYOND if before is None else before.bytes
    found: list[FlowStats] = []
    for _ in range(limit):
        last = single(connection, SQL.flow_before, (last,))
        if last is None:
            return FlowPage(found, None)
        sums = every(connection, SQL.newest_of_flow, (last, FLOW_RANGE, *whose))
        if sums:
            more = single(connection, SQL.beyond_newest_of_flow, (last, FLOW_RANGE))
            found.append(FlowStats.of(UUID(bytes=last), sums, capped=more is not None))
    return FlowPage(found, UUID(bytes=last))
