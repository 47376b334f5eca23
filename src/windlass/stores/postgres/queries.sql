-- Sessions keep their plans (see connection.py). A plan made while a table was empty would read all
-- of it later, when it is large. So each statement allows only one plan. It reads a growing table
-- by a key, or in the order of an index up to a limit. A read by key is inside a LATERAL with a
-- LIMIT, or has the form `key = ANY (ARRAY[value])`. The planner cannot reorder these like a join.
--
-- Placeholders are made in queries.py from the table in `stores/sql/job_columns.py`: column lists
-- such as `{columns}`, and array parameters: `{queue[]}` has the values of `queue` of new jobs.

-- name: insert_jobs
-- Inserts the jobs of an enqueue in one statement: rows, queue positions, and waiting rows. The
-- rule is core's `initial_state`; the model test compares the two. A column with the same non-NULL
-- value in all jobs has one element (see `rows.insert_columns`). A job whose id or request id
-- exists is skipped and missing in the result. With limit keys the id is looked up before, because
-- a skipped job must not take a position. No id occurs twice. Numbers follow the order of the call.
-- If a job has a gate, the caller must admit jobs afterwards and set $2; otherwise nothing is
-- stored.
WITH clock AS MATERIALIZED (SELECT windlass_now($1) AS now),
new AS MATERIALIZED (
    SELECT nextval('windlass_serial') AS n, clock.now,
        coalesce(given.run_at, clock.now + coalesce(given.delay, ({delay[]})[1])) AS due,
        coalesce(given.expires_at, clock.now + given.expires_in) AS expires,
        given.root_id, given.last_step, given.waiting_for, {new_values}
    FROM clock, unnest({insert_arrays}) AS given ({insert_names})
),
limits AS MATERIALIZED (
    SELECT array_agg(record.key) AS names FROM (
        SELECT DISTINCT concat(prefix, name) AS name FROM (
            SELECT 'queue:' AS prefix, name FROM unnest({queue[]}) AS name
            UNION ALL
            SELECT unnest(ARRAY['key:', 'task:']), name FROM unnest({task[]}) AS name
        ) AS given
    ) AS limit_name, LATERAL (
        SELECT key FROM windlass_record AS record
        WHERE record.kind = 'limit' AND record.key = limit_name.name LIMIT 1
    ) AS record
),
gated AS MATERIALIZED (
    SELECT scheduled.*, CASE WHEN NOT delayed THEN gates[1] END AS gate,
        CASE WHEN NOT delayed AND gates IS NULL THEN queue END AS target_queue
    FROM (
        SELECT new.*, held OR due > now OR waiting_for IS NOT NULL AS delayed,
            CASE WHEN limits.names IS NOT NULL THEN nullif(array_remove(ARRAY[
                CASE WHEN 'key:' || task = ANY (limits.names)
                    THEN 'key:' || task || chr(31) || limit_key END,
                CASE WHEN 'task:' || task = ANY (limits.names) THEN 'task:' || task END,
                CASE WHEN 'queue:' || queue = ANY (limits.names) THEN 'queue:' || queue END
            ], NULL), '{}') END AS gates
        FROM new, limits
    ) AS scheduled
    WHERE cardinality({limit_key[]}) = 0
        OR (SELECT n FROM windlass_job AS old WHERE old.id = scheduled.id LIMIT 1) IS NULL
),
-- The first position of each queue or gate that a job with a limit key enters. `first_unkeyed` is
-- the first new job without a key, which may precede it: positions of keys may be higher than the
-- serial.
targets AS MATERIALIZED (
    SELECT gate, target_queue, priority, min(n) AS n,
        min(n) FILTER (WHERE limit_key IS NULL) AS first_unkeyed, CASE WHEN gate IS NULL THEN (
            SELECT old.position FROM windlass_queued AS old
            WHERE old.queue = gated.target_queue AND old.priority = gated.priority
            ORDER BY old.queue, old.priority DESC, old.position, old.id LIMIT 1
        ) ELSE (
            SELECT old.position FROM windlass_gate_queue AS old
            WHERE old.gate = gated.gate AND old.priority = gated.priority
            ORDER BY old.gate, old.priority DESC, old.position, old.id LIMIT 1
        ) END AS first
    FROM gated WHERE NOT delayed
    GROUP BY gate, target_queue, priority HAVING count(limit_key) > 0
),
positioned AS (
    SELECT gated.*, 0 AS rank, NULL::bigint AS last, NULL::bigint AS first_position,
        CASE WHEN NOT delayed THEN n END AS position
    FROM gated WHERE limit_key IS NULL OR delayed
    UNION ALL
    SELECT with_first.*, 2 * (rank - 1)
        + first_value(first_position) OVER (
            PARTITION BY gate, target_queue, priority, limit_key ORDER BY n)
    FROM (
        SELECT with_last.*, CASE WHEN rank = 1 THEN (
            SELECT CASE
                WHEN targets.first IS NULL THEN targets.n + (with_last.n > targets.n)::integer
                WHEN with_last.last IS NULL THEN 1 + least(targets.first, CASE
                    WHEN targets.first_unkeyed < with_last.n THEN targets.first_unkeyed END)
                ELSE greatest(targets.first, with_last.last + 2) END
            FROM targets WHERE targets.priority = with_last.priority
                AND targets.target_queue IS NOT DISTINCT FROM with_last.target_queue
                AND targets.gate IS NOT DISTINCT FROM with_last.gate
        ) END AS first_position
        FROM (
            SELECT ranked.*, CASE WHEN rank > 1 THEN NULL WHEN gate IS NULL THEN (
                SELECT old.position FROM windlass_queued AS old
                WHERE windlass_limit_key_hash(old.queue, old.priority, old.limit_key)
                        = windlass_limit_key_hash(
                            ranked.target_queue, ranked.priority, ranked.limit_key)
                    AND old.limit_key = ranked.limit_key AND old.limit_key IS NOT NULL
                    AND old.queue IS NOT DISTINCT FROM ranked.target_queue
                    AND old.priority IS NOT DISTINCT FROM ranked.priority
                ORDER BY old.position DESC LIMIT 1
            ) ELSE (
                SELECT old.position FROM windlass_gate_queue AS old
                WHERE windlass_limit_key_hash(old.gate, old.priority, old.limit_key)
                        = windlass_limit_key_hash(ranked.gate, ranked.priority, ranked.limit_key)
                    AND old.limit_key = ranked.limit_key AND old.limit_key IS NOT NULL
                    AND old.gate IS NOT DISTINCT FROM ranked.gate
                    AND old.priority IS NOT DISTINCT FROM ranked.priority
                ORDER BY old.position DESC LIMIT 1
            ) END AS last
            FROM (
                SELECT gated.*, row_number() OVER (
                    PARTITION BY gate, target_queue, priority, limit_key ORDER BY n
                ) AS rank FROM gated WHERE limit_key IS NOT NULL AND NOT delayed
            ) AS ranked OFFSET 0
        ) AS with_last
    ) AS with_first
),
job AS (
    INSERT INTO windlass_job (
        {request_columns}, created_at, expires_at, state, trigger, position, due_at, queued_at,
        updated_at, seq, queued_seq, last_step, n, root_id, waiting_for, gates, gate
    )
    SELECT
        {request_columns}, now, expires,
        CASE WHEN target_queue IS NULL THEN 'created' ELSE 'queued' END, 'enqueue',
        position, CASE WHEN due > now THEN due END,
        CASE WHEN target_queue IS NOT NULL THEN now END, now,
        CASE WHEN target_queue IS NULL THEN 1 ELSE 2 END,
        CASE WHEN target_queue IS NULL THEN 0 ELSE 2 END,
        last_step, n, root_id, coalesce(waiting_for, 0), gates, gate
    FROM positioned WHERE $2 OR NOT EXISTS (SELECT FROM gated WHERE gates IS NOT NULL)
    ORDER BY n
    ON CONFLICT DO NOTHING
    RETURNING id, n, queue, priority, state, held, position, queued_at, due_at, expires_at,
        waiting_for, limit_key, gates, gate
),
queued AS (
    INSERT INTO windlass_queued (queue, priority, position, id, queued_at, expires_at, limit_key)
    SELECT queue, priority, position, id, queued_at, expires_at, limit_key
    FROM job WHERE state = 'queued'
),
gate_queue AS (
    INSERT INTO windlass_gate_queue (
        gate, priority, position, id, n, queue, state, expires_at, limit_key)
    SELECT gate, priority, position, id, n, queue, state, expires_at, limit_key
    FROM job WHERE gate IS NOT NULL
),
waiting AS (
    INSERT INTO windlass_waiting (queue, state, n, at)
    SELECT queue, state, n,
        least(CASE WHEN NOT held AND waiting_for = 0 THEN due_at END, expires_at)
    FROM job WHERE state = 'created' AND gate IS NULL OR expires_at IS NOT NULL
)
SELECT job.id, job.n, clock.now, job.position, job.gates FROM job, clock
UNION ALL
SELECT NULL, NULL, NULL, NULL, gates FROM (
    SELECT gates FROM gated WHERE NOT $2 AND gates IS NOT NULL LIMIT 1
) AS refused

-- name: insert_uniform
-- The same for jobs that are claimable immediately, have no keys, and differ in their arguments only:
-- the usual batch. If one of the ids exists, the statement fails, and `insert_jobs` handles the
-- batch. Returns the numbers in the order of the call. If a limit applies, stores nothing.
WITH job AS (
    INSERT INTO windlass_job (
        id, payload, n, created_at, state, trigger, position, queued_at, updated_at, seq,
        queued_seq, {uniform_columns}
    )
    SELECT
        id, payload, n, now, 'queued', 'enqueue', n, now, now, 2,
        2, {uniform_values}
    FROM (
        SELECT nextval('windlass_serial') AS n, clock.now, given.id, given.payload
        FROM windlass_now($1) AS clock (now), unnest($2::uuid[], $3::bytea[]) AS given (id, payload)
        OFFSET 0
    ) AS new
    WHERE NOT EXISTS (
        SELECT FROM windlass_record AS record
        WHERE record.kind = 'limit' AND record.key = ANY (ARRAY['task:' || $5, 'queue:' || $4])
    )
    RETURNING id, n, created_at
),
queued AS (
    INSERT INTO windlass_queued (queue, priority, position, id, queued_at)
    SELECT $4, $6, n, id, created_at FROM job
)
SELECT array_agg(n), min(created_at) FROM job

-- name: insert_keys
INSERT INTO windlass_unique_key (owner, task, unique_key, n)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[])

-- name: unavailable_keys
-- Locks keys until the commit, so that later lookups stay valid until then; constraints back this
-- up. Never waits: an open transaction of a caller may hold one key of a hundred. Returns the keys
-- that it could not lock.
SELECT key FROM unnest($1::bigint[]) AS requested (key) WHERE NOT pg_try_advisory_xact_lock(key)

-- name: lock_records
-- Advisory locks: a record that does not exist has no row to lock. All callers sort the keys.
SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) AS requested (key)

-- name: now
SELECT windlass_now($1)

-- name: get_jobs
SELECT {columns} FROM windlass_job WHERE id = ANY ($1::uuid[])

-- name: jobs_by_request
SELECT job.* FROM unnest($1::text[], $2::text[]) AS requested (owner, request_id), LATERAL (
    SELECT {columns} FROM windlass_job AS job
    WHERE job.owner = requested.owner AND job.request_id = requested.request_id
        AND job.request_id IS NOT NULL
    LIMIT 1
) AS job

-- name: active_by_key
SELECT job.* FROM unnest($1::text[], $2::text[], $3::text[]) AS requested (owner, task, unique_key),
LATERAL (
    SELECT n FROM windlass_unique_key AS key
    WHERE key.owner = requested.owner AND key.task = requested.task
        AND key.unique_key = requested.unique_key
    LIMIT 1
) AS key,
LATERAL (SELECT {columns} FROM windlass_job AS job WHERE job.n = key.n LIMIT 1) AS job

-- name: active_of_lineage
SELECT {columns} FROM windlass_job
WHERE root_id = ANY ($1::uuid[]) AND root_id IS NOT NULL
    AND state IN ('created', 'queued', 'running', 'retrying')

-- name: set_retried_as
UPDATE windlass_job SET retried_as = $2 WHERE n = $1

-- name: copy_steps
INSERT INTO windlass_step (n, step, value, attempt, at)
SELECT $1::bigint, step, value, attempt, at FROM windlass_step WHERE n = $2::bigint

-- name: claim
-- One range scan per queue, or per part of it (see claim_cursor.py). The rule is core's `claim`;
-- the model test compares the two. Materialized: a plan that repeats the scan would take more than
-- the limit. Skips rows that another claim is taking, and expired jobs, which the sweeper ends.
-- Locks job rows by id, like all transactions. Deletes queue rows whose job has ended meanwhile. A
-- repeated claim returns the jobs of its lease and takes no more. If the first call is still
-- running, the repeat waits at the key of the lease row. It then finds another version of the row
-- than in its snapshot, fails, and is retried.
--
-- A job without history and special options is returned in a few columns instead of all (see
-- `rows.claimed`). Its only events are created, queued and started. Its position is its number,
-- unless it has a limit key or a gate. Starts are recorded for gates with a rate; no gate is
-- locked.
WITH clock AS MATERIALIZED (SELECT windlass_now($1) AS now),
held AS MATERIALIZED (SELECT jobs, xmin AS version FROM windlass_lease WHERE token = $2),
repeated AS MATERIALIZED (
    SELECT job.n FROM held, unnest(held.jobs) AS each (n), LATERAL (
        SELECT n, state, token FROM windlass_job AS job WHERE job.n = each.n LIMIT 1
    ) AS job WHERE job.state = 'running' AND job.token = $2
),
requested AS MATERIALIZED (
    SELECT requested.* FROM clock, unnest($6::text[], $7::bigint[]) AS requested (queue, max_jobs)
    WHERE NOT EXISTS (SELECT FROM repeated) AND NOT EXISTS (
        SELECT FROM windlass_record AS record
        WHERE record.kind = $8 AND record.key = requested.queue
            AND (record.expires_at IS NULL OR record.expires_at > clock.now)
    )
),
dequeued AS (
    DELETE FROM windlass_queued WHERE ctid = ANY (ARRAY(
        SELECT queued.ctid FROM clock, requested, LATERAL (
            SELECT queued.ctid
            FROM unnest($9::text[], $10::integer[], $11::integer[], $12::bigint[])
                AS claim_range (queue, max_priority, min_priority, after_position), LATERAL (
                SELECT ctid FROM windlass_queued
                WHERE queue = requested.queue AND priority <= claim_range.max_priority
                    AND priority >= claim_range.min_priority
                    AND position > claim_range.after_position
                    AND (expires_at IS NULL OR expires_at > clock.now)
                ORDER BY queue, priority DESC, position, id
                LIMIT requested.max_jobs
                FOR UPDATE SKIP LOCKED
            ) AS queued
            WHERE claim_range.queue = requested.queue
            LIMIT requested.max_jobs
        ) AS queued
    ))
    RETURNING id, position, CASE WHEN expires_at IS NOT NULL THEN 'queued' END AS waiting_state
),
taken AS MATERIALIZED (SELECT * FROM dequeued ORDER BY id),
job AS (
    UPDATE windlass_job AS job SET
        state = 'running', trigger = 'claim', attempt = job.attempt + 1, fence = job.fence + 1,
        token = $2, worker = $3,
        lease_until = greatest(clock.now, job.updated_at) + coalesce($4, job.lease, $5),
        started_at = greatest(clock.now, job.updated_at),
        first_started_at = coalesce(job.first_started_at, greatest(clock.now, job.updated_at)),
        updated_at = greatest(clock.now, job.updated_at),
        seq = job.seq + 1, started_seq = job.seq + 1, last_record = 0
    FROM clock, taken
    WHERE job.id = ANY (ARRAY[taken.id]) AND job.state = 'queued'
        AND job.position = taken.position
    RETURNING job.id, job.n, job.queue, job.task, job.created_at, job.started_at, job.lease_until,
        job.payload, job.priority, job.gates, job.limit_key,
        CASE WHEN job.position <> job.n THEN job.position END AS position,
        CASE WHEN job.queued_at <> job.created_at THEN job.queued_at END AS queued_at,
        CASE WHEN job.seq <> 3 OR job.owner <> '' OR job.on_parent <> 'cancel'
            OR num_nonnulls(job.expires_at, job.root_id, {unclaimed_columns}) > 0
            OR job.position <> job.n AND num_nonnulls(job.limit_key, job.gates) = 0
        THEN ROW ({job.columns}) END AS full_row, taken.waiting_state
),
lease AS (
    INSERT INTO windlass_lease AS lease (token, active, jobs)
    SELECT $2, count(*), array_agg(n) FROM job HAVING count(*) > 0
    ON CONFLICT ON CONSTRAINT windlass_lease_key DO UPDATE SET
        active = excluded.active,
        jobs = CASE WHEN lease.xmin = (SELECT version FROM held) THEN excluded.jobs
            ELSE windlass_raise_claim_conflict() END
),
rate_limited AS MATERIALIZED (
    SELECT array_agg(given.gate) AS gates FROM (
        SELECT DISTINCT each.gate FROM (
            SELECT DISTINCT gates FROM job
            WHERE gates IS NOT NULL
                AND (
                    SELECT gate FROM windlass_gate WHERE rate_limited ORDER BY gate DESC LIMIT 1
                ) IS NOT NULL
        ) AS distinct_gates, unnest(distinct_gates.gates) AS each (gate)
    ) AS given, LATERAL (
        SELECT FROM windlass_gate AS gate WHERE gate.gate = given.gate AND gate.rate_limited LIMIT 1
    ) AS rate_limited
),
-- A job has three gates at most; to unnest each one's costs more than all the rest of this.
recorded_starts AS (
    INSERT INTO windlass_start (gate, at, jobs)
    SELECT gate, started_at, array_agg(n) FROM (
        SELECT gates[1] AS gate, n, started_at FROM job
        WHERE (SELECT gates FROM rate_limited) IS NOT NULL
        UNION ALL
        SELECT gates[2], n, started_at FROM job
        WHERE (SELECT gates FROM rate_limited) IS NOT NULL
        UNION ALL
        SELECT gates[3], n, started_at FROM job
        WHERE (SELECT gates FROM rate_limited) IS NOT NULL
    ) AS job_gates
    WHERE gate = ANY ((SELECT gates FROM rate_limited)::text[]) GROUP BY gate, started_at
),
started AS (
    DELETE FROM windlass_waiting AS waiting USING job
    WHERE job.waiting_state IS NOT NULL AND waiting.queue = ANY (ARRAY[job.queue])
        AND waiting.state = ANY (ARRAY[job.waiting_state]) AND waiting.n = ANY (ARRAY[job.n])
)
SELECT id, n, queue, task, created_at, started_at, lease_until, payload, priority, full_row,
    position, queued_at, limit_key, gates FROM job
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, ROW (job.*),
    NULL, NULL, NULL, NULL FROM repeated,
    LATERAL (SELECT {columns} FROM windlass_job AS job WHERE job.n = repeated.n LIMIT 1) AS job

-- name: claimable
-- Whether a claim that returned nothing could find a job now. Its snapshot may be older: other
-- claims took the jobs in it, and newer jobs were committed since.
WITH clock AS MATERIALIZED (SELECT windlass_now($1) AS now)
SELECT EXISTS (
    SELECT FROM clock, unnest($3::text[], $4::integer[], $5::integer[], $6::bigint[])
        AS claim_range (queue, max_priority, min_priority, after_position), LATERAL (
        SELECT FROM windlass_queued
        WHERE queue = claim_range.queue AND priority <= claim_range.max_priority
            AND priority >= claim_range.min_priority AND position > claim_range.after_position
            AND (expires_at IS NULL OR expires_at > clock.now)
        ORDER BY queue, priority DESC, position, id
        LIMIT 1
    ) AS queued
    WHERE NOT EXISTS (
        SELECT FROM windlass_record AS record
        WHERE record.kind = $2 AND record.key = claim_range.queue
            AND (record.expires_at IS NULL OR record.expires_at > clock.now)
    )
)

-- name: dead_queued_rows
SELECT pg_stat_get_dead_tuples('windlass_queued'::regclass)

-- name: extend
-- Never shortens a lease: a slow call must not undo a later one. Never waits: one job locked by an
-- open transaction must not cost a worker all its leases.
WITH clock AS MATERIALIZED (SELECT windlass_now($1) AS now),
unlocked AS MATERIALIZED (
    SELECT job.n FROM unnest($3::uuid[], $4::bigint[], $5::uuid[]) AS lease (id, fence, token),
    LATERAL (
        SELECT n FROM windlass_job AS job
        WHERE job.id = lease.id AND job.state = 'running' AND job.fence = lease.fence
            AND job.token = lease.token
        LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
    ) AS job
)
UPDATE windlass_job AS job
SET lease_until = greatest(job.lease_until, clock.now + $2)
FROM clock, unlocked WHERE job.n = ANY (ARRAY[unlocked.n])
RETURNING job.id, job.fence, job.token, job.lease_until, job.cancel_at IS NOT NULL

-- name: locked_leases
-- Of the leases that were not extended: those that are valid, but locked by another transaction.
SELECT job.* FROM unnest($1::uuid[], $2::bigint[], $3::uuid[]) AS lease (id, fence, token),
LATERAL (
    SELECT id, job.fence, job.token, lease_until, cancel_at IS NOT NULL FROM windlass_job AS job
    WHERE job.id = lease.id AND job.state = 'running' AND job.fence = lease.fence
        AND job.token = lease.token
    LIMIT 1
) AS job

-- name: succeed
-- Settles successes, nearly all outcomes, in one round trip and without reading first. The rule is
-- core's `decide`, which decides the rest; the model test compares the two. If another transaction
-- has locked one of the jobs, the lock timeout ends the statement, and all are decided there.
--
-- Encoding an array costs the client more than everything else, and most jobs of a batch share
-- fence and token. So $4 and $5 hold each pair once, and $3 has two bytes per job with the index of
-- its pair.
--
-- Gates open after all writes of a call. If these jobs are the whole call ($9) and all succeed,
-- that is here. Otherwise the jobs only leave their gates, and the gates are returned for the rest
-- of the call to open. If that never runs, a sweep opens them.
WITH clock AS MATERIALIZED (
    SELECT windlass_now($1) AS now, set_config('lock_timeout', '250ms', true)
),
done AS (
    UPDATE windlass_job AS job SET
        state = 'succeeded', trigger = 'succeed', held = false, position = NULL, due_at = NULL,
        lease_until = NULL, ended_at = greatest(clock.now, job.updated_at),
        updated_at = greatest(clock.now, job.updated_at), percent = 100, result = transition.result,
        error = NULL, error_body = NULL, seq = job.seq + 1
    FROM clock, (
        SELECT id, ($4::bigint[])[lease_index] AS fence, ($5::uuid[])[lease_index] AS token,
            coalesce(own_result, $7) AS result
        FROM (
            SELECT id, own_result,
                1 + get_byte($3, ordinal::integer * 2 - 2)
                + 256 * get_byte($3, ordinal::integer * 2 - 1) AS lease_index
            FROM unnest($2::uuid[], $6::bytea[]) WITH ORDINALITY AS given (id, own_result, ordinal)
        ) AS given
    ) AS transition
    WHERE job.id = ANY (ARRAY[transition.id]) AND job.state = 'running'
        AND job.fence = transition.fence
        AND job.token = transition.token AND job.cancel_at IS NULL AND NOT job.awaited
    RETURNING job.unique_key, job.logged, job.n, job.ended_at, job.token, job.gates, job.started_at,
        job.id, job.started_at - job.queued_at AS wait, job.ended_at - job.started_at AS run,
        job.queue, job.task, job.owner
),
ended_leases AS MATERIALIZED (
    SELECT token, count(*) AS count FROM done GROUP BY token ORDER BY token
),
counted_leases AS (
    UPDATE windlass_lease AS lease SET active = lease.active - ended_leases.count
    FROM ended_leases WHERE lease.token = ANY (ARRAY[ended_leases.token])
    RETURNING lease.token
),
freed_keys AS (
    DELETE FROM windlass_unique_key AS key USING done
    WHERE done.unique_key IS NOT NULL AND key.owner = ANY (ARRAY[done.owner])
        AND key.task = ANY (ARRAY[done.task]) AND key.unique_key = ANY (ARRAY[done.unique_key])
),
listed AS (
    INSERT INTO windlass_ended (kind, ended_at, jobs)
    SELECT 'succeeded', ended_at, array_agg(n ORDER BY n) FROM done GROUP BY ended_at
    UNION ALL
    SELECT 'log', ended_at, array_agg(n ORDER BY n) FROM done WHERE logged GROUP BY ended_at
),
counted AS (
    INSERT INTO windlass_rollup AS rollup (minute, queue, task, outcome, shard, count, wait, run)
    SELECT clock.now / 60000000 * 60000000, queue, task, 'succeeded', $8,
        count(*), sum(wait)::bigint, sum(run)::bigint
    -- The count forces the lock order of all transactions: leases, then rollups.
    FROM done, clock WHERE (SELECT count(*) FROM counted_leases) >= 0
    GROUP BY clock.now, queue, task ORDER BY queue, task
    ON CONFLICT ON CONSTRAINT windlass_rollup_key DO UPDATE SET
        count = rollup.count + excluded.count, wait = rollup.wait + excluded.wait,
        run = rollup.run + excluded.run
),
ended AS MATERIALIZED (
    SELECT count(*) AS count, count(gates) AS gated, $9 AND count(*) = cardinality($2) AS complete,
        CASE WHEN count(*) < cardinality($2) THEN array_agg(id) END AS ids FROM done
)
-- Usually all jobs succeed: then their number is enough. `windlass_admit` also admits the jobs that
-- the ends free capacity for: the function sees the writes of this statement.
SELECT ended.count, ended.ids, CASE WHEN ended.gated > 0 THEN (
    SELECT windlass_admit(
        leaving.gates, leaving.numbers, leaving.starts, clock.now, admitting => ended.complete)
    FROM (
        SELECT array_agg(gate) AS gates, array_agg(n) AS numbers, array_agg(started_at) AS starts
        FROM (
            SELECT gates[1] AS gate, n, started_at FROM done WHERE gates IS NOT NULL
            UNION ALL
            SELECT gates[2], n, started_at FROM done WHERE gates[2] IS NOT NULL
            UNION ALL
            SELECT gates[3], n, started_at FROM done WHERE gates[3] IS NOT NULL
        ) AS job_gates
    ) AS leaving
) END, CASE WHEN ended.gated > 0 AND NOT ended.complete THEN ARRAY(
    SELECT DISTINCT each.gate FROM (
        SELECT DISTINCT gates FROM done WHERE gates IS NOT NULL
    ) AS distinct_gates, unnest(distinct_gates.gates) AS each (gate)
) END
FROM clock, ended

-- name: lock_lifecycles
-- Locks jobs and reads the columns that decisions need. Takes the locks in the order of the call,
-- which is sorted by id. Skips rows that another transaction has locked: it may stay open for long.
SELECT job.* FROM unnest($1::uuid[]) AS requested (id), LATERAL (SELECT
    {lifecycle_columns}
FROM windlass_job AS job WHERE job.id = requested.id LIMIT 1 FOR UPDATE SKIP LOCKED) AS job

-- name: lock_jobs_briefly
-- Locks in the same order, with a short timeout: other jobs of the batch must not wait.
SELECT job.* FROM (SELECT set_config('lock_timeout', '250ms', true) OFFSET 0) AS setting,
    unnest($1::uuid[]) AS requested (id), LATERAL (
        SELECT n FROM windlass_job AS job WHERE job.id = requested.id LIMIT 1 FOR UPDATE
    ) AS job

-- name: reset_lock_timeout
SELECT set_config('lock_timeout', '0', true)

-- name: lock_jobs
-- Locks and waits, in the order of the ids.
SELECT job.* FROM unnest($1::uuid[]) AS requested (id), LATERAL (
    SELECT n FROM windlass_job AS job WHERE job.id = requested.id LIMIT 1 FOR UPDATE
) AS job

-- name: existing_ids
SELECT id FROM windlass_job WHERE id = ANY ($1::uuid[])

-- name: save_jobs
-- Saves what decisions changed, with the rows that depend on it: queue, gate queue and waiting
-- rows. Assigns positions in the order of the call, unless `fair_position` is given.
WITH new AS MATERIALIZED (
    SELECT * FROM unnest({save_arrays}) AS new ({save_names})
),
job AS (
    UPDATE windlass_job AS job SET
        {assignments}, logged = new.logged,
        position = CASE WHEN NOT new.requeued THEN new.position
            WHEN new.fair_position IS NULL THEN nextval('windlass_serial')
            ELSE new.fair_position END
    FROM new WHERE job.n = ANY (ARRAY[new.n])
    RETURNING job.n, job.id, job.queue, job.priority, job.position, job.queued_at, job.state,
        job.gate, job.limit_key, new.requeued, new.waits, new.at,
        CASE WHEN job.first_started_at IS NULL THEN job.expires_at END AS expires_at
),
queued AS (
    INSERT INTO windlass_queued (queue, priority, position, id, queued_at, expires_at, limit_key)
    SELECT queue, priority, position, id, queued_at, expires_at, limit_key
    FROM job WHERE requeued AND gate IS NULL
),
gate_queue AS (
    INSERT INTO windlass_gate_queue (
        gate, priority, position, id, n, queue, state, expires_at, limit_key)
    SELECT gate, priority, position, id, n, queue, state, expires_at, limit_key
    FROM job WHERE requeued AND gate IS NOT NULL
)
INSERT INTO windlass_waiting (queue, state, n, at)
SELECT queue, state, n, at FROM job WHERE waits
ON CONFLICT ON CONSTRAINT windlass_waiting_key DO UPDATE SET at = excluded.at

-- name: count_down_leases
-- The last locks of a transaction before the rollups, in the order of the call, sorted by token.
UPDATE windlass_lease AS lease SET active = lease.active - ended.count
FROM unnest($1::uuid[], $2::bigint[]) AS ended (token, count)
WHERE lease.token = ANY (ARRAY[ended.token])

-- name: delete_waiting
DELETE FROM windlass_waiting AS waiting
USING unnest($1::text[], $2::text[], $3::bigint[]) AS removed (queue, state, n)
WHERE waiting.queue = ANY (ARRAY[removed.queue]) AND waiting.state = ANY (ARRAY[removed.state])
    AND waiting.n = ANY (ARRAY[removed.n])

-- name: delete_queued
-- Never waits: a locked row belongs to a claim that waits for the job, finds it ended, and deletes
-- the row. If that claim fails, the next claim deletes the row; or `delete_stale_queued`, if the
-- job expired and claims skip it.
DELETE FROM windlass_queued WHERE ctid = ANY (ARRAY(
    SELECT queued.ctid FROM unnest($1::text[], $2::integer[], $3::bigint[], $4::uuid[])
        AS removed (queue, priority, position, id), LATERAL (
        SELECT ctid FROM windlass_queued AS queued
        WHERE queued.queue = removed.queue AND queued.priority = removed.priority
            AND queued.position = removed.position AND queued.id = removed.id
        LIMIT 1 FOR UPDATE SKIP LOCKED
    ) AS queued
))

-- name: delete_from_gate_queue
-- The lock of the job covers this row.
DELETE FROM windlass_gate_queue WHERE ctid = ANY (ARRAY(
    SELECT entry.ctid FROM unnest($1::text[], $2::integer[], $3::bigint[], $4::uuid[])
        AS removed (gate, priority, position, id), LATERAL (
        SELECT ctid FROM windlass_gate_queue AS entry
        WHERE entry.gate = removed.gate AND entry.priority = removed.priority
            AND entry.position = removed.position AND entry.id = removed.id
        LIMIT 1
    ) AS entry
))

-- name: position_bounds
-- For jobs that enter a queue or a gate, in the order of the call: a new serial number, the first
-- position there, and the last position of the limit key.
SELECT nextval('windlass_serial'), first, last
FROM unnest($1::text[], $2::text[], $3::integer[], $4::text[])
    AS given (queue, gate, priority, limit_key),
LATERAL windlass_bounds(queue, gate, priority, limit_key)

-- name: admit
-- Gates, with the job that left each and the start of its attempt. A NULL job means a new waiting
-- job.
SELECT windlass_admit($1::text[], $2::bigint[], $3::bigint[], $4, admitting => true)

-- name: lock_gates
-- Locks all gates of a limit, in the common order. Other transactions wait for these locks: a
-- frozen process must not keep them.
SELECT gate.* FROM (
    SELECT set_config('idle_in_transaction_session_timeout', '5s', true) OFFSET 0
) AS setting, LATERAL (
    SELECT gate FROM windlass_gate
    WHERE gate >= $1 AND gate < $1 || chr(32) AND (gate = $1 OR gate > $1 || chr(31))
    ORDER BY gate FOR NO KEY UPDATE
) AS gate

-- name: request_gate_checks
-- After a change of a limit: makes its gates due for a check and a recount, if jobs wait there. The
-- gates are locked, so all waiting jobs are visible.
UPDATE windlass_gate AS gate SET recounted_at = 0, next_check_at = CASE WHEN (
    SELECT n FROM windlass_gate_queue AS entry WHERE entry.gate = gate.gate LIMIT 1
) IS NOT NULL THEN 0 END
WHERE gate >= $1 AND gate < $1 || chr(32) AND (gate = $1 OR gate > $1 || chr(31))

-- name: gates_to_clean
-- Gates with requested checks, and gates that may be deleted.
SELECT array_agg(DISTINCT gate) FROM (
    (SELECT gate FROM windlass_gate_check LIMIT $2)
    UNION ALL
    (SELECT gate FROM windlass_gate WHERE idle_at IS NOT NULL AND idle_at <= $1
        ORDER BY idle_at LIMIT $2)
) AS found

-- name: delete_idle_gates
DELETE FROM windlass_gate AS idle WHERE gate = ANY ($1::text[]) AND (
    SELECT n FROM windlass_gate_queue AS entry WHERE entry.gate = idle.gate LIMIT 1
) IS NULL AND (
    SELECT fence FROM windlass_permit AS permit WHERE permit.gate = idle.gate LIMIT 1
) IS NULL AND (
    SELECT at FROM windlass_start AS start WHERE start.gate = idle.gate LIMIT 1
) IS NULL

-- name: delete_stale_queued
-- Deletes expired queue rows whose job is not queued any more (see `delete_queued`).
DELETE FROM windlass_queued WHERE ctid = ANY (ARRAY(
    SELECT queued.ctid FROM (
        SELECT ctid, id, position FROM windlass_queued
        WHERE expires_at IS NOT NULL AND expires_at <= $1 ORDER BY expires_at LIMIT $2
        FOR UPDATE SKIP LOCKED
    ) AS queued
    WHERE (
        SELECT job.n FROM windlass_job AS job
        WHERE job.id = queued.id AND job.state = 'queued' AND job.position = queued.position LIMIT 1
    ) IS NULL
))

-- name: insert_ended
WITH finished AS MATERIALIZED (
    SELECT * FROM unnest(
        $1::bigint[], $2::text[], $3::bigint[], $4::boolean[], $5::text[], $6::text[], $7::text[]
    ) AS finished (n, state, ended_at, logged, owner, task, unique_key)
),
listed AS (
    INSERT INTO windlass_ended (kind, ended_at, jobs)
    SELECT state, ended_at, array_agg(n ORDER BY n) FROM finished GROUP BY state, ended_at
    UNION ALL
    SELECT 'log', ended_at, array_agg(n ORDER BY n) FROM finished WHERE logged GROUP BY ended_at
),
unsuccessful AS (
    INSERT INTO windlass_unsuccessful (n) SELECT n FROM finished WHERE state <> 'succeeded'
)
DELETE FROM windlass_unique_key AS key USING finished
WHERE finished.unique_key IS NOT NULL AND key.owner = ANY (ARRAY[finished.owner])
    AND key.task = ANY (ARRAY[finished.task])
    AND key.unique_key = ANY (ARRAY[finished.unique_key])

-- name: insert_log
INSERT INTO windlass_log (n, seq, at, type, attempt, fence, record_n, data, body)
SELECT * FROM unnest(
    $1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[],
    $8::text[], $9::bytea[]
)

-- name: past_outcomes
SELECT log.* FROM unnest($1::bigint[], $2::bigint[]) AS requested (n, fence), LATERAL (
    SELECT log.n, log.fence, log.data FROM windlass_log AS log
    WHERE log.n = requested.n AND log.fence = requested.fence AND log.type = 'attempt'
    LIMIT 1
) AS log

-- name: put_steps
INSERT INTO windlass_step (n, step, value, attempt, at)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::bigint[], $5::bigint[])
ON CONFLICT ON CONSTRAINT windlass_step_key DO UPDATE SET
    value = excluded.value, attempt = excluded.attempt, at = excluded.at

-- name: get_steps
SELECT job.id, step.step, step.value, step.attempt, step.at
FROM unnest($1::uuid[]) AS requested (id),
LATERAL (SELECT id, n FROM windlass_job AS job WHERE job.id = requested.id LIMIT 1) AS job,
LATERAL (SELECT * FROM windlass_step AS step WHERE step.n = job.n OFFSET 0) AS step

-- name: existing_steps
SELECT step.n, step.step FROM unnest($1::bigint[], $2::text[]) AS requested (n, step), LATERAL (
    SELECT n, step FROM windlass_step AS step
    WHERE step.n = requested.n AND step.step = requested.step LIMIT 1
) AS step

-- name: descendants
-- Returns the time, and the dependents of those jobs of $2 that may end. A job may end by success
-- ($3), or without success ($4, a requested cancel, or expiry). In the second case the dependents
-- of dependents are included, transitively. Runs before any lock: all jobs are then locked in one
-- order, and `dependents` reads the edges again.
WITH RECURSIVE ending AS MATERIALIZED (
    SELECT job.n, job.id, job.cancel_at IS NOT NULL
        OR coalesce(job.expires_at <= windlass_now($1), false) OR job.id = ANY ($4::uuid[])
        AS transitive
    FROM unnest($2::uuid[]) AS requested (id), LATERAL (
        SELECT n, id, cancel_at, expires_at FROM windlass_job AS job
        WHERE job.id = requested.id AND job.awaited LIMIT 1
    ) AS job
),
descendants AS (
    SELECT n, NULL::uuid AS id, transitive FROM ending WHERE transitive OR id = ANY ($3::uuid[])
    UNION
    SELECT edge.child, edge.child_id, descendants.transitive FROM descendants, LATERAL (
        SELECT child, child_id FROM windlass_edge AS edge
        WHERE edge.parent = descendants.n AND edge.open ORDER BY parent, child LIMIT 1000000
    ) AS edge
    WHERE descendants.transitive OR descendants.id IS NULL
)
SELECT windlass_now($1), ARRAY(SELECT DISTINCT id FROM descendants WHERE id IS NOT NULL)

-- name: dependents
SELECT edge.parent_id, edge.child_id FROM unnest($1::bigint[]) AS requested (n), LATERAL (
    SELECT parent_id, child_id FROM windlass_edge AS edge
    WHERE edge.parent = requested.n AND edge.open ORDER BY parent, child LIMIT 1000000
) AS edge

-- name: close_edges_of_parents
UPDATE windlass_edge AS edge SET open = false
FROM unnest($1::bigint[]) AS requested (n)
WHERE edge.parent = ANY (ARRAY[requested.n]) AND edge.open

-- name: close_edges_of_children
UPDATE windlass_edge AS edge SET open = false
FROM unnest($1::bigint[]) AS requested (n)
WHERE edge.child = ANY (ARRAY[requested.n]) AND edge.open

-- name: put_edges
-- A job that suspends again may wait for the same parent again.
INSERT INTO windlass_edge (child, child_id, parent, parent_id, ordinal, open)
SELECT child, child_id, parent, parent_id, ordinal, open FROM unnest(
    $1::bigint[], $2::uuid[], $3::bigint[], $4::uuid[], $5::bigint[], $6::boolean[]
) AS new (child, child_id, parent, parent_id, ordinal, open)
ON CONFLICT ON CONSTRAINT windlass_edge_key DO UPDATE SET open = excluded.open

-- name: next_edge_ordinal
SELECT coalesce(max(ordinal), -1) + 1 FROM windlass_edge WHERE child = $1

-- name: mark_awaited
UPDATE windlass_job AS job SET awaited = true
FROM unnest($1::bigint[]) AS requested (n)
WHERE job.n = ANY (ARRAY[requested.n]) AND NOT job.awaited

-- name: edges
SELECT requested.id,
    ARRAY(
        SELECT edge.parent_id FROM windlass_edge AS edge WHERE edge.child = job.n
        ORDER BY edge.ordinal LIMIT $2::bigint
    ),
    ARRAY(
        SELECT edge.child_id FROM windlass_edge AS edge WHERE edge.parent = job.n
        ORDER BY edge.parent, edge.child LIMIT $2::bigint
    )
FROM unnest($1::uuid[]) AS requested (id),
    LATERAL (SELECT n FROM windlass_job AS job WHERE job.id = requested.id LIMIT 1) AS job

-- name: flows
SELECT flow_id, state, count(*), sum(percent)::bigint, min(created_at), max(ended_at)
FROM windlass_job
WHERE flow_id IS NOT NULL AND flow_id = ANY ($1::uuid[]) AND retried_as IS NULL
    AND ($2::text IS NULL OR owner = $2) AND ($3::text IS NULL OR team = $3)
GROUP BY flow_id, state

-- name: flows_before
-- A loose index scan: finds flows by jumping from one id to the next.
WITH RECURSIVE flow AS (
    (
        SELECT flow_id, 1 AS ordinal FROM windlass_job
        WHERE flow_id IS NOT NULL AND flow_id < $1 AND $2 > 0
        ORDER BY flow_id DESC, n DESC LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT job.flow_id FROM windlass_job AS job
        WHERE job.flow_id IS NOT NULL AND job.flow_id < flow.flow_id
        ORDER BY job.flow_id DESC, job.n DESC LIMIT 1
    ), flow.ordinal + 1 FROM flow WHERE flow.flow_id IS NOT NULL AND flow.ordinal < $2
)
SELECT flow_id FROM flow WHERE flow_id IS NOT NULL ORDER BY flow_id DESC

-- name: newest_of_flows
SELECT requested.flow_id, EXISTS (
    SELECT FROM windlass_job AS job
    WHERE job.flow_id IS NOT NULL AND job.flow_id = requested.flow_id
    ORDER BY job.flow_id DESC, job.n DESC LIMIT 1 OFFSET $2
), job.state, count(*), sum(job.percent)::bigint, min(job.created_at), max(job.ended_at)
FROM unnest($1::uuid[]) AS requested (flow_id), LATERAL (
    SELECT state, percent, created_at, ended_at, retried_as, owner, team FROM windlass_job AS job
    WHERE job.flow_id IS NOT NULL AND job.flow_id = requested.flow_id
    ORDER BY job.flow_id DESC, job.n DESC LIMIT $2
) AS job
WHERE job.retried_as IS NULL
    AND ($3::text IS NULL OR job.owner = $3) AND ($4::text IS NULL OR job.team = $4)
GROUP BY requested.flow_id, job.state

-- name: add_rollups
INSERT INTO windlass_rollup AS rollup (minute, queue, task, outcome, shard, count, wait, run)
SELECT minute, queue, task, outcome, $1, count, wait, run FROM unnest(
    $2::bigint[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[]
) AS given (minute, queue, task, outcome, count, wait, run)
ON CONFLICT ON CONSTRAINT windlass_rollup_key DO UPDATE SET
    count = rollup.count + excluded.count, wait = rollup.wait + excluded.wait,
    run = rollup.run + excluded.run

-- name: rollups
SELECT minute, queue, task, outcome, sum(count)::bigint, sum(wait)::bigint, sum(run)::bigint
FROM windlass_rollup WHERE minute >= $1 AND minute < $2
GROUP BY minute, queue, task, outcome
ORDER BY minute, queue, task, outcome

-- name: due
-- Expired leases: reads the jobs of all claims that have a running job. Their number is about that of
-- worker slots, and does not depend on the number of jobs. Deletes the rows of claims without one,
-- unless they are locked.
-- Due jobs: first the first job of each gate that is due for a check, except jobs locked by another
-- transaction. Gates without waiting jobs are skipped and do not count in the limit.
WITH RECURSIVE clock AS MATERIALIZED (SELECT windlass_now($1) AS now),
held AS MATERIALIZED (SELECT token, active, jobs FROM windlass_lease ORDER BY token),
running AS MATERIALIZED (
    SELECT held.token, job.n, job.lease_until FROM held, unnest(held.jobs) AS each (n), LATERAL (
        SELECT n, state, token, lease_until FROM windlass_job AS job WHERE job.n = each.n LIMIT 1
    ) AS job
    WHERE held.active > 0 AND job.state = 'running' AND job.token = held.token
),
deleted AS (
    DELETE FROM windlass_lease WHERE ctid = ANY (ARRAY(
        SELECT lease.ctid FROM held, LATERAL (
            SELECT ctid FROM windlass_lease AS lease
            WHERE lease.token = held.token AND lease.jobs = held.jobs
            LIMIT 1 FOR UPDATE SKIP LOCKED
        ) AS lease
        WHERE held.token NOT IN (SELECT token FROM running)
    ))
),
expired AS MATERIALIZED (
    SELECT running.lease_until AS at, running.n FROM clock, running
    WHERE running.lease_until <= clock.now
    ORDER BY running.lease_until, running.n LIMIT $2
),
requested AS (
    (SELECT gate FROM windlass_gate_check ORDER BY gate LIMIT 1)
    UNION ALL
    SELECT (
        SELECT request.gate FROM windlass_gate_check AS request
        WHERE request.gate > requested.gate
        ORDER BY request.gate LIMIT 1
    ) FROM requested WHERE requested.gate IS NOT NULL
),
gates AS (
    SELECT gate FROM clock, LATERAL (
        SELECT gate FROM windlass_gate
        WHERE next_check_at IS NOT NULL AND next_check_at <= clock.now
        ORDER BY next_check_at OFFSET 0
    ) AS due
    UNION ALL
    SELECT gate FROM requested WHERE gate IS NOT NULL
),
first_jobs AS MATERIALIZED (
    SELECT DISTINCT n FROM (
        SELECT entry.n FROM gates, LATERAL (
            SELECT entry.n FROM windlass_gate_queue AS entry, LATERAL (
                SELECT FROM windlass_job AS job WHERE job.n = entry.n LIMIT 1 FOR SHARE SKIP LOCKED
            ) AS unlocked
            WHERE entry.gate = gates.gate
            ORDER BY entry.gate, entry.priority DESC, entry.position, entry.id LIMIT 1
        ) AS entry LIMIT $2
    ) AS found
),
ready AS MATERIALIZED (
    SELECT -1::bigint AS at, n FROM first_jobs
    UNION ALL
    SELECT waiting.at, waiting.n FROM clock, LATERAL (
        SELECT at, n FROM windlass_waiting WHERE at IS NOT NULL AND at <= clock.now
        ORDER BY at, n LIMIT $2
    ) AS waiting WHERE waiting.n NOT IN (SELECT n FROM first_jobs)
),
waiting AS MATERIALIZED (SELECT at, n FROM ready ORDER BY at, n LIMIT $2)
SELECT job.* FROM (
    SELECT 1 AS rank, at, n FROM expired UNION ALL SELECT 2, at, n FROM waiting
) AS found,
    LATERAL (SELECT {columns} FROM windlass_job AS job WHERE job.n = found.n LIMIT 1) AS job
ORDER BY found.rank, found.at, found.n

-- name: try_lock_prune
-- One process prunes at a time; others skip it.
SELECT pg_try_advisory_xact_lock($1), windlass_now($2)

-- name: past_retention
-- The first rows hold the first jobs: jobs in a row are sorted, and rows are sorted by their first.
SELECT ended.ended_at, job.n FROM (
    SELECT ended_at, jobs FROM windlass_ended WHERE kind = $1 AND ended_at <= $2
    ORDER BY ended_at, (jobs[1]) LIMIT $3
) AS ended, unnest(ended.jobs) AS job (n)
ORDER BY ended.ended_at, job.n
LIMIT $3

-- name: remove_from_ended
WITH removed AS MATERIALIZED (
    SELECT kind, ended_at, array_agg(n) AS jobs
    FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS removed (kind, ended_at, n)
    GROUP BY kind, ended_at
)
UPDATE windlass_ended AS ended
SET jobs = ARRAY(SELECT n FROM unnest(ended.jobs) AS n WHERE n <> ALL (removed.jobs) ORDER BY n)
FROM removed
WHERE ended.kind = ANY (ARRAY[removed.kind]) AND ended.ended_at = ANY (ARRAY[removed.ended_at])
    AND ended.jobs && removed.jobs

-- name: delete_empty_ended
DELETE FROM windlass_ended AS ended
USING unnest($1::text[], $2::bigint[]) AS removed (kind, ended_at)
WHERE ended.kind = ANY (ARRAY[removed.kind]) AND ended.ended_at = ANY (ARRAY[removed.ended_at])
    AND ended.jobs = '{}'

-- name: lock_finished
-- Skips rows that another transaction has locked; the next prune retries them.
SELECT n FROM windlass_job WHERE n = ANY ($1::bigint[]) FOR UPDATE SKIP LOCKED

-- name: delete_logs
WITH log AS (DELETE FROM windlass_log WHERE n = ANY ($1::bigint[]))
UPDATE windlass_job SET logged = false, log_floor = seq - 1 WHERE n = ANY ($1::bigint[])

-- name: delete_jobs
WITH log AS (DELETE FROM windlass_log WHERE n = ANY ($1::bigint[])),
step AS (DELETE FROM windlass_step WHERE n = ANY ($1::bigint[])),
edge AS (DELETE FROM windlass_edge WHERE child = ANY ($1::bigint[])),
unsuccessful AS (DELETE FROM windlass_unsuccessful WHERE n = ANY ($1::bigint[]))
DELETE FROM windlass_job WHERE n = ANY ($1::bigint[]) RETURNING n, state, ended_at, logged

-- name: delete_old_rollups
WITH removed AS (
    DELETE FROM windlass_rollup WHERE minute < $1 RETURNING minute, queue, task, outcome
)
SELECT count(*) FROM (SELECT DISTINCT minute, queue, task, outcome FROM removed) AS counted

-- name: events
-- One statement, so that the row and its log have the same snapshot. The first log rows of both
-- kinds: `event_log.page` stops at the first gap in the numbers.
SELECT {columns}, ARRAY(
    SELECT ROW(seq, at, type, attempt, fence, record_n, data, body) FROM windlass_log AS log
    WHERE log.n = job.n AND seq > $2 AND type <> 'attempt' ORDER BY seq LIMIT $3
), ARRAY(
    SELECT ROW(seq, at, type, attempt, fence, record_n, data, body) FROM windlass_log AS log
    WHERE log.n = job.n AND seq > $2 AND type = 'attempt' ORDER BY fence LIMIT $3
)
FROM windlass_job AS job WHERE id = $1

-- name: attempts
SELECT {columns}, ARRAY(
    SELECT ROW(seq, at, type, attempt, fence, record_n, data, body) FROM windlass_log AS log
    WHERE log.n = job.n AND type = 'attempt' ORDER BY fence
)
FROM windlass_job AS job WHERE id = $1

-- name: search_range
-- The jobs that one page of a search reads: a bounded range, newest first. So its cost does not
-- depend on the number of jobs. The page may be short; its cursor continues after the range.
SELECT n FROM windlass_job WHERE n < $1 ORDER BY n DESC LIMIT $2

-- name: unsuccessful_range
-- The same among failed and canceled jobs, which have a table of their own.
SELECT n FROM windlass_unsuccessful WHERE n < $1 ORDER BY n DESC LIMIT $2

-- name: lineage_range
-- The same among the retries of one first job.
SELECT n FROM windlass_job
WHERE root_id IS NOT NULL AND root_id = $3 AND n < $1 ORDER BY root_id DESC, n DESC LIMIT $2

-- name: flow_range
SELECT n FROM windlass_job
WHERE flow_id IS NOT NULL AND flow_id = $3 AND n < $1 ORDER BY flow_id DESC, n DESC LIMIT $2

-- name: matching
SELECT n FROM windlass_job
WHERE n = ANY ($1::bigint[])
    AND ($2::text[] IS NULL OR state = ANY ($2))
    AND ($3::text[] IS NULL OR queue = ANY ($3))
    AND ($4::text[] IS NULL OR task = ANY ($4))
    AND ($5::text[] IS NULL OR tags @> $5)
    AND ($6::text IS NULL OR owner = $6)
    AND ($7::text IS NULL OR team = $7)
    AND ($8::text IS NULL OR worker = $8)
    AND ($9::text IS NULL OR error::json ->> 'code' = $9)
    AND ($10::text IS NULL OR request_id = $10)
    AND ($11::text IS NULL OR unique_key = $11)
    AND ($12::uuid IS NULL OR retry_of = $12)
    AND ($13::uuid IS NULL OR root_id = $13)
    AND ($14::uuid IS NULL OR flow_id = $14)
    AND ($15::bigint IS NULL OR created_at >= $15)
    AND ($16::bigint IS NULL OR created_at < $16)
    AND ($17::text IS NULL OR EXISTS (
        SELECT FROM unnest(
            ARRAY[task, error::json ->> 'code'] || tags || windlass_error_text(error_body)
        ) AS searched (content)
        WHERE strpos(lower(content COLLATE "C"), $17) > 0))
ORDER BY n DESC
LIMIT $18

-- name: jobs_by_serial
SELECT {columns} FROM windlass_job WHERE n = ANY ($1::bigint[])

-- name: jobs_by_serial_without_payload
-- Without payload and result, which lists do not show.
SELECT {columns_without_payload} FROM windlass_job WHERE n = ANY ($1::bigint[])

-- name: failures
-- Newest first, without the payload, which may be large.
SELECT job.* FROM (
    SELECT ended.ended_at, job.n FROM (
        SELECT ended_at, jobs FROM windlass_ended WHERE kind = 'failed' AND ended_at >= $1
        ORDER BY kind DESC, ended_at DESC, (jobs[1]) DESC LIMIT $2
    ) AS ended, unnest(ended.jobs) AS job (n)
    ORDER BY ended.ended_at DESC, job.n DESC LIMIT $2
) AS last, LATERAL (
    SELECT id, task, queue, ended_at, error, error_body, owner, team
    FROM windlass_job AS job WHERE job.n = last.n LIMIT 1
) AS job
ORDER BY last.ended_at DESC, last.n DESC

-- name: stats
-- Loose index scans: find queues by jumping from one to the next, and count up to a cap.
WITH RECURSIVE queues AS (
    (SELECT queue FROM windlass_queued ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (
        SELECT queued.queue FROM windlass_queued AS queued WHERE queued.queue > queues.queue
        ORDER BY queued.queue LIMIT 1
    ) FROM queues WHERE queues.queue IS NOT NULL
),
waiting_states AS (
    (SELECT queue, state FROM windlass_waiting ORDER BY queue, state LIMIT 1)
    UNION ALL
    SELECT next.queue, next.state FROM waiting_states, LATERAL (
        SELECT waiting.queue, waiting.state FROM windlass_waiting AS waiting
        WHERE (waiting.queue, waiting.state) > (waiting_states.queue, waiting_states.state)
        ORDER BY waiting.queue, waiting.state LIMIT 1
    ) AS next
),
gate_states AS (
    (
        SELECT queue, state FROM windlass_gate_queue WHERE expires_at IS NULL
        ORDER BY queue, state LIMIT 1
    )
    UNION ALL
    SELECT next.queue, next.state FROM gate_states, LATERAL (
        SELECT waiting.queue, waiting.state FROM windlass_gate_queue AS waiting
        WHERE (waiting.queue, waiting.state) > (gate_states.queue, gate_states.state)
            AND waiting.expires_at IS NULL
        ORDER BY waiting.queue, waiting.state LIMIT 1
    ) AS next
)
SELECT queue, 'queued' AS state,
    (SELECT count(*) FROM (
        SELECT FROM windlass_queued AS queued WHERE queued.queue = queues.queue LIMIT $1 + 1
    ) AS counted),
    (SELECT min(queued_at) FROM (
        SELECT queued_at FROM windlass_queued AS queued WHERE queued.queue = queues.queue
        ORDER BY queue, priority DESC, position LIMIT $1) AS counted)
FROM queues WHERE queue IS NOT NULL
UNION ALL
SELECT queue, state, sum(count)::bigint, NULL FROM (
    SELECT queue, state, (SELECT count(*) FROM (
        SELECT FROM windlass_waiting AS waiting
        WHERE waiting.queue = waiting_states.queue AND waiting.state = waiting_states.state
        LIMIT $1 + 1
    ) AS counted) AS count
    FROM waiting_states WHERE state <> 'queued'
    UNION ALL
    SELECT queue, state, (SELECT count(*) FROM (
        SELECT FROM windlass_gate_queue AS waiting
        WHERE waiting.queue = gate_states.queue AND waiting.state = gate_states.state
            AND waiting.expires_at IS NULL LIMIT $1 + 1
    ) AS counted) AS count
    FROM gate_states
) AS unqueued GROUP BY queue, state
UNION ALL
SELECT job.queue, 'running', count(*), NULL
FROM (SELECT token, jobs FROM windlass_lease WHERE active > 0 ORDER BY token) AS lease,
unnest(lease.jobs) AS each (n),
LATERAL (
    SELECT queue, state, token FROM windlass_job AS job WHERE job.n = each.n LIMIT 1
) AS job
WHERE job.state = 'running' AND job.token = lease.token
GROUP BY job.queue

-- name: get_records
SELECT kind, key, value, version, expires_at
FROM unnest($1::text[], $2::text[]) AS requested (kind, key), LATERAL (
    SELECT record.value, record.version, record.expires_at FROM windlass_record AS record
    WHERE record.kind = requested.kind AND record.key = requested.key LIMIT 1
) AS record

-- name: put_records
INSERT INTO windlass_record (kind, key, value, version, expires_at)
SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::bigint[], $5::bigint[])
ON CONFLICT ON CONSTRAINT windlass_record_key DO UPDATE SET
    value = excluded.value, version = excluded.version, expires_at = excluded.expires_at

-- name: may_write_records
SELECT has_table_privilege('windlass_record', 'INSERT')

-- name: declare_limits
SELECT windlass_declare_limit(name, value)
FROM unnest($1::text[], $2::bytea[]) AS given (name, value)

-- name: list_records
WITH clock AS MATERIALIZED (SELECT windlass_now($1) AS now)
SELECT kind, key, value, version, expires_at FROM clock, windlass_record
WHERE kind = $2 AND key > $3 AND (expires_at IS NULL OR expires_at > clock.now)
ORDER BY key LIMIT $4

-- name: delete_records
DELETE FROM windlass_record WHERE kind = $1 AND key = ANY ($2::text[])

-- name: delete_expired_records
WITH removed AS (DELETE FROM windlass_record WHERE expires_at <= $1 RETURNING 1)
SELECT count(*) FROM removed

-- name: notify
-- A lost notification only delays a wake-up, so the commit does not wait for the disk.
SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)

-- name: first_positions
-- The first visible position of each of these queues and priorities. Includes rows that another
-- claim is taking: locking them here would make claims skip them.
WITH clock AS MATERIALIZED (SELECT windlass_now($1) AS now)
SELECT requested.queue, requested.priority, queued.position
FROM clock, unnest($2::text[], $3::integer[]) AS requested (queue, priority), LATERAL (
    SELECT position FROM windlass_queued
    WHERE queue = requested.queue AND priority = requested.priority
        AND (expires_at IS NULL OR expires_at > clock.now)
    ORDER BY queue, priority DESC, position
    LIMIT 1
) AS queued

-- name: gates
-- Waiting jobs, holders, the first few holders, and the next check of each gate.
SELECT (
    SELECT count(*) FROM (
        SELECT FROM windlass_gate_queue AS entry WHERE entry.gate = requested.name LIMIT $2
    ) AS counted
), held.count, held.some, (
    SELECT next_check_at FROM windlass_gate AS gate WHERE gate.gate = requested.name LIMIT 1
)
FROM unnest($1::text[]) WITH ORDINALITY AS requested (name, ordinal), LATERAL (
    SELECT count(*) AS count, (array_agg(holder.id ORDER BY holder.at, holder.id))[:$3] AS some
    FROM (
        SELECT permit.at, job.id
        FROM windlass_permit AS permit, unnest(permit.jobs) AS each (n), LATERAL (
            SELECT id, fence, state, gate FROM windlass_job AS job WHERE job.n = each.n LIMIT 1
        ) AS job
        WHERE permit.gate = requested.name
            AND windlass_permit_in_use(permit.fence, job.fence, job.state, job.gate)
    ) AS holder
) AS held
ORDER BY requested.ordinal
