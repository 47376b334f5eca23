-- name: insert_job
-- Only what a new job has; the rest are the table's defaults. A conflict (on the id: keys were
-- looked up before, in this transaction) inserts nothing, and the change count tells.
INSERT INTO windlass_job (
    n, id, queue, task, priority, owner, team, tags, headers, policy, lease, request_id, digest,
    unique_key, retry_of, root_id, created_at, expires_at, state, trigger, held, position, due_at,
    queued_at, updated_at, seq, queued_seq, last_step, payload, waiting_for, on_parent, flow_id,
    limit_key, gates, gate
) VALUES (
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'enqueue', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?
)
ON CONFLICT DO NOTHING

-- name: insert_payload
INSERT INTO windlass_payload (n, data) VALUES (?, ?)

-- name: get_payload
SELECT data FROM windlass_payload WHERE n = ?

-- name: last_serial
-- Arrivals show in the rows themselves, so that an enqueue has one page less to write.
SELECT max(last, coalesce((SELECT max(n) FROM windlass_job), 0)) FROM windlass_serial WHERE one = 1

-- name: set_serial
UPDATE windlass_serial SET last = ? WHERE one = 1

-- name: get_job
-- A star, here and below, is safe: migrations only ever append columns, and rows are read by place.
SELECT * FROM windlass_job WHERE id = ?

-- name: taken
SELECT id FROM windlass_job WHERE id IN (SELECT value FROM carray(?))

-- name: numbered
SELECT * FROM windlass_job WHERE n IN (SELECT value FROM carray(?))

-- name: numbered_bare
-- In the order of the table, without the payload and the result: lists show neither.
SELECT n, id, queue, task, priority, owner, team, tags, headers, policy, lease, request_id,
    digest, unique_key, retry_of, retried_as, root_id, created_at, expires_at, log_floor, logged,
    state, trigger, held, waiting_for, position, due_at, attempt, fence, token, worker,
    lease_until, queued_at, started_at, first_started_at, ended_at, updated_at, seq, queued_seq,
    started_seq, said, percent, stage, phase, base_percent, base_stage, base_phase, retry_count,
    crash_count, cancel_at, cancel_by, cancel_reason, last_step, error, error_body, NULL, x'',
    on_parent, awaited, signals, flow_id, limit_key, gates, gate
FROM windlass_job WHERE n IN (SELECT value FROM carray(?))

-- name: job_by_request
SELECT * FROM windlass_job WHERE owner = ? AND request_id = ? AND request_id IS NOT NULL

-- name: active_by_key
SELECT * FROM windlass_job
WHERE owner = ? AND task = ? AND unique_key = ? AND unique_key IS NOT NULL
    AND state IN ('created', 'queued', 'running', 'retrying')

-- name: active_of_lineage
SELECT * FROM windlass_job
WHERE root_id = ? AND root_id IS NOT NULL
    AND state IN ('created', 'queued', 'running', 'retrying')
LIMIT 1

-- name: set_retried_as
UPDATE windlass_job SET retried_as = ? WHERE n = ?

-- name: copy_steps
INSERT INTO windlass_step (n, step, value, attempt, at)
SELECT ?, step, value, attempt, at FROM windlass_step WHERE n = ?

-- name: claimed_by
SELECT * FROM windlass_job WHERE state = 'running' AND token = ?

-- name: claim
-- One range scan of the line; the rule is core's `decide.claim`, and the model compares the two.
-- An expired job is stepped over until the sweeper has ended it.
UPDATE windlass_job SET
    state = 'running', trigger = 'claim', attempt = attempt + 1, fence = fence + 1,
    token = :token, worker = :worker,
    lease_until = max(:now, updated_at) + coalesce(:lease, lease, :default_lease),
    started_at = max(:now, updated_at),
    first_started_at = coalesce(first_started_at, max(:now, updated_at)),
    updated_at = max(:now, updated_at),
    seq = seq + 1, started_seq = seq + 1, said = 0
WHERE n IN (
    SELECT n FROM windlass_job INDEXED BY windlass_job_line
    WHERE state = 'queued' AND queue = :queue
        AND (expires_at IS NULL OR expires_at > :now OR first_started_at IS NOT NULL)
    ORDER BY priority DESC, position, id
    LIMIT :limit
)
RETURNING *

-- name: extend
-- Never shortens: a slow call must not take back what a later one gave.
UPDATE windlass_job SET lease_until = max(lease_until, ?)
WHERE id = ? AND state = 'running' AND fence = ? AND token = ?
RETURNING lease_until, cancel_at

-- name: standing
-- What a decision looks at, in the order in which `save` writes it back.
SELECT
    n, queue, task, created_at, expires_at, on_parent, awaited, priority, limit_key, gates,
    state, trigger, held, waiting_for, position, due_at, attempt, fence, token, worker, lease_until, queued_at,
    started_at, first_started_at, ended_at, updated_at, seq, queued_seq, started_seq, said, percent,
    stage, phase, base_percent, base_stage, base_phase, retry_count, crash_count, cancel_at,
    cancel_by, cancel_reason, last_step, error, error_body, result, logged, signals, gate
FROM windlass_job WHERE id = ?

-- name: standings
-- The same for a whole batch, in one statement.
SELECT
    n, queue, task, created_at, expires_at, on_parent, awaited, priority, limit_key, gates,
    state, trigger, held, waiting_for, position, due_at, attempt, fence, token, worker, lease_until, queued_at,
    started_at, first_started_at, ended_at, updated_at, seq, queued_seq, started_seq, said, percent,
    stage, phase, base_percent, base_stage, base_phase, retry_count, crash_count, cancel_at,
    cancel_by, cancel_reason, last_step, error, error_body, result, logged, signals, gate, id
FROM windlass_job WHERE id IN (SELECT value FROM carray(?))

-- name: succeed
-- The one outcome that is nearly all of them, settled without a look first. The rule is core's
-- `decide`; if this finds not every row, all are decided there, and the model compares the two.
-- Jobs of one claim with one result go in one step, which leaves the interpreter to the tasks; the
-- plus keeps the search on the ids, since a token may stand for a thousand jobs.
UPDATE windlass_job SET
    state = 'succeeded', trigger = 'succeed', held = 0, position = NULL, due_at = NULL,
    lease_until = NULL, ended_at = max(?1, updated_at), updated_at = max(?1, updated_at),
    percent = 100, result = ?2, error = NULL, error_body = NULL, seq = seq + 1
WHERE id IN (SELECT value FROM carray(?3))
    AND state = 'running' AND fence = ?4 AND +token = ?5 AND cancel_at IS NULL AND awaited = 0

-- name: tallies
-- What the successes just settled add to the counts: summed here, at a third of the cost of
-- RETURNING each (2 µs a job instead of 6, 2026-11). Those with gates leave room there.
SELECT json_group_array(gates) FILTER (WHERE gates IS NOT NULL),
    json_group_array(n) FILTER (WHERE gates IS NOT NULL),
    queue, task, count(*), sum(started_at - queued_at), sum(ended_at - started_at)
FROM windlass_job WHERE id IN (SELECT value FROM carray(?))
GROUP BY queue, task

-- name: save
UPDATE windlass_job SET
    state = ?, trigger = ?, held = ?, waiting_for = ?, position = ?, due_at = ?, attempt = ?, fence = ?, token = ?,
    worker = ?, lease_until = ?, queued_at = ?, started_at = ?, first_started_at = ?, ended_at = ?,
    updated_at = ?, seq = ?, queued_seq = ?, started_seq = ?, said = ?, percent = ?, stage = ?,
    phase = ?, base_percent = ?, base_stage = ?, base_phase = ?, retry_count = ?, crash_count = ?,
    cancel_at = ?, cancel_by = ?, cancel_reason = ?, last_step = ?, error = ?, error_body = ?,
    result = ?, logged = ?, signals = ?, gate = ?
WHERE n = ?

-- name: insert_log
INSERT INTO windlass_log (n, seq, at, type, attempt, fence, said, facts, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: past_attempt
-- By its own index: without it every line that the job ever said would be read.
SELECT facts FROM windlass_log INDEXED BY windlass_log_attempt WHERE n = ? AND fence = ? AND type = 'attempt'

-- name: limited
SELECT key FROM windlass_record WHERE kind = ? AND (expires_at IS NULL OR expires_at > ?)

-- name: rated
SELECT key FROM windlass_record
WHERE kind = ? AND (expires_at IS NULL OR expires_at > ?) AND CAST(value AS TEXT) ->> 'starts' IS NOT NULL

-- name: beside_in_line
-- The first of all, and the last of each key: two probes, however many wait.
SELECT
    (SELECT min(position) FROM windlass_job INDEXED BY windlass_job_line
    WHERE state = 'queued' AND queue = ?1 AND priority = ?2),
    json_group_object(value, (SELECT max(position) FROM windlass_job INDEXED BY windlass_job_turn
    WHERE limit_key IS NOT NULL AND state = 'queued' AND queue = ?1 AND priority = ?2
        AND limit_key = value))
FROM carray(?3)

-- name: beside_at_gate
SELECT
    (SELECT min(position) FROM windlass_job INDEXED BY windlass_job_gate
    WHERE gate IS NOT NULL AND gate = ?1 AND priority = ?2),
    json_group_object(value, (SELECT max(position) FROM windlass_job INDEXED BY windlass_job_gate_turn
    WHERE limit_key IS NOT NULL AND gate IS NOT NULL AND gate NOT GLOB 'key:*'
        AND gate = ?1 AND priority = ?2 AND limit_key = value))
FROM carray(?3)

-- name: beside_at_key
-- At the gate of a key there is no other.
SELECT
    (SELECT min(position) FROM windlass_job INDEXED BY windlass_job_gate
    WHERE gate IS NOT NULL AND gate = ?1 AND priority = ?2),
    json_group_object(value, (SELECT max(position) FROM windlass_job INDEXED BY windlass_job_gate
    WHERE gate IS NOT NULL AND gate = ?1 AND priority = ?2))
FROM carray(?3)

-- name: judge
-- What the passes of some jobs are worth now: core's `holds` and `refreshed`.
UPDATE windlass_pass AS pass SET
    held = CASE WHEN job.fence = pass.fence THEN job.state = 'running'
        WHEN job.fence < pass.fence THEN job.state = 'queued' OR job.gate IS NOT NULL
        ELSE 0 END,
    started_at = coalesce(pass.started_at, iif(job.fence = pass.fence, job.started_at, NULL))
FROM windlass_job AS job
WHERE pass.n IN (SELECT value FROM carray(?)) AND job.n = pass.n

-- name: note_starts
-- Of jobs that were just claimed: the slots that they hold stay as they are.
UPDATE windlass_pass SET started_at = ?2
WHERE n IN (SELECT value FROM carray(?1)) AND fence = ?3 AND started_at IS NULL

-- name: passed_by
-- The jobs with a pass of a limit: at the gate of its name, and at those between two names.
SELECT n FROM windlass_pass WHERE gate = ?1
UNION SELECT n FROM windlass_pass WHERE gate > ?2 AND gate < ?3

-- name: gates_of_limit
-- Those that have counted passes, or gave some, in the same way.
SELECT gate FROM windlass_gate WHERE gate = ?1
UNION SELECT gate FROM windlass_gate WHERE gate > ?2 AND gate < ?3
UNION SELECT gate FROM windlass_pass WHERE gate = ?1
UNION SELECT gate FROM windlass_pass WHERE gate > ?2 AND gate < ?3

-- name: leave
-- The passes of jobs that left, but those whose start counts, at the gates given last.
DELETE FROM windlass_pass
WHERE n IN (SELECT value FROM carray(?1))
    AND (started_at IS NULL OR gate NOT IN (SELECT value FROM json_each(?2)))
    AND NOT (
        SELECT CASE WHEN job.fence = windlass_pass.fence THEN job.state = 'running'
            WHEN job.fence < windlass_pass.fence THEN job.state = 'queued' OR job.gate IS NOT NULL
            ELSE 0 END
        FROM windlass_job AS job WHERE job.n = windlass_pass.n)

-- name: leave_for_good
-- The same, of jobs that have ended.
DELETE FROM windlass_pass
WHERE n IN (SELECT value FROM carray(?1))
    AND (started_at IS NULL OR gate NOT IN (SELECT value FROM json_each(?2)))

-- name: give_up_slots
-- Of such jobs, those passes that stay because their start counts. The pluses keep the search on the
-- jobs: at a gate there may be many starts.
UPDATE windlass_pass SET held = 0
WHERE n IN (SELECT value FROM carray(?1))
    AND +started_at IS NOT NULL AND +gate IN (SELECT value FROM json_each(?2)) AND held = 1

-- name: drop_starts
-- Those that held a slot once, and whose start counts no more: core's `room`.
DELETE FROM windlass_pass INDEXED BY windlass_pass_start
WHERE gate = ? AND started_at <= ? AND held = 0

-- name: count_passes
-- Of the gates that somebody waits at, or has left a start: how many hold a slot, and how many may yet start or did so
-- after an instant. One row: each step gives the interpreter away, and has to wait for it.
SELECT json_group_array(json_array(name.value, coalesce(gate.held, 0), coalesce(gate.passes, 0) - (
    SELECT count(*) FROM windlass_pass INDEXED BY windlass_pass_start
    WHERE gate = name.value AND started_at <= ?2
)))
FROM carray(?1) AS name LEFT JOIN windlass_gate AS gate ON gate.gate = name.value
WHERE gate.passes > gate.held OR EXISTS (
    SELECT 1 FROM windlass_job INDEXED BY windlass_job_gate
    WHERE gate IS NOT NULL AND gate = name.value
)

-- name: next_start
-- The last start but so many (?3) of those that count: what has not started yet may do so at any
-- moment, so now. A start may lie ahead: the clock was set back since.
SELECT coalesce(
    (
        SELECT started_at FROM windlass_pass INDEXED BY windlass_pass_start
        WHERE gate = ?1 AND started_at > ?2 ORDER BY started_at DESC LIMIT 1 OFFSET ?3 - 1
    ),
    min(?2, (
        SELECT started_at FROM windlass_pass INDEXED BY windlass_pass_start
        WHERE gate = ?1 AND started_at > ?4 ORDER BY started_at LIMIT 1 OFFSET ?5
    )),
    ?2
)

-- name: waiting_at_gate
SELECT count(*) FROM (
    SELECT 1 FROM windlass_job INDEXED BY windlass_job_gate
    WHERE gate IS NOT NULL AND gate = ? LIMIT ?
)

-- name: gates
SELECT gate, held, look_at FROM windlass_gate WHERE gate IN (SELECT value FROM carray(?))

-- name: holders
-- The longest first. For people: it reads all passes, so that jobs need not be noted by their gates.
SELECT gate, id FROM (
    SELECT pass.gate, job.id,
        row_number() OVER (PARTITION BY pass.gate ORDER BY pass.at, job.id) AS place
    FROM windlass_pass AS pass JOIN windlass_job AS job ON job.n = pass.n
    WHERE pass.gate IN (SELECT value FROM carray(?)) AND pass.held = 1
)
WHERE place <= ? ORDER BY gate, place

-- name: grant_passes
-- To jobs that wait at a gate, for their next attempt.
INSERT INTO windlass_pass (n, gate, fence, at, held)
SELECT n, gate, fence + 1, ?, 1 FROM windlass_job WHERE n IN (SELECT value FROM carray(?))
ON CONFLICT (n, gate, fence) DO NOTHING

-- name: grant_again
INSERT INTO windlass_pass (n, gate, fence, at, held)
SELECT n, gate, fence + 1, ?, 1 FROM windlass_job WHERE n IN (SELECT value FROM carray(?))
ON CONFLICT (n, gate, fence) DO UPDATE SET at = excluded.at, started_at = NULL, held = 1

-- name: add_passes
-- To the counts of gates: [gate, passes, held] of each.
INSERT INTO windlass_gate (gate, passes, held)
SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?) WHERE true
ON CONFLICT (gate) DO UPDATE SET passes = passes + excluded.passes, held = held + excluded.held

-- name: worth
-- What the passes of some jobs add to the counts of their gates.
SELECT json_group_array(json_array(gate, passes, held)) FROM (
    SELECT gate, count(*) AS passes, sum(held) AS held FROM windlass_pass
    WHERE n IN (SELECT value FROM carray(?)) GROUP BY gate
)

-- name: count_anew
-- It reads all passes, once for all of these gates.
INSERT INTO windlass_gate (gate, passes, held)
SELECT name.value, coalesce(there.passes, 0), coalesce(there.held, 0)
FROM carray(?1) AS name LEFT JOIN (
    SELECT gate, count(*) AS passes, sum(held) AS held FROM windlass_pass
    WHERE gate IN (SELECT value FROM carray(?1)) GROUP BY gate
) AS there ON there.gate = name.value
WHERE true
ON CONFLICT (gate) DO UPDATE SET passes = excluded.passes, held = excluded.held

-- name: miscounted
-- The gates whose counts are not what there is.
SELECT gate FROM (
    SELECT gate, passes, held FROM windlass_gate
    UNION ALL SELECT gate, -count(*), -sum(held) FROM windlass_pass GROUP BY gate
)
GROUP BY gate HAVING sum(passes) <> 0 OR sum(held) <> 0

-- name: forget_idle
DELETE FROM windlass_gate
WHERE gate IN (SELECT value FROM carray(?)) AND passes = 0 AND look_at IS NULL

-- name: enter_line
-- Through the last gate: core's `decide.let_in`, with the places that were given.
UPDATE windlass_job AS job SET
    state = 'queued', gate = NULL, position = given.position,
    queued_at = max(?1, updated_at), updated_at = max(?1, updated_at), started_at = NULL,
    seq = seq + 1, queued_seq = seq + 1
FROM (SELECT CAST(key AS INTEGER) AS n, value AS position FROM json_each(?2)) AS given
WHERE job.n = given.n

-- name: go_on
-- To the next gate.
UPDATE windlass_job AS job SET gate = ?1, position = given.position
FROM (SELECT CAST(key AS INTEGER) AS n, value AS position FROM json_each(?2)) AS given
WHERE job.n = given.n

-- name: drop_idle_passes
-- Starts that count no more, at gates that nobody came to since (core's `gate.room`).
DELETE FROM windlass_pass WHERE (n, gate, fence) IN (
    SELECT pass.n, pass.gate, pass.fence FROM windlass_pass AS pass
    LEFT JOIN windlass_record AS record
        ON record.kind = :kind
        AND record.key = substr(pass.gate, 1, instr(pass.gate || char(31), char(31)) - 1)
    WHERE pass.held = 0
        AND pass.started_at + round(coalesce(CAST(record.value AS TEXT) ->> 'period', 0) * 1000000) <= :now
    LIMIT :limit
)
RETURNING gate

-- name: able
-- The first before each gate; one that expired there is stepped over until the sweeper has ended it.
-- One row, as above.
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

-- name: ids_of
SELECT id FROM windlass_job WHERE n IN (SELECT value FROM carray(?))

-- name: waited_at
-- At which of these gates somebody waits.
SELECT value FROM carray(?) WHERE EXISTS (
    SELECT 1 FROM windlass_job INDEXED BY windlass_job_gate
    WHERE gate IS NOT NULL AND gate = value
)

-- name: next_gate
-- The gates that somebody waits at, by hopping from one to the next.
SELECT gate FROM windlass_job INDEXED BY windlass_job_gate
WHERE gate IS NOT NULL AND gate > ? AND gate < ? ORDER BY gate LIMIT 1

-- name: look_at_gate
INSERT INTO windlass_gate (gate, look_at) VALUES (?, ?)
ON CONFLICT (gate) DO UPDATE SET look_at = excluded.look_at

-- name: look_no_more
UPDATE windlass_gate SET look_at = NULL
WHERE gate IN (SELECT value FROM carray(?)) AND look_at IS NOT NULL

-- name: heads
-- The first at each gate that is to be looked at.
SELECT job.* FROM windlass_gate AS wanted INDEXED BY windlass_gate_look
JOIN windlass_job AS job ON job.n = (
    SELECT n FROM windlass_job INDEXED BY windlass_job_gate
    WHERE gate IS NOT NULL AND gate = wanted.gate ORDER BY priority DESC, position, id LIMIT 1
)
WHERE wanted.look_at <= ?
ORDER BY wanted.gate
LIMIT ?

-- name: parents
SELECT n, id, owner, state FROM windlass_job WHERE id IN (SELECT value FROM carray(?))

-- name: owner_of
SELECT owner FROM windlass_job WHERE n = ?

-- name: next_place
SELECT coalesce(max(place), -1) + 1 FROM windlass_edge WHERE child = ?

-- name: put_edge
-- A job that is suspended again may wait for the same one as before.
INSERT INTO windlass_edge (child, parent, place, parent_id, open) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (child, parent) DO UPDATE SET open = excluded.open

-- name: mark_awaited
UPDATE windlass_job SET awaited = 1 WHERE n = ?

-- name: dependents
SELECT job.id FROM windlass_edge AS edge JOIN windlass_job AS job ON job.n = edge.child
WHERE edge.parent = ? AND edge.open = 1 ORDER BY edge.child

-- name: tell_dependents
UPDATE windlass_edge SET open = 0 WHERE parent = ? AND open = 1

-- name: wait_no_more
UPDATE windlass_edge SET open = 0 WHERE child = ? AND open = 1

-- name: parents_of
SELECT edge.parent_id FROM windlass_edge AS edge
WHERE edge.child = (SELECT n FROM windlass_job WHERE id = ?) ORDER BY edge.place LIMIT ?

-- name: children_of
SELECT job.id FROM windlass_edge AS edge JOIN windlass_job AS job ON job.n = edge.child
WHERE edge.parent = (SELECT n FROM windlass_job WHERE id = ?) ORDER BY edge.child LIMIT ?

-- name: flow
SELECT state, count(*), sum(percent), min(created_at), max(ended_at)
FROM windlass_job INDEXED BY windlass_job_flow
WHERE flow_id IS NOT NULL AND flow_id = ?1 AND retried_as IS NULL
    AND (?2 IS NULL OR owner = ?2) AND (?3 IS NULL OR team = ?3)
GROUP BY state

-- name: flow_before
-- Flows are found by hopping from one to the next.
SELECT flow_id FROM windlass_job INDEXED BY windlass_job_flow
WHERE flow_id IS NOT NULL AND flow_id < ? ORDER BY flow_id DESC LIMIT 1

-- name: newest_of_flow
SELECT state, count(*), sum(percent), min(created_at), max(ended_at) FROM (
    SELECT state, percent, created_at, ended_at, retried_as, owner, team
    FROM windlass_job INDEXED BY windlass_job_flow
    WHERE flow_id IS NOT NULL AND flow_id = ?1 ORDER BY n DESC LIMIT ?2
)
WHERE retried_as IS NULL AND (?3 IS NULL OR owner = ?3) AND (?4 IS NULL OR team = ?4)
GROUP BY state

-- name: beyond_newest_of_flow
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
-- Two ranges, each by its own index; a job that is both due and expired comes once.
SELECT job.*, min(since) FROM (
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
-- Reads all running jobs; they are as many as there are slots, not as many as there are jobs.
SELECT * FROM windlass_job INDEXED BY windlass_job_running
WHERE state = 'running' AND lease_until <= ?
ORDER BY lease_until, n
LIMIT ?

-- name: past_keeping
SELECT n, ended_at FROM windlass_job INDEXED BY windlass_job_ended
WHERE state = ? AND ended_at IS NOT NULL AND ended_at <= ?
ORDER BY ended_at, n
LIMIT ?

-- name: logs_past_keeping
SELECT n FROM windlass_job INDEXED BY windlass_job_logged
WHERE logged = 1 AND ended_at IS NOT NULL AND ended_at <= ?
ORDER BY ended_at, n
LIMIT ?

-- name: forget_log
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

-- name: said
SELECT seq, at, type, attempt, fence, said, facts, body FROM windlass_log
WHERE n = ? AND seq > ? AND type <> 'attempt'
ORDER BY seq LIMIT ?

-- name: past_attempts
SELECT seq, at, type, attempt, fence, said, facts, body FROM windlass_log INDEXED BY windlass_log_attempt
WHERE n = ? AND seq > ? AND type = 'attempt'
ORDER BY fence LIMIT ?

-- name: stretch
-- The jobs a page looks at: a bounded stretch, newest first, so that a page costs the same however
-- many jobs there are. It may then be short, and its cursor leads on.
SELECT n FROM windlass_job WHERE n < ? ORDER BY n DESC LIMIT ?

-- name: stretch_of_trouble
-- The same among failed and canceled jobs: they are rare, and an index holds them together.
SELECT n FROM windlass_job INDEXED BY windlass_job_trouble
WHERE state IN ('failed', 'canceled') AND n < ? ORDER BY n DESC LIMIT ?

-- name: stretch_of_lineage
-- The same among the retries of one first job.
SELECT n FROM windlass_job INDEXED BY windlass_job_lineage
WHERE root_id IS NOT NULL AND n < ?1 AND root_id = ?3 ORDER BY n DESC LIMIT ?2

-- name: stretch_of_flow
SELECT n FROM windlass_job INDEXED BY windlass_job_flow
WHERE flow_id IS NOT NULL AND n < ?1 AND flow_id = ?3 ORDER BY n DESC LIMIT ?2

-- name: matching
SELECT n FROM windlass_job
WHERE n IN (SELECT value FROM json_each(:stretch))
    AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
    AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
    AND (:tasks IS NULL OR task IN (SELECT value FROM json_each(:tasks)))
    AND (:tags IS NULL OR NOT EXISTS (
        SELECT 1 FROM json_each(:tags) AS wanted
        WHERE wanted.value NOT IN (SELECT value FROM json_each(coalesce(tags, '[]')))))
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
-- The last first. Not the payload, which may be large.
SELECT id, task, queue, ended_at, error, error_body, owner, team
FROM windlass_job INDEXED BY windlass_job_ended
WHERE state = 'failed' AND ended_at IS NOT NULL AND ended_at >= ?
ORDER BY ended_at DESC, n DESC
LIMIT ?

-- name: next_queue
-- The queues that have a line, by hopping from one to the next.
SELECT queue FROM windlass_job INDEXED BY windlass_job_line
WHERE state = 'queued' AND queue > ? ORDER BY queue LIMIT 1

-- name: count_line
SELECT count(*) FROM (
    SELECT 1 FROM windlass_job INDEXED BY windlass_job_line
    WHERE state = 'queued' AND queue = ? LIMIT ?
)

-- name: oldest_in_line
-- Exact while the line is short; beyond the cap, the oldest of its first jobs.
SELECT min(queued_at) FROM (
    SELECT queued_at FROM windlass_job INDEXED BY windlass_job_line
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

-- name: paused
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

-- name: delete_dead_records
DELETE FROM windlass_record WHERE expires_at IS NOT NULL AND expires_at <= ?
