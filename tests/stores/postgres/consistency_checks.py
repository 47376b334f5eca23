"""What must hold between the job's rows and the tables that go by their values."""

from __future__ import annotations

from typing import Any

from tests.stores.postgres.server import execute

# Who holds a slot of which gate, by the jobs' rows, and the fence that its pass is for.
HOLDERS = """
    SELECT job.n, job.state, its.gate, job.fence + (job.state <> 'running')::integer AS next
    FROM windlass_job AS job, unnest(job.gates) WITH ORDINALITY AS its (gate, place)
    WHERE CASE WHEN job.gate IS NULL THEN job.state IN ('queued', 'running')
        ELSE its.place < array_position(job.gates, job.gate) END
"""
# A gate that was looked at since its limit was changed, and at which nobody has knocked since.
KNOWN = """
    checked_at > 0
    AND NOT EXISTS (SELECT FROM windlass_knock AS knock WHERE knock.gate = gate.gate)
"""
# Each answers what is wrong; nothing, if all is well.
CHECKS = {
    "a queued job has its place in line": """
        SELECT n FROM windlass_job AS job WHERE state = 'queued' AND NOT EXISTS (
            SELECT FROM windlass_line AS line WHERE line.id = job.id AND line.queue = job.queue
                AND line.priority = job.priority AND line.position = job.position
                AND line.queued_at = job.queued_at AND line.expires_at IS NOT DISTINCT FROM
                    CASE WHEN job.first_started_at IS NULL THEN job.expires_at END)""",
    "only a queued job has one": """
        SELECT id FROM windlass_line AS line WHERE NOT EXISTS (
            SELECT FROM windlass_job AS job WHERE job.id = line.id AND job.state = 'queued'
                AND job.position = line.position)""",
    "a job at a gate has its place there": """
        SELECT n FROM windlass_job AS job WHERE gate IS NOT NULL AND NOT EXISTS (
            SELECT FROM windlass_parked AS parked WHERE parked.id = job.id AND parked.n = job.n
                AND parked.gate = job.gate AND parked.priority = job.priority
                AND parked.position = job.position AND parked.queue = job.queue
                AND parked.state = job.state
                AND parked.limit_key IS NOT DISTINCT FROM job.limit_key
                AND parked.expires_at IS NOT DISTINCT FROM
                    CASE WHEN job.first_started_at IS NULL THEN job.expires_at END)""",
    "only such a job has one": """
        SELECT n FROM windlass_parked AS parked WHERE NOT EXISTS (
            SELECT FROM windlass_job AS job WHERE job.n = parked.n AND job.gate = parked.gate
                AND job.state IN ('created', 'retrying') AND NOT job.held)""",
    "whoever holds a slot has a pass": f"""
        SELECT n FROM ({HOLDERS}) AS holder WHERE NOT EXISTS (
            SELECT FROM windlass_pass AS pass WHERE pass.gate = holder.gate
                AND holder.n = ANY (pass.jobs) AND pass.fence = holder.next)""",
    "a gate counts who holds a slot": f"""
        SELECT gate FROM windlass_gate AS gate WHERE {KNOWN} AND holding <> (
            SELECT count(*) FROM ({HOLDERS}) AS holder WHERE holder.gate = gate.gate)""",
    "and, where there is a rate, who has not started": f"""
        SELECT gate FROM windlass_gate AS gate WHERE {KNOWN} AND rated AND coming <> (
            SELECT count(*) FROM ({HOLDERS}) AS holder
            WHERE holder.gate = gate.gate AND state <> 'running'
        ) + (
            SELECT coalesce(sum(cardinality(jobs)), 0) FROM windlass_start AS start
            WHERE start.gate = gate.gate AND NOT seen)""",
    "and the starts that it has seen": f"""
        SELECT gate FROM windlass_gate AS gate WHERE {KNOWN} AND started <> (
            SELECT coalesce(sum(cardinality(jobs)), 0) FROM windlass_start AS start
            WHERE start.gate = gate.gate AND seen)""",
    "a running job has its lease": """
        SELECT n FROM windlass_job AS job WHERE state = 'running' AND NOT EXISTS (
            SELECT FROM windlass_lease AS lease
            WHERE lease.token = job.token AND job.n = ANY (lease.jobs))""",
    "and is counted there": """
        SELECT token FROM windlass_lease AS lease WHERE active < (
            SELECT count(*) FROM windlass_job AS job
            WHERE job.n = ANY (lease.jobs) AND job.token = lease.token AND job.state = 'running'
        )""",
    "whoever waits outside of the line, or for a time, is listed": """
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
    "and nobody else": """
        SELECT n FROM windlass_waiting AS waiting WHERE NOT EXISTS (
            SELECT FROM windlass_job AS job WHERE job.n = waiting.n AND job.state = waiting.state
                AND (state IN ('created', 'retrying') AND gate IS NULL
                    OR state IN ('created', 'queued') AND expires_at IS NOT NULL
                        AND first_started_at IS NULL))
        """,
    "an active job holds its key": """
        SELECT n FROM windlass_job AS job
        WHERE unique_key IS NOT NULL AND state IN ('created', 'queued', 'running', 'retrying')
            AND NOT EXISTS (SELECT FROM windlass_key AS key WHERE key.n = job.n)""",
    "and nobody else does": """
        SELECT n FROM windlass_key AS key WHERE NOT EXISTS (
            SELECT FROM windlass_job AS job WHERE job.n = key.n AND job.owner = key.owner
                AND job.task = key.task AND job.unique_key = key.unique_key
                AND job.state IN ('created', 'queued', 'running', 'retrying'))""",
    "a finished job is listed once, by its end": """
        SELECT n FROM windlass_job AS job
        WHERE state IN ('succeeded', 'failed', 'canceled') AND 1 <> (
            SELECT count(*) FROM windlass_ended AS ended, unnest(jobs) AS listed (n)
            WHERE listed.n = job.n AND kind = job.state AND ended.ended_at = job.ended_at)""",
    "and once more while it has a log": """
        SELECT n FROM windlass_job AS job
        WHERE state IN ('succeeded', 'failed', 'canceled') AND logged::integer <> (
            SELECT count(*) FROM windlass_ended AS ended, unnest(jobs) AS listed (n)
            WHERE listed.n = job.n AND kind = 'log' AND ended.ended_at = job.ended_at)""",
    "nothing else is listed": """
        SELECT listed.n FROM windlass_ended AS ended
        LEFT JOIN unnest(jobs) AS listed (n) ON true
        LEFT JOIN windlass_job AS job ON job.n = listed.n
        WHERE job.ended_at IS NULL""",
    "a job is marked as logged if it has a log": """
        SELECT n FROM windlass_job AS job
        WHERE logged <> EXISTS (SELECT FROM windlass_log AS log WHERE log.n = job.n)""",
    "failed and canceled jobs, and no others, are in trouble": """
        SELECT n FROM windlass_job FULL JOIN windlass_trouble AS trouble USING (n)
        WHERE coalesce(state IN ('failed', 'canceled'), false) <> (trouble.n IS NOT NULL)""",
    "a job waits for as many as it has open edges": """
        SELECT n FROM windlass_job AS job WHERE waiting_for <> (
            SELECT count(*) FROM windlass_edge AS edge WHERE edge.child = job.n AND edge.open)""",
    "an open edge leads to an active job that is awaited": """
        SELECT child FROM windlass_edge AS edge WHERE open AND NOT EXISTS (
            SELECT FROM windlass_job AS job WHERE job.n = edge.parent AND job.awaited
                AND job.id = edge.parent_id AND job.ended_at IS NULL)""",
    "no edge is left of a child that is gone": """
        SELECT child FROM windlass_edge AS edge WHERE NOT EXISTS (
            SELECT FROM windlass_job AS job WHERE job.n = edge.child AND job.id = edge.child_id)""",
    "no log or step is left of a job that is gone": """
        SELECT n FROM (SELECT n FROM windlass_log UNION SELECT n FROM windlass_step) AS kept
        WHERE NOT EXISTS (SELECT FROM windlass_job AS job WHERE job.n = kept.n)""",
}


async def contradictions(url: str) -> dict[str, Any]:
    found = {what: await execute(url, sql) for what, sql in CHECKS.items()}
    return {what: rows for what, rows in found.items() if rows}
