"""Reads of dependencies and flows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias
from uuid import UUID

import apsw

from windlass.core.job.dependency import Edges
from windlass.core.job.flow_stats import FlowPage, FlowStats
from windlass.store import FLOW_RANGE
from windlass.stores.sqlite.connection import fetch_all, fetch_value
from windlass.stores.sqlite.queries import SQL

Scope: TypeAlias = tuple[str | None, str | None]  # owner and team; None is any
_MAX_ID = b"\xff" * 16  # greater than every id


def edges(connection: apsw.Connection, ids: Sequence[UUID], limit: int | None) -> list[Edges]:
    def related(sql: str, job_id: UUID) -> tuple[UUID, ...]:
        rows = fetch_all(connection, sql, (job_id.bytes, -1 if limit is None else limit))
        return tuple(UUID(bytes=value) for (value,) in rows)

    return [Edges(related(SQL.parents_of, id_), related(SQL.children_of, id_)) for id_ in ids]


def flows(connection: apsw.Connection, ids: Sequence[UUID], scope: Scope) -> list[FlowStats | None]:
    return [_flow(connection, flow_id, scope) for flow_id in ids]


def _flow(connection: apsw.Connection, flow_id: UUID, scope: Scope) -> FlowStats | None:
    counts = fetch_all(connection, SQL.flow_counts, (flow_id.bytes, *scope))
    return FlowStats.of(flow_id, counts) if counts else None


def newest(
    connection: apsw.Connection,
    before: UUID | None,
    limit: int,
    scope: Scope,
) -> FlowPage:
    last = _MAX_ID if before is None else before.bytes
    flows: list[FlowStats] = []
    for _ in range(limit):
        last = fetch_value(connection, SQL.flow_before, (last,))
        if last is None:
            return FlowPage(flows, None)
        counts = fetch_all(connection, SQL.newest_flow_counts, (last, FLOW_RANGE, *scope))
        if counts:
            more = fetch_value(connection, SQL.flow_exceeds, (last, FLOW_RANGE))
            flows.append(FlowStats.of(UUID(bytes=last), counts, capped=more is not None))
    return FlowPage(flows, UUID(bytes=last))
