"""Invariants between job rows and the tables derived from them."""

from __future__ import annotations

from typing import Any

from tests.stores.postgres.server import execute

# The jobs that hold slots of gates, by their rows, and the fence of their permit.
HOLDERS = """
    SELECT job.n, job.state, job_gate.gate, job.fence + (job.state <> 'running')::integer AS next
    FROM windlass_job AS job, unnest(job.gates) WITH ORDINALITY AS job_gate (gate, ordinal)
    WHERE CASE WHEN job.gate IS NULL THEN job.state IN ('queued', 'running')
        ELSE job_gate.ordinal < array_position(job.gates, job.gate) END
"""
# A gate that was recounted after the last change of its limit, without a requested check.
RECOUNTED = """
    recounted_at > 0
    AND NOT EXISTS (SELECT FROM windlass_gate_check AS request WHERE request.gate = gate.gate)
"""
# Each returns the violations; nothing, if the invariant holds.
CHECKS = {
    "a queued job has a queue row": """
        SELECT n FROM windlass_job AS job WHERE state = 'queued' AND NOT EXISTS (
            SELECT FROM windlass_queued AS queued
            WHERE queued.id = job.id AND queued.queue = job.queue
                AND queued.priority = job.priority AND queued.position = job.position
                AND queued.queued_at = job.queued_at AND queued.expires_at IS NOT DISTINCT FROM
                    CASE WHEN job.first_started_at IS NULL THEN job.expires_at END)""",
    "only a queued job has a queue row": """
        SELECT id FROM windlass_queued AS queued WHERE NOT EXISTS (
            SELECT FROM windlass_job AS job WHERE job.id = queued.id AND job.state = 'queued'
                AND job.position = queued.position)""",
    "a job at a gate has a gate queue row": """
        SELECT n FROM windlass_job AS job WHERE gate IS NOT NULL AND NOT EXISTS (
            SELECT FROM windlass_gate_queue AS entry WHERE entry.id = job.id AND entry.n = job.n
                AND entry.gate = job.gate AND entry.priority = job.priority
                AND entry.position = job.position AND entry.queue = job.queue
                AND entry.state = job.state
                AND entry.limit_key IS NOT DISTINCT FROM job.limit_key
                AND entry.expires_at IS NOT DISTINCT FROM
                    CASE WHEN job.first_started_at IS NULL THEN job.expires_at END)""",
    "only a job at a gate has a gate queue row": """
        SELECT n FROM windlass_gate_queue AS entry WHERE NOT EXISTS (
            SELECT FROM windlass_job AS job WHERE job.n = entry.n AND job.gate = entry.gate
                AND job.state IN ('created', 'retrying') AND NOT job.held)""",
    "a job that holds a slot has a permit": f"""
        SELECT n FROM ({HOLDERS}) AS holder WHERE NOT EXISTS (
            SELECT FROM windlass_permit AS permit WHERE permit.gate = holder.gate
                AND holder.n = ANY (permit.jobs) AND permit.fence = holder.next)""",
    "a gate counts the jobs that hold a slot": f"""
        SELECT gate FROM windlass_gate AS gate WHERE {RECOUNTED} AND holding <> (
            SELECT count(*) FROM ({HOLDERS}) AS holder WHERE holder.gate = gate.gate)""",
    "a gate with a rate counts holders that have not started": f"""
        SELECT gate FROM windlass_gate AS gate WHERE {RECOUNTED} AND rate_limited AND pending <> (
            SELECT count(*) FROM ({HOLDERS}) AS holder
            WHERE holder.gate = gate.gate AND state <> 'running'
        ) + (
            SELECT coalesce(sum(cardinality(jobs)), 0) FROM windlass_start AS start
            WHERE start.gate = gate.gate AND NOT counted)""",
    "`started` of a gate is the number of its counted start rows": f"""
        SELECT gate FROM windlass_gate AS gate WHERE {RECOUNTED} AND started <> (
            SELECT coalesce(sum(cardinality(jobs)), 0) FROM windlass_start AS start
            WHERE start.gate = gate.gate AND counted)""",
    "a running job has a lease row": """
        SELECT n FROM windlass_job AS job WHERE state = 'running' AND NOT EXISTS (
            SELECT FROM windlass_lease AS lease
            WHERE lease.token = job.token AND job.n = ANY (lease.jobs))""",
    "a lease row counts its running jobs": """
        SELECT token FROM windlass_lease AS lease WHERE active < (
            SELECT count(*) FROM windlass_job AS job
            WHERE job.n = ANY (lease.jobs) AND job.token = lease.token AND job.state = 'running'
        )""",
    "a job that waits outside of queues and gates, or for a time, has a waiting row": """
        SELECT n FROM (
            SELECT n, queue, state, gate, least(
                CASE WHEN state <> 'queued' AND NOT held
                    AND NOT (state = 'created' AND waiting_for > 0) THEN due_at END,
                CASE WHEN first_started_at IS NULL THEN expires_at END
            ) AS at
            FROM windlass_job WHERE state IN ('created', 'queued', 'retrying')
        ) AS job
        WHERE (state <> 'queued' AND gate IS NULL OR at IS NOT NULL) AND NOT EXISTS (
            SELECT FROM windlass_waiting AS waiting WHERE waiting.n = job.n
                AND waiting.queue = job.queue AND waiting.state = job.state
                AND waiting.at IS NOT DISTINCT FROM job.at)""",
    "no other job has a waiting row": """
        SELECT n FROM windlass_waiting AS waiting WHERE NOT EXISTS (
            SELECT FROM windlass_job AS job WHERE job.n = waiting.n AND job.state = waiting.state
                AND (state IN ('created', 'retrying') AND gate IS NULL
                    OR state IN ('created', 'queued') AND expires_at IS NOT NULL
                        AND first_started_at IS NULL))
        """,
    "an active job holds its unique key": """
        SELECT n FROM windlass_job AS job
        WHERE unique_key IS NOT NULL AND state IN ('created', 'queued', 'running', 'retrying')
            AND NOT EXISTS (SELECT FROM windlass_unique_key AS key WHERE key.n = job.n)""",
    "no other job holds a unique key": """
        SELECT n FROM windlass_unique_key AS key WHERE NOT EXISTS (
            SELECT FROM windlass_job AS job WHERE job.n = key.n AND job.owner = key.owner
                AND job.task = key.task AND job.unique_key = key.unique_key
                AND job.state IN ('created', 'queued', 'running', 'retrying'))""",
    "a finished job is listed once, by the time of its end": """
        SELECT n FROM windlass_job AS job
        WHERE state IN ('succeeded', 'failed', 'canceled') AND 1 <> (
            SELECT count(*) FROM windlass_ended AS ended, unnest(jobs) AS listed (n)
            WHERE listed.n = job.n AND kind = job.state AND ended.ended_at = job.ended_at)""",
    "a finished job is listed once more while it has a log": """
        SELECT n FROM windlass_job AS job
        WHERE state IN ('succeeded', 'failed', 'canceled') AND logged::integer <> (
            SELECT count(*) FROM windlass_ended AS ended, unnest(jobs) AS listed (n)
            WHERE listed.n = job.n AND kind = 'log' AND ended.ended_at = job.ended_at)""",
    "only finished jobs are listed": """
        SELECT listed.n FROM windlass_ended AS ended
        LEFT JOIN unnest(jobs) AS listed (n) ON true
        LEFT JOIN windlass_job AS job ON job.n = listed.n
        WHERE job.ended_at IS NULL""",
    "a job is marked as logged if it has a log": """
        SELECT n FROM windlass_job AS job
        WHERE logged <> EXISTS (SELECT FROM windlass_log AS log WHERE log.n = job.n)""",
    "only failed and canceled jobs are listed as unsuccessful": """
        SELECT n FROM windlass_job FULL JOIN windlass_unsuccessful AS unsuccessful USING (n)
        WHERE coalesce(state IN ('failed', 'canceled'), false) <> (unsuccessful.n IS NOT NULL)""",
    "a job waits for as many as it has open edges": """
        SELECT n FROM windlass_job AS job WHERE waiting_for <> (
            SELECT count(*) FROM windlass_edge AS edge WHERE edge.child = job.n AND edge.open)""",
    "an open edge leads to an active job that is awaited": """
        SELECT child FROM windlass_edge AS edge WHERE open AND NOT EXISTS (
            SELECT FROM windlass_job AS job WHERE job.n = edge.parent AND job.awaited
                AND job.id = edge.parent_id AND job.ended_at IS NULL)""",
    "a deleted child has no edges": """
        SELECT child FROM windlass_edge AS edge WHERE NOT EXISTS (
            SELECT FROM windlass_job AS job WHERE job.n = edge.child AND job.id = edge.child_id)""",
    "a deleted job has no log or step": """
        SELECT n FROM (SELECT n FROM windlass_log UNION SELECT n FROM windlass_step) AS kept
        WHERE NOT EXISTS (SELECT FROM windlass_job AS job WHERE job.n = kept.n)""",
}


async def inconsistencies(url: str) -> dict[str, Any]:
    found = {what: await execute(url, sql) for what, sql in CHECKS.items()}
    return {what: rows for what, rows in found.items() if rows}
