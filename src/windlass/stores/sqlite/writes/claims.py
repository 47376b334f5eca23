"""Claims of queued jobs, and extensions of leases."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.core.admission.queue_position import queue_order
from windlass.core.clock import SECOND
from windlass.core.job.lease import DEFAULT_LEASE, Claim, ExtendResult, Lease
from windlass.core.job.row import JobRow
from windlass.core.versioned_record import PAUSED
from windlass.stores.sqlite.connection import fetch_all, fetch_one
from windlass.stores.sqlite.queries import SQL
from windlass.stores.sqlite.reads import with_payload
from windlass.stores.sqlite.rows import GATES, PAYLOAD, job_row
from windlass.stores.sqlite.writes import gates
from windlass.stores.sqlite.writes.write_transaction import WriteTransaction


def claim(tx: WriteTransaction, request: Claim) -> list[JobRow]:
    connection = tx.connection
    found = fetch_all(connection, SQL.jobs_by_token, (request.token.bytes,))
    if not found:
        now = tx.now()
        for queue, limit in request.queues:
            if limit and not fetch_one(connection, SQL.is_paused, (PAUSED, queue, now)):
                found += fetch_all(
                    connection,
                    SQL.claim,
                    {
                        "token": request.token.bytes,
                        "worker": request.worker,
                        "now": now,
                        "lease": None if request.lease is None else round(request.lease * SECOND),
                        "default_lease": round(DEFAULT_LEASE * SECOND),
                        "queue": queue,
                        "limit": limit,
                    },
                )
        if any(row[GATES] is not None for row in found):
            gates.record_starts(tx, found, now)
    claimed = [
        with_payload(connection, row) if row[PAYLOAD] is None else job_row(row) for row in found
    ]
    if tx.changed_jobs is not None:
        tx.changed_jobs += [row.id for row in claimed]
    if len(claimed) > 1:
        rank = {queue: index for index, (queue, _) in enumerate(request.queues)}
        claimed.sort(key=lambda row: (rank.get(row.queue, 0), *queue_order(row)))
    return claimed


def extend(tx: WriteTransaction, leases: Sequence[Lease], seconds: float) -> list[ExtendResult]:
    until = tx.now() + round(seconds * SECOND)
    results = []
    for lease in leases:
        found = fetch_one(
            tx.connection, SQL.extend, (until, lease.job_id.bytes, lease.fence, lease.token.bytes)
        )
        if found is None:
            results.append(ExtendResult(lease_until=None))
        else:
            lease_until, cancel_at = found
            results.append(
                ExtendResult(lease_until=lease_until, cancel_requested=cancel_at is not None)
            )
    return results
