"""What is read of jobs that depend on jobs."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import apsw

from windlass.core.dependency import Edges, FlowStats
from windlass.stores.sqlite.connection import every
from windlass.stores.sqlite.queries import SQL


def edges(connection: apsw.Connection, ids: Sequence[UUID]) -> list[Edges]:
    return [
        Edges(_ids(connection, SQL.parents_of, job_id), _ids(connection, SQL.children_of, job_id))
        for job_id in ids
    ]


def _ids(connection: apsw.Connection, sql: str, job_id: UUID) -> tuple[UUID, ...]:
    return tuple(UUID(bytes=found) for (found,) in every(connection, sql, (job_id.bytes,)))


def flows(connection: apsw.Connection, ids: Sequence[UUID]) -> list[FlowStats | None]:
    return [_flow(connection, flow_id) for flow_id in ids]


def _flow(connection: apsw.Connection, flow_id: UUID) -> FlowStats | None:
    found = every(connection, SQL.flow, (flow_id.bytes,))
    if not found:
        return None
    return FlowStats.of(flow_id, found)
