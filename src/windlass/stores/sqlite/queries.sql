-- Placeholders such as `{columns}` are made in queries.py from the table in
-- `stores/sql/job_columns.py`.

-- name: insert_job
-- Sets only the columns of a new job; the others have defaults. On a conflict it inserts nothing,
-- and the change count shows it. Only the id can conflict: this transaction has checked the keys
-- before.
INSERT INTO windlass_job (
    {request_columns}, n, root_id, created_at, expires_at, state, trigger, position, due_at,
    queued_at, updated_at, seq, queued_seq, last_step, waiting_for, gates, gate
) VALUES (
    {request_values}, ?, ?, ?, ?, ?, 'enqueue', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
)
ON CONFLICT DO NOTHING

-- name: insert_payload
INSERT INTO windlass_payload (n, data) VALUES (?, ?)

-- name: get_payload
SELECT data FROM windlass_payload WHERE n = ?

-- name: last_serial
-- Rows contain the serials of arrivals, so an enqueue does not have to update windlass_serial.
SELECT max(last, coalesce((SELECT max(n) FROM windlass_job), 0)) FROM windlass_serial WHERE one = 1

-- name: set_serial
UPDATE windlass_serial SET last = ? WHERE one = 1

-- name: get_job
SELECT {columns} FROM windlass_job WHERE id = ?

-- name: existing_ids
SELECT id FROM windlass_job WHERE id IN (SELECT value FROM carray(?))

-- name: jobs_by_serial
SELECT {columns} FROM windlass_job WHERE n IN (SELECT value FROM carray(?))

-- name: jobs_by_serial_without_payload
-- Without payload and result, which lists do not show.
SELECT {columns_without_payload} FROM windlass_job WHERE n IN (SELECT value FROM carray(?))

-- name: job_by_request
SELECT {columns} FROM windlass_job WHERE owner = ? AND request_id = ? AND request_id IS NOT NULL

-- name: active_by_key
SELECT {columns} FROM windlass_job
WHERE owner = ? AND task = ? AND unique_key = ? AND unique_key IS NOT NULL
    AND state IN ('created', 'queued', 'running', 'retrying')

-- name: active_of_lineage
SELECT {columns} FROM windlass_job
WHERE root_id = ? AND root_id IS NOT NULL
    AND state IN ('created', 'queued', 'running', 'retrying')
LIMIT 1

-- name: set_retried_as
UPDATE windlass_job SET retried_as = ? WHERE n = ?

-- name: copy_steps
INSERT INTO windlass_step (n, step, value, attempt, at)
SELECT ?, step, value, attempt, at FROM windlass_step WHERE n = ?

-- name: jobs_by_token
SELECT {columns} FROM windlass_job WHERE state = 'running' AND token = ?

-- name: claim
-- One range scan of the queue. Implements core's `decide.claim`; the model test compares the two.
-- Skips expired jobs, which the sweeper ends later.
UPDATE windlass_job SET
    state = 'running', trigger = 'claim', attempt = attempt + 1, fence = fence + 1,
    token = :token, worker = :worker,
    lease_until = max(:now, updated_at) + coalesce(:lease, lease, :default_lease),
    started_at = max(:now, updated_at),
    first_started_at = coalesce(first_started_at, max(:now, updated_at)),
    updated_at = max(:now, updated_at),
    seq = seq + 1, started_seq = seq + 1, last_record = 0
WHERE n IN (
    SELECT n FROM windlass_job INDEXED BY windlass_job_queued
    WHERE state = 'queued' AND queue = :queue
        AND (expires_at IS NULL OR expires_at > :now OR first_started_at IS NOT NULL)
    ORDER BY priority DESC, position, id
    LIMIT :limit
)
RETURNING {columns}

-- name: extend
-- Never shortens a lease: a delayed call must not undo a later one.
UPDATE windlass_job SET lease_until = max(lease_until, ?)
WHERE id = ? AND state = 'running' AND fence = ? AND token = ?
RETURNING lease_until, cancel_at

-- name: get_lifecycle
-- The columns that a decision reads.
SELECT {lifecycle_columns} FROM windlass_job WHERE id = ?

-- name: get_lifecycles
-- Like get_lifecycle, for a batch of jobs.
SELECT {lifecycle_columns} FROM windlass_job WHERE id IN (SELECT value FROM carray(?))

-- name: succeed
-- Fast path for success, the most frequent outcome: settles without reading the rows first.
-- Implements core's `decide`; the model test compares the two. If it does not match every row, the
-- caller decides all of them in the core. Jobs of one claim with the same result are settled in one
-- step, which releases the GIL to the tasks. The plus makes SQLite search by id: a token may match
-- a thousand jobs.
UPDATE windlass_job SET
    state = 'succeeded', trigger = 'succeed', held = 0, position = NULL, due_at = NULL,
    lease_until = NULL, ended_at = max(?1, updated_at), updated_at = max(?1, updated_at),
    percent = 100, result = ?2, error = NULL, error_body = NULL, seq = seq + 1
WHERE id IN (SELECT value FROM carray(?3))
    AND state = 'running' AND fence = ?4 AND +token = ?5 AND cancel_at IS NULL AND awaited = 0

-- name: success_totals
-- What the settled successes add to the rollups. Summing here costs a third of RETURNING each row
-- (2 µs per job instead of 6, 2026-11). Jobs with gates free slots there.
SELECT json_group_array(gates) FILTER (WHERE gates IS NOT NULL),
    json_group_array(n) FILTER (WHERE gates IS NOT NULL),
    queue, task, count(*), sum(started_at - queued_at), sum(ended_at - started_at)
FROM windlass_job WHERE id IN (SELECT value FROM carray(?))
GROUP BY queue, task

-- name: save_job
-- The parameters are a row of `get_lifecycle`, changed.
UPDATE windlass_job SET {assignments}, logged = {logged} WHERE n = {n}

-- name: insert_log
INSERT INTO windlass_log (n, seq, at, type, attempt, fence, record_n, data, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: past_outcome
-- Uses its own index: otherwise it would read all log rows of the job.
SELECT data FROM windlass_log INDEXED BY windlass_log_attempt WHERE n = ? AND fence = ? AND type = 'attempt'

-- name: limit_names
SELECT key FROM windlass_record WHERE kind = ? AND (expires_at IS NULL OR expires_at > ?)

-- name: rate_limit_names
SELECT key FROM windlass_record
WHERE kind = ? AND (expires_at IS NULL OR expires_at > ?) AND CAST(value AS TEXT) ->> 'starts' IS NOT NULL

-- name: queue_position_bounds
-- The first position of all jobs, and the last of each key: two index probes, at any queue length.
SELECT
    (SELECT min(position) FROM windlass_job INDEXED BY windlass_job_queued
    WHERE state = 'queued' AND queue = ?1 AND priority = ?2),
    json_group_object(value, (SELECT max(position) FROM windlass_job INDEXED BY windlass_job_queued_by_key
    WHERE limit_key IS NOT NULL AND state = 'queued' AND queue = ?1 AND priority = ?2
        AND limit_key = value))
FROM carray(?3)

-- name: gate_position_bounds
SELECT
    (SELECT min(position) FROM windlass_job INDEXED BY windlass_job_gate
    WHERE gate IS NOT NULL AND gate = ?1 AND priority = ?2),
    json_group_object(value, (SELECT max(position) FROM windlass_job INDEXED BY windlass_job_gate_by_key
    WHERE limit_key IS NOT NULL AND gate IS NOT NULL AND gate NOT GLOB 'key:*'
        AND gate = ?1 AND priority = ?2 AND limit_key = value))
FROM carray(?3)

-- name: key_gate_position_bounds
-- All jobs at the gate of a key have that key.
SELECT
    (SELECT min(position) FROM windlass_job INDEXED BY windlass_job_gate
    WHERE gate IS NOT NULL AND gate = ?1 AND priority = ?2),
    json_group_object(value, (SELECT max(position) FROM windlass_job INDEXED BY windlass_job_gate
    WHERE gate IS NOT NULL AND gate = ?1 AND priority = ?2))
FROM carray(?3)

-- name: update_permits
-- Brings the permits of some jobs up to date: core's `in_use` and `with_start`.
UPDATE windlass_permit AS permit SET
    held = CASE WHEN job.fence = permit.fence THEN job.state = 'running'
        WHEN job.fence < permit.fence THEN job.state = 'queued' OR job.gate IS NOT NULL
        ELSE 0 END,
    started_at = coalesce(permit.started_at, iif(job.fence = permit.fence, job.started_at, NULL))
FROM windlass_job AS job
WHERE permit.n IN (SELECT value FROM carray(?)) AND job.n = permit.n

-- name: record_starts
-- Records the start of claimed jobs. The slots that they hold do not change.
UPDATE windlass_permit SET started_at = ?2
WHERE n IN (SELECT value FROM carray(?1)) AND fence = ?3 AND started_at IS NULL

-- name: jobs_with_permit
-- The jobs with a permit of a limit: at the gate of its name (?1), or between two names (?2, ?3).
SELECT n FROM windlass_permit WHERE gate = ?1
UNION SELECT n FROM windlass_permit WHERE gate > ?2 AND gate < ?3

-- name: gates_of_limit
-- The gates of a limit that have permits or a row, selected in the same way.
SELECT gate FROM windlass_gate WHERE gate = ?1
UNION SELECT gate FROM windlass_gate WHERE gate > ?2 AND gate < ?3
UNION SELECT gate FROM windlass_permit WHERE gate = ?1
UNION SELECT gate FROM windlass_permit WHERE gate > ?2 AND gate < ?3

-- name: delete_permits
-- Deletes permits that no longer hold a slot. At rate-limited gates (?2), keeps those with a start.
DELETE FROM windlass_permit
WHERE n IN (SELECT value FROM carray(?1))
    AND (started_at IS NULL OR gate NOT IN (SELECT value FROM json_each(?2)))
    AND NOT (
        SELECT CASE WHEN job.fence = windlass_permit.fence THEN job.state = 'running'
            WHEN job.fence < windlass_permit.fence THEN job.state = 'queued' OR job.gate IS NOT NULL
            ELSE 0 END
        FROM windlass_job AS job WHERE job.n = windlass_permit.n)

-- name: delete_permits_of_ended
-- Like delete_permits, for jobs that have ended.
DELETE FROM windlass_permit
WHERE n IN (SELECT value FROM carray(?1))
    AND (started_at IS NULL OR gate NOT IN (SELECT value FROM json_each(?2)))

-- name: release_slots
-- Frees the slots of permits that delete_permits_of_ended keeps for their start. The pluses make
-- SQLite search by job: a gate may have many starts.
UPDATE windlass_permit SET held = 0
WHERE n IN (SELECT value FROM carray(?1))
    AND +started_at IS NOT NULL AND +gate IN (SELECT value FROM json_each(?2)) AND held = 1

-- name: delete_old_starts
-- Deletes permits without a slot whose start no longer counts: core's `capacity`.
DELETE FROM windlass_permit INDEXED BY windlass_permit_start
WHERE gate = ? AND started_at <= ? AND held = 0

-- name: count_permits
-- For gates with waiting jobs or recorded starts: the held slots, and the permits that have not
-- started or started after ?2. Returns one row: each step releases the GIL and waits for it again.
SELECT json_group_array(json_array(name.value, coalesce(gate.holding, 0), coalesce(gate.permits, 0) - (
    SELECT count(*) FROM windlass_permit INDEXED BY windlass_permit_start
    WHERE gate = name.value AND started_at <= ?2
)))
FROM carray(?1) AS name LEFT JOIN windlass_gate AS gate ON gate.gate = name.value
WHERE gate.permits > gate.holding OR EXISTS (
    SELECT 1 FROM windlass_job INDEXED BY windlass_job_gate
    WHERE gate IS NOT NULL AND gate = name.value
)

-- name: limiting_start
-- The start that must leave the period (?2 is now) before the gate can admit again: the ?3-th
-- newest. A permit without a start counts as started now. A start may be in the future if the clock
-- was set back.
SELECT coalesce(
    (
        SELECT started_at FROM windlass_permit INDEXED BY windlass_permit_start
        WHERE gate = ?1 AND started_at > ?2 ORDER BY started_at DESC LIMIT 1 OFFSET ?3 - 1
    ),
    min(?2, (
        SELECT started_at FROM windlass_permit INDEXED BY windlass_permit_start
        WHERE gate = ?1 AND started_at > ?4 ORDER BY started_at LIMIT 1 OFFSET ?5
    )),
    ?2
)

-- name: count_at_gate
SELECT count(*) FROM (
    SELECT 1 FROM windlass_job INDEXED BY windlass_job_gate
    WHERE gate IS NOT NULL AND gate = ? LIMIT ?
)

-- name: get_gates
SELECT gate, holding, next_check_at FROM windlass_gate WHERE gate IN (SELECT value FROM carray(?))

-- name: gate_holders
-- The oldest permit first. Used only by dashboards: reads all permits, so that no index by gate is
-- needed.
SELECT gate, id FROM (
    SELECT permit.gate, job.id,
        row_number() OVER (PARTITION BY permit.gate ORDER BY permit.at, job.id) AS ordinal
    FROM windlass_permit AS permit JOIN windlass_job AS job ON job.n = permit.n
    WHERE permit.gate IN (SELECT value FROM carray(?)) AND permit.held = 1
)
WHERE ordinal <= ? ORDER BY gate, ordinal

-- name: grant_permits
-- Grants permits to jobs at a gate, for their next attempt.
INSERT INTO windlass_permit (n, gate, fence, at, held)
SELECT n, gate, fence + 1, ?, 1 FROM windlass_job WHERE n IN (SELECT value FROM carray(?))
ON CONFLICT (n, gate, fence) DO NOTHING

-- name: regrant_permits
INSERT INTO windlass_permit (n, gate, fence, at, held)
SELECT n, gate, fence + 1, ?, 1 FROM windlass_job WHERE n IN (SELECT value FROM carray(?))
ON CONFLICT (n, gate, fence) DO UPDATE SET at = excluded.at, started_at = NULL, held = 1

-- name: add_permit_counts
-- Adds to the counters of gates; ?1 is a list of [gate, permits, holding].
INSERT INTO windlass_gate (gate, permits, holding)
SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?) WHERE true
ON CONFLICT (gate) DO UPDATE SET
    permits = permits + excluded.permits, holding = holding + excluded.holding

-- name: permit_counts
-- The permits and held slots of some jobs, per gate.
SELECT json_group_array(json_array(gate, permits, holding)) FROM (
    SELECT gate, count(*) AS permits, sum(held) AS holding FROM windlass_permit
    WHERE n IN (SELECT value FROM carray(?)) GROUP BY gate
)

-- name: recount_gates
-- Reads all permits, once for all of these gates.
INSERT INTO windlass_gate (gate, permits, holding)
SELECT name.value, coalesce(counted.permits, 0), coalesce(counted.holding, 0)
FROM carray(?1) AS name LEFT JOIN (
    SELECT gate, count(*) AS permits, sum(held) AS holding FROM windlass_permit
    WHERE gate IN (SELECT value FROM carray(?1)) GROUP BY gate
) AS counted ON counted.gate = name.value
WHERE true
ON CONFLICT (gate) DO UPDATE SET permits = excluded.permits, holding = excluded.holding

-- name: miscounted_gates
-- The gates whose counters differ from their permits.
SELECT gate FROM (
    SELECT gate, permits, holding FROM windlass_gate
    UNION ALL SELECT gate, -count(*), -sum(held) FROM windlass_permit GROUP BY gate
)
GROUP BY gate HAVING sum(permits) <> 0 OR sum(holding) <> 0

-- name: delete_idle_gates
DELETE FROM windlass_gate
WHERE gate IN (SELECT value FROM carray(?)) AND permits = 0 AND next_check_at IS NULL

-- name: admit_to_queue
-- Admits jobs through their last gate, at the given positions: core's `decide.admit`.
UPDATE windlass_job AS job SET
    state = 'queued', gate = NULL, position = admitted.position,
    queued_at = max(?1, updated_at), updated_at = max(?1, updated_at), started_at = NULL,
    seq = seq + 1, queued_seq = seq + 1
FROM (SELECT CAST(key AS INTEGER) AS n, value AS position FROM json_each(?2)) AS admitted
WHERE job.n = admitted.n

-- name: admit_to_gate
-- Moves admitted jobs to their next gate.
UPDATE windlass_job AS job SET gate = ?1, position = admitted.position
FROM (SELECT CAST(key AS INTEGER) AS n, value AS position FROM json_each(?2)) AS admitted
WHERE job.n = admitted.n

-- name: delete_idle_permits
-- Deletes permits whose start no longer counts, at gates without later jobs (core's
-- `gates.capacity`).
DELETE FROM windlass_permit WHERE (n, gate, fence) IN (
    SELECT permit.n, permit.gate, permit.fence FROM windlass_permit AS permit
    LEFT JOIN windlass_record AS record
        ON record.kind = :kind
        AND record.key = substr(permit.gate, 1, instr(permit.gate || char(31), char(31)) - 1)
    WHERE permit.held = 0
        AND permit.started_at + round(coalesce(CAST(record.value AS TEXT) ->> 'period', 0) * 1000000) <= :now
    LIMIT :limit
)
RETURNING gate

-- name: admissible_jobs
-- The first jobs at each gate. Skips expired jobs, which the sweeper ends later. Returns one row,
-- for the same reason as count_permits.
SELECT json_group_array(
    json_array(n, queue, priority, limit_key, gates, gate, position)
    ORDER BY gate, priority DESC, position, id
)
FROM carray(?1) AS name CROSS JOIN windlass_job
WHERE n IN (
    SELECT n FROM windlass_job INDEXED BY windlass_job_gate
    WHERE gate IS NOT NULL AND gate = name.value
        AND (expires_at IS NULL OR expires_at > ?2 OR first_started_at IS NOT NULL)
    ORDER BY priority DESC, position, id
    LIMIT ?3
)

-- name: get_ids
SELECT id FROM windlass_job WHERE n IN (SELECT value FROM carray(?))

-- name: gates_with_jobs
-- The gates among these where jobs wait.
SELECT value FROM carray(?) WHERE EXISTS (
    SELECT 1 FROM windlass_job INDEXED BY windlass_job_gate
    WHERE gate IS NOT NULL AND gate = value
)

-- name: next_gate_with_jobs
-- Enumerates the gates where jobs wait: one index probe per gate.
SELECT gate FROM windlass_job INDEXED BY windlass_job_gate
WHERE gate IS NOT NULL AND gate > ? AND gate < ? ORDER BY gate LIMIT 1

-- name: set_next_check
INSERT INTO windlass_gate (gate, next_check_at) VALUES (?, ?)
ON CONFLICT (gate) DO UPDATE SET next_check_at = excluded.next_check_at

-- name: clear_next_check
UPDATE windlass_gate SET next_check_at = NULL
WHERE gate IN (SELECT value FROM carray(?)) AND next_check_at IS NOT NULL

-- name: due_gate_heads
-- The first job at each gate whose check is due.
SELECT {job.columns} FROM windlass_gate AS due INDEXED BY windlass_gate_next_check
JOIN windlass_job AS job ON job.n = (
    SELECT n FROM windlass_job INDEXED BY windlass_job_gate
    WHERE gate IS NOT NULL AND gate = due.gate ORDER BY priority DESC, position, id LIMIT 1
)
WHERE due.next_check_at <= ?
ORDER BY due.gate
LIMIT ?

-- name: get_parents
SELECT n, id, owner, state FROM windlass_job WHERE id IN (SELECT value FROM carray(?))

-- name: next_edge_ordinal
SELECT coalesce(max(ordinal), -1) + 1 FROM windlass_edge WHERE child = ?

-- name: put_edge
-- A job that is suspended again may wait for the same parent again.
INSERT INTO windlass_edge (child, parent, ordinal, parent_id, open) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (child, parent) DO UPDATE SET open = excluded.open

-- name: mark_awaited
UPDATE windlass_job SET awaited = 1 WHERE n = ?

-- name: open_dependents
SELECT job.id FROM windlass_edge AS edge JOIN windlass_job AS job ON job.n = edge.child
WHERE edge.parent = ? AND edge.open = 1 ORDER BY edge.child

-- name: close_edges_of_parent
UPDATE windlass_edge SET open = 0 WHERE parent = ? AND open = 1

-- name: close_edges_of_child
UPDATE windlass_edge SET open = 0 WHERE child = ? AND open = 1

-- name: parents_of
SELECT edge.parent_id FROM windlass_edge AS edge
WHERE edge.child = (SELECT n FROM windlass_job WHERE id = ?) ORDER BY edge.ordinal LIMIT ?

-- name: children_of
SELECT job.id FROM windlass_edge AS edge JOIN windlass_job AS job ON job.n = edge.child
WHERE edge.parent = (SELECT n FROM windlass_job WHERE id = ?) ORDER BY edge.child LIMIT ?

-- name: flow_counts
SELECT state, count(*), sum(percent), min(created_at), max(ended_at)
FROM windlass_job INDEXED BY windlass_job_flow
WHERE flow_id IS NOT NULL AND flow_id = ?1 AND retried_as IS NULL
    AND (?2 IS NULL OR owner = ?2) AND (?3 IS NULL OR team = ?3)
GROUP BY state

-- name: flow_before
-- Enumerates flows: one index probe per flow.
SELECT flow_id FROM windlass_job INDEXED BY windlass_job_flow
WHERE flow_id IS NOT NULL AND flow_id < ? ORDER BY flow_id DESC LIMIT 1

-- name: newest_flow_counts
SELECT state, count(*), sum(percent), min(created_at), max(ended_at) FROM (
    SELECT state, percent, created_at, ended_at, retried_as, owner, team
    FROM windlass_job INDEXED BY windlass_job_flow
    WHERE flow_id IS NOT NULL AND flow_id = ?1 ORDER BY n DESC LIMIT ?2
)
WHERE retried_as IS NULL AND (?3 IS NULL OR owner = ?3) AND (?4 IS NULL OR team = ?4)
GROUP BY state

-- name: flow_exceeds
SELECT n FROM windlass_job INDEXED BY windlass_job_flow
WHERE flow_id IS NOT NULL AND flow_id = ? ORDER BY n DESC LIMIT 1 OFFSET ?

-- name: has_step
SELECT 1 FROM windlass_step WHERE n = ? AND step = ?

-- name: put_step
INSERT INTO windlass_step (n, step, value, attempt, at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (n, step) DO UPDATE SET
    value = excluded.value, attempt = excluded.attempt, at = excluded.at

-- name: get_steps
SELECT step, value, attempt, at FROM windlass_step WHERE n = (SELECT n FROM windlass_job WHERE id = ?)

-- name: add_rollup
INSERT INTO windlass_rollup (minute, queue, task, outcome, count, wait, run) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (minute, queue, task, outcome) DO UPDATE SET
    count = count + excluded.count, wait = wait + excluded.wait, run = run + excluded.run

-- name: rollups
SELECT minute, queue, task, outcome, count, wait, run FROM windlass_rollup
WHERE minute >= ? AND minute < ?
ORDER BY minute, queue, task, outcome

-- name: delete_old_rollups
DELETE FROM windlass_rollup WHERE minute < ?

-- name: due
-- Two ranges, each by its own index; a job that is both due and expired is returned once.
SELECT {job.columns} FROM (
    SELECT n, due_at AS since FROM (
        SELECT n, due_at FROM windlass_job INDEXED BY windlass_job_due
        WHERE state IN ('created', 'retrying') AND due_at <= :now AND held = 0
            AND (waiting_for = 0 OR state = 'retrying')
        ORDER BY due_at LIMIT :limit
    )
    UNION ALL
    SELECT n, expires_at FROM (
        SELECT n, expires_at FROM windlass_job INDEXED BY windlass_job_expiry
        WHERE expires_at IS NOT NULL AND first_started_at IS NULL
            AND state IN ('created', 'queued') AND expires_at <= :now
        ORDER BY expires_at LIMIT :limit
    )
) JOIN windlass_job AS job USING (n)
GROUP BY job.n
ORDER BY min(since), job.n
LIMIT :limit

-- name: expired
-- Reads all running jobs: their number is bounded by worker slots, not by stored jobs.
SELECT {columns} FROM windlass_job INDEXED BY windlass_job_running
WHERE state = 'running' AND lease_until <= ?
ORDER BY lease_until, n
LIMIT ?

-- name: past_retention
SELECT n, ended_at FROM windlass_job INDEXED BY windlass_job_ended
WHERE state = ? AND ended_at IS NOT NULL AND ended_at <= ?
ORDER BY ended_at, n
LIMIT ?

-- name: logs_past_retention
SELECT n FROM windlass_job INDEXED BY windlass_job_logged
WHERE logged = 1 AND ended_at IS NOT NULL AND ended_at <= ?
ORDER BY ended_at, n
LIMIT ?

-- name: mark_log_deleted
UPDATE windlass_job SET logged = 0, log_floor = seq - 1 WHERE n = ?

-- name: delete_log
DELETE FROM windlass_log WHERE n = ?

-- name: delete_steps
DELETE FROM windlass_step WHERE n = ?

-- name: delete_edges
DELETE FROM windlass_edge WHERE child = ?

-- name: delete_payload
DELETE FROM windlass_payload WHERE n = ?

-- name: delete_job
DELETE FROM windlass_job WHERE n = ?

-- name: log_rows
SELECT seq, at, type, attempt, fence, record_n, data, body FROM windlass_log
WHERE n = ? AND seq > ? AND type <> 'attempt'
ORDER BY seq LIMIT ?

-- name: attempt_rows
SELECT seq, at, type, attempt, fence, record_n, data, body FROM windlass_log INDEXED BY windlass_log_attempt
WHERE n = ? AND seq > ? AND type = 'attempt'
ORDER BY fence LIMIT ?

-- name: search_range
-- The jobs that one page searches: a bounded range, newest first. So the cost of a page does not
-- depend on the number of jobs. A page may be short; its cursor continues.
SELECT n FROM windlass_job WHERE n < ? ORDER BY n DESC LIMIT ?

-- name: unsuccessful_range
-- The same among failed and canceled jobs, which are rare and have their own index.
SELECT n FROM windlass_job INDEXED BY windlass_job_unsuccessful
WHERE state IN ('failed', 'canceled') AND n < ? ORDER BY n DESC LIMIT ?

-- name: lineage_range
-- The same among the retries of one job.
SELECT n FROM windlass_job INDEXED BY windlass_job_lineage
WHERE root_id IS NOT NULL AND n < ?1 AND root_id = ?3 ORDER BY n DESC LIMIT ?2

-- name: flow_range
SELECT n FROM windlass_job INDEXED BY windlass_job_flow
WHERE flow_id IS NOT NULL AND n < ?1 AND flow_id = ?3 ORDER BY n DESC LIMIT ?2

-- name: matching
SELECT n FROM windlass_job
WHERE n IN (SELECT value FROM json_each(:numbers))
    AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
    AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
    AND (:tasks IS NULL OR task IN (SELECT value FROM json_each(:tasks)))
    AND (:tags IS NULL OR NOT EXISTS (
        SELECT 1 FROM json_each(:tags) AS required
        WHERE required.value NOT IN (SELECT value FROM json_each(coalesce(tags, '[]')))))
    AND (:owner IS NULL OR owner = :owner)
    AND (:team IS NULL OR team = :team)
    AND (:worker IS NULL OR worker = :worker)
    AND (:error IS NULL OR error ->> 'code' = :error)
    AND (:text IS NULL
        OR instr(lower(task), :text)
        OR instr(lower(error ->> 'code'), :text)
        OR EXISTS (SELECT 1 FROM json_each(tags) WHERE instr(lower(value), :text))
        OR (error_body IS NOT NULL AND json_valid(CAST(error_body AS TEXT)) AND (
            instr(lower(CAST(error_body AS TEXT) ->> 'type'), :text)
            OR instr(lower(CAST(error_body AS TEXT) ->> 'message'), :text))))
    AND (:request_id IS NULL OR request_id = :request_id)
    AND (:unique_key IS NULL OR unique_key = :unique_key)
    AND (:retry_of IS NULL OR retry_of = :retry_of)
    AND (:root_id IS NULL OR root_id = :root_id)
    AND (:flow_id IS NULL OR flow_id = :flow_id)
    AND (:created_from IS NULL OR created_at >= :created_from)
    AND (:created_to IS NULL OR created_at < :created_to)
ORDER BY n DESC
LIMIT :limit

-- name: failures
-- Newest first, without payloads, which may be large.
SELECT id, task, queue, ended_at, error, error_body, owner, team
FROM windlass_job INDEXED BY windlass_job_ended
WHERE state = 'failed' AND ended_at IS NOT NULL AND ended_at >= ?
ORDER BY ended_at DESC, n DESC
LIMIT ?

-- name: next_queue
-- Enumerates the queues with queued jobs: one index probe per queue.
SELECT queue FROM windlass_job INDEXED BY windlass_job_queued
WHERE state = 'queued' AND queue > ? ORDER BY queue LIMIT 1

-- name: count_queued
SELECT count(*) FROM (
    SELECT 1 FROM windlass_job INDEXED BY windlass_job_queued
    WHERE state = 'queued' AND queue = ? LIMIT ?
)

-- name: oldest_queued
-- Exact up to the cap; beyond it, the oldest of the first jobs.
SELECT min(queued_at) FROM (
    SELECT queued_at FROM windlass_job INDEXED BY windlass_job_queued
    WHERE state = 'queued' AND queue = ? LIMIT ?
)

-- name: next_waiting
SELECT queue, state FROM windlass_job INDEXED BY windlass_job_waiting
WHERE state IN ('created', 'retrying') AND (queue, state) > (?, ?) ORDER BY queue, state LIMIT 1

-- name: count_waiting
SELECT count(*) FROM (
    SELECT 1 FROM windlass_job INDEXED BY windlass_job_waiting
    WHERE state IN ('created', 'retrying') AND queue = ? AND state = ? LIMIT ?
)

-- name: count_running
SELECT queue, count(*) FROM windlass_job INDEXED BY windlass_job_running
WHERE state = 'running' GROUP BY queue

-- name: get_record
SELECT kind, key, value, version, expires_at FROM windlass_record WHERE kind = ? AND key = ?

-- name: is_paused
SELECT 1 FROM windlass_record WHERE kind = ? AND key = ? AND (expires_at IS NULL OR expires_at > ?)

-- name: put_record
INSERT INTO windlass_record (kind, key, value, version, expires_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (kind, key) DO UPDATE SET
    value = excluded.value, version = excluded.version, expires_at = excluded.expires_at

-- name: list_records
SELECT kind, key, value, version, expires_at FROM windlass_record
WHERE kind = ? AND key > ? AND (expires_at IS NULL OR expires_at > ?)
ORDER BY key LIMIT ?

-- name: delete_record
DELETE FROM windlass_record WHERE kind = ? AND key = ?

-- name: delete_expired_records
DELETE FROM windlass_record WHERE expires_at IS NOT NULL AND expires_at <= ?
