-- Plans are kept (see connection.py), and one that was made while a table was empty would go on to
-- read all of it when it is full: so each statement is written to have one plan only. A table that
-- grows is reached by a key, inside a LATERAL with a LIMIT or as `key = ANY (ARRAY[value])`, which no
-- planner can turn round as it could a join; or it is read in the order of an index up to a limit.

-- name: insert_jobs
-- All of an enqueue in one statement: the rows, their places in line, and who waits outside of it.
-- The rule is core's `job.opening`, and the model compares the two. What is the same in all of them,
-- and never NULL, comes once (see `rows.insertions`). A job whose id or request id is taken is left
-- out, and the answer shows it; where keys take turns, it is looked for before, for it takes none. No
-- id comes twice. Numbers are given in the order of the call. Where somebody has to pass a gate, the
-- caller has to see to that ($28); else nothing is stored.
WITH clock AS MATERIALIZED (SELECT windlass_now($1) AS now),
new AS MATERIALIZED (
    SELECT nextval('windlass_serial') AS n, clock.now,
        coalesce(given.run_at, clock.now + coalesce(given.delay, ($20::bigint[])[1])) AS due,
        coalesce(given.expires_at, clock.now + given.expires_in) AS expires,
        given.id, given.payload, given.policy, given.lease, given.team, given.tags, given.headers,
        given.digest, given.request_id, given.unique_key, given.retry_of, given.root_id,
        given.last_step, given.waiting_for, given.on_parent, given.flow_id, given.limit_key,
        coalesce(given.queue, ($3::text[])[1]) AS queue,
        coalesce(given.task, ($4::text[])[1]) AS task,
        coalesce(given.priority, ($6::integer[])[1]) AS priority,
        coalesce(given.owner, ($9::text[])[1]) AS owner,
        coalesce(given.hold, ($19::boolean[])[1]) AS hold
    FROM clock, unnest(
        $2::uuid[], $3::text[], $4::text[], $5::bytea[], $6::integer[], $7::text[], $8::bigint[],
        $9::text[], $10::text[], $11::text[], $12::text[], $13::bytea[], $14::text[], $15::text[],
        $16::uuid[], $17::uuid[], $18::text[], $19::boolean[], $20::bigint[], $21::bigint[],
        $22::bigint[], $23::bigint[], $24::bigint[], $25::text[], $26::uuid[], $27::text[]
    ) AS given (
        id, queue, task, payload, priority, policy, lease, owner, team, tags, headers, digest,
        request_id, unique_key, retry_of, root_id, last_step, hold, delay, run_at, expires_in,
        expires_at, waiting_for, on_parent, flow_id, limit_key
    )
),
limits AS MATERIALIZED (
    SELECT array_agg(record.key) AS names FROM (
        SELECT DISTINCT concat(what, name) AS name FROM (
            SELECT 'queue:' AS what, name FROM unnest($3::text[]) AS name
            UNION ALL
            SELECT unnest(ARRAY['key:', 'task:']), name FROM unnest($4::text[]) AS name
        ) AS given
    ) AS concerned, LATERAL (
        SELECT key FROM windlass_record AS record
        WHERE record.kind = 'limit' AND record.key = concerned.name LIMIT 1
    ) AS record
),
gated AS MATERIALIZED (
    SELECT timed.*, CASE WHEN NOT later THEN gates[1] END AS gate,
        CASE WHEN NOT later AND gates IS NULL THEN queue END AS line
    FROM (
        SELECT new.*, hold OR due > now OR waiting_for IS NOT NULL AS later,
            CASE WHEN limits.names IS NOT NULL THEN nullif(array_remove(ARRAY[
                CASE WHEN 'key:' || task = ANY (limits.names)
                    THEN 'key:' || task || chr(31) || limit_key END,
                CASE WHEN 'task:' || task = ANY (limits.names) THEN 'task:' || task END,
                CASE WHEN 'queue:' || queue = ANY (limits.names) THEN 'queue:' || queue END
            ], NULL), '{}') END AS gates
        FROM new, limits
    ) AS timed
    WHERE cardinality($27::text[]) = 0
        OR (SELECT n FROM windlass_job AS old WHERE old.id = timed.id LIMIT 1) IS NULL
),
-- Where each line begins that somebody with a key comes into, or will; and who comes first of those
-- without one, who may stand before that: keys' own places run ahead of the count of arrivals.
lines AS MATERIALIZED (
    SELECT gate, line, priority, min(n) AS n, min(n) FILTER (WHERE limit_key IS NULL) AS bare, CASE WHEN gate IS NULL THEN (
            SELECT old.position FROM windlass_line AS old
            WHERE old.queue = gated.line AND old.priority = gated.priority
            ORDER BY old.queue, old.priority DESC, old.position, old.id LIMIT 1
        ) ELSE (
            SELECT old.position FROM windlass_parked AS old
            WHERE old.gate = gated.gate AND old.priority = gated.priority
            ORDER BY old.gate, old.priority DESC, old.position, old.id LIMIT 1
        ) END AS first
    FROM gated WHERE NOT later GROUP BY gate, line, priority HAVING count(limit_key) > 0
),
opened AS (
    SELECT gated.*, 0 AS rank, NULL::bigint AS last, NULL::bigint AS turn,
        CASE WHEN NOT later THEN n END AS place
    FROM gated WHERE limit_key IS NULL OR later
    UNION ALL
    SELECT turned.*, 2 * (rank - 1)
        + first_value(turn) OVER (PARTITION BY gate, line, priority, limit_key ORDER BY n)
    FROM (
        SELECT known.*, CASE WHEN rank = 1 THEN (
            SELECT CASE WHEN lines.first IS NULL THEN lines.n + (known.n > lines.n)::integer
                WHEN known.last IS NULL
                    THEN least(lines.first, CASE WHEN lines.bare < known.n THEN lines.bare END) + 1
                ELSE greatest(lines.first, known.last + 2) END
            FROM lines WHERE lines.priority = known.priority
                AND lines.line IS NOT DISTINCT FROM known.line
                AND lines.gate IS NOT DISTINCT FROM known.gate
        ) END AS turn
        FROM (
            SELECT ranked.*, CASE WHEN rank > 1 THEN NULL WHEN gate IS NULL THEN (
                SELECT old.position FROM windlass_line AS old
                WHERE windlass_turn_number(old.queue, old.priority, old.limit_key)
                        = windlass_turn_number(ranked.line, ranked.priority, ranked.limit_key)
                    AND old.limit_key = ranked.limit_key AND old.limit_key IS NOT NULL
                    AND old.queue IS NOT DISTINCT FROM ranked.line
                    AND old.priority IS NOT DISTINCT FROM ranked.priority
                ORDER BY old.position DESC LIMIT 1
            ) ELSE (
                SELECT old.position FROM windlass_parked AS old
                WHERE windlass_turn_number(old.gate, old.priority, old.limit_key)
                        = windlass_turn_number(ranked.gate, ranked.priority, ranked.limit_key)
                    AND old.limit_key = ranked.limit_key AND old.limit_key IS NOT NULL
                    AND old.gate IS NOT DISTINCT FROM ranked.gate
                    AND old.priority IS NOT DISTINCT FROM ranked.priority
                ORDER BY old.position DESC LIMIT 1
            ) END AS last
            FROM (
                SELECT gated.*, row_number() OVER (
                    PARTITION BY gate, line, priority, limit_key ORDER BY n
                ) AS rank FROM gated WHERE limit_key IS NOT NULL AND NOT later
            ) AS ranked OFFSET 0
        ) AS known
    ) AS turned
),
job AS (
    INSERT INTO windlass_job (
        id, queue, task, created_at, expires_at, state, trigger, held, position, due_at, queued_at,
        updated_at, seq, queued_seq, last_step, n, payload, priority, policy, lease, owner, team,
        tags, headers, request_id, digest, unique_key, retry_of, root_id, waiting_for, on_parent,
        flow_id, limit_key, gates, gate
    )
    SELECT
        id, queue, task, now, expires,
        CASE WHEN line IS NULL THEN 'created' ELSE 'queued' END, 'enqueue', hold,
        place, CASE WHEN due > now THEN due END,
        CASE WHEN line IS NOT NULL THEN now END, now,
        CASE WHEN line IS NULL THEN 1 ELSE 2 END, CASE WHEN line IS NULL THEN 0 ELSE 2 END,
        last_step, n, payload, priority, policy, lease, owner, team, tags::text[], headers,
        request_id, digest, unique_key, retry_of, root_id, coalesce(waiting_for, 0),
        coalesce(on_parent, 'cancel'), flow_id, limit_key, gates, gate
    FROM opened WHERE $28 OR NOT EXISTS (SELECT FROM gated WHERE gates IS NOT NULL) ORDER BY n
    ON CONFLICT DO NOTHING
    RETURNING id, n, queue, priority, state, held, position, queued_at, due_at, expires_at,
        waiting_for, limit_key, gates, gate
),
line AS (
    INSERT INTO windlass_line (queue, priority, position, id, queued_at, expires_at, limit_key)
    SELECT queue, priority, position, id, queued_at, expires_at, limit_key
    FROM job WHERE state = 'queued'
),
parked AS (
    INSERT INTO windlass_parked (
        gate, priority, position, id, n, queue, state, expires_at, limit_key)
    SELECT gate, priority, position, id, n, queue, state, expires_at, limit_key
    FROM job WHERE gate IS NOT NULL
),
aside AS (
    INSERT INTO windlass_waiting (queue, state, n, at)
    SELECT queue, state, n,
        least(CASE WHEN NOT held AND waiting_for = 0 THEN due_at END, expires_at)
    FROM job WHERE state = 'created' AND gate IS NULL OR expires_at IS NOT NULL
)
SELECT job.id, job.n, clock.now, job.position, job.gates FROM job, clock
UNION ALL
SELECT NULL, NULL, NULL, NULL, gates FROM (
    SELECT gates FROM gated WHERE NOT $28 AND gates IS NOT NULL LIMIT 1
) AS limited

-- name: insert_alike
-- The same for jobs that can run at once, have no keys, and differ in their arguments only, as nearly
-- all do that come together. None of them is expected to be there already: if one is, the statement
-- fails, and `insert_jobs` sorts it out. They are answered in the order of the call. Where there is a
-- limit, nothing is stored.
WITH job AS (
    INSERT INTO windlass_job (
        id, queue, task, created_at, state, trigger, position, queued_at, updated_at, seq,
        queued_seq, n, payload, priority, policy, lease, owner, team, tags, headers
    )
    SELECT
        id, $4, $5, now, 'queued', 'enqueue', n, now, now, 2, 2, n, payload, $6, $7, $8, $9, $10,
        $11, $12
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
line AS (
    INSERT INTO windlass_line (queue, priority, position, id, queued_at)
    SELECT $4, $6, n, id, created_at FROM job
)
SELECT array_agg(n), min(created_at) FROM job

-- name: insert_keys
INSERT INTO windlass_key (owner, task, unique_key, n)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[])

-- name: taken_keys
-- Whoever enqueues under a key has it to itself until the commit; what is looked up afterwards holds
-- until then. The constraints stand behind it. Nobody waits here: a caller's transaction that is left
-- open may have one key of a hundred, and the answer names those.
SELECT key FROM unnest($1::bigint[]) AS wanted (key) WHERE NOT pg_try_advisory_xact_lock(key)

-- name: lock_records
-- Records cannot be locked as rows before they exist. In one order for all.
SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) AS wanted (key)

-- name: now
SELECT windlass_now($1)

-- name: get_jobs
-- A star, here and below, is safe: migrations only ever append columns, and rows are read by place.
SELECT * FROM windlass_job WHERE id = ANY ($1::uuid[])

-- name: jobs_by_request
SELECT job.* FROM unnest($1::text[], $2::text[]) AS wanted (owner, request_id), LATERAL (
    SELECT * FROM windlass_job AS job
    WHERE job.owner = wanted.owner AND job.request_id = wanted.request_id
        AND job.request_id IS NOT NULL
    LIMIT 1
) AS job

-- name: active_by_key
SELECT job.* FROM unnest($1::text[], $2::text[], $3::text[]) AS wanted (owner, task, unique_key),
LATERAL (
    SELECT n FROM windlass_key AS key
    WHERE key.owner = wanted.owner AND key.task = wanted.task
        AND key.unique_key = wanted.unique_key
    LIMIT 1
) AS key,
LATERAL (SELECT * FROM windlass_job AS job WHERE job.n = key.n LIMIT 1) AS job

-- name: active_of_lineage
SELECT * FROM windlass_job
WHERE root_id = ANY ($1::uuid[]) AND root_id IS NOT NULL
    AND state IN ('created', 'queued', 'running', 'retrying')

-- name: set_retried_as
UPDATE windlass_job SET retried_as = $2 WHERE n = $1

-- name: copy_steps
INSERT INTO windlass_step (n, step, value, attempt, at)
SELECT $1::bigint, step, value, attempt, at FROM windlass_step WHERE n = $2::bigint

-- name: claim
-- One range scan of the line per queue, or per part of it (see line.py); the rule is core's
-- `decide.claim`, and the model compares the two. Materialized, because a planner that ran the scan again would take more than the limit.
-- What somebody else is taking is stepped over, and so is an expired job, which the sweeper ends.
-- Job rows are locked by id, as everywhere. A row of the line whose job was ended meanwhile goes
-- without a trace. A repeat finds its own leases, and takes nothing more; one that comes while the
-- first call is under way waits for it at the key of its lease, which is not the version that it saw,
-- and is then made again.
-- A job to which nothing happened before, and of which nothing special was asked, is told in a few
-- values instead of 64 (see `rows.claimed`): it has no event but those of being created, queued and
-- started, and the number of its birth as its place in line, unless it took its turn or passed a gate.
-- Where the starts of a time are limited, they are noted, and no gate is locked.
WITH clock AS MATERIALIZED (SELECT windlass_now($1) AS now),
held AS MATERIALIZED (SELECT jobs, xmin AS version FROM windlass_lease WHERE token = $2),
before AS MATERIALIZED (
    SELECT job.n FROM held, unnest(held.jobs) AS each (n), LATERAL (
        SELECT n, state, token FROM windlass_job AS job WHERE job.n = each.n LIMIT 1
    ) AS job WHERE job.state = 'running' AND job.token = $2
),
wanted AS MATERIALIZED (
    SELECT wanted.* FROM clock, unnest($6::text[], $7::bigint[]) AS wanted (queue, most)
    WHERE NOT EXISTS (SELECT FROM before) AND NOT EXISTS (
        SELECT FROM windlass_record AS record
        WHERE record.kind = $8 AND record.key = wanted.queue
            AND (record.expires_at IS NULL OR record.expires_at > clock.now)
    )
),
left_line AS (
    DELETE FROM windlass_line WHERE ctid = ANY (ARRAY(
        SELECT line.ctid FROM clock, wanted, LATERAL (
            SELECT line.ctid FROM unnest($9::text[], $10::integer[], $11::integer[], $12::bigint[])
                AS part (queue, highest, lowest, behind), LATERAL (
                SELECT ctid FROM windlass_line
                WHERE queue = wanted.queue AND priority <= part.highest
                    AND priority >= part.lowest AND position > part.behind
                    AND (expires_at IS NULL OR expires_at > clock.now)
                ORDER BY queue, priority DESC, position, id
                LIMIT wanted.most
                FOR UPDATE SKIP LOCKED
            ) AS line
            WHERE part.queue = wanted.queue
            LIMIT wanted.most
        ) AS line
    ))
    RETURNING id, position, CASE WHEN expires_at IS NOT NULL THEN 'queued' END AS listed
),
taken AS MATERIALIZED (SELECT * FROM left_line ORDER BY id),
job AS (
    UPDATE windlass_job AS job SET
        state = 'running', trigger = 'claim', attempt = job.attempt + 1, fence = job.fence + 1,
        token = $2, worker = $3,
        lease_until = greatest(clock.now, job.updated_at) + coalesce($4, job.lease, $5),
        started_at = greatest(clock.now, job.updated_at),
        first_started_at = coalesce(job.first_started_at, greatest(clock.now, job.updated_at)),
        updated_at = greatest(clock.now, job.updated_at),
        seq = job.seq + 1, started_seq = job.seq + 1, said = 0
    FROM clock, taken
    WHERE job.id = ANY (ARRAY[taken.id]) AND job.state = 'queued'
        AND job.position = taken.position
    RETURNING job.id, job.n, job.queue, job.task, job.created_at, job.started_at, job.lease_until,
        job.payload, job.priority, job.gates, job.limit_key,
        CASE WHEN job.position <> job.n THEN job.position END AS position,
        CASE WHEN job.queued_at <> job.created_at THEN job.queued_at END AS queued_at,
        CASE WHEN job.seq <> 3 OR job.owner <> '' OR job.on_parent <> 'cancel' OR num_nonnulls(
            job.expires_at, job.policy, job.lease, job.team, job.tags, job.headers, job.request_id,
            job.digest, job.unique_key, job.retry_of, job.root_id, job.flow_id
        ) > 0 OR job.position <> job.n AND num_nonnulls(job.limit_key, job.gates) = 0
        THEN ROW (job.*) END AS whole, taken.listed
),
lease AS (
    INSERT INTO windlass_lease AS lease (token, active, jobs)
    SELECT $2, count(*), array_agg(n) FROM job HAVING count(*) > 0
    ON CONFLICT ON CONSTRAINT windlass_lease_key DO UPDATE SET
        active = excluded.active,
        jobs = CASE WHEN lease.xmin = (SELECT version FROM held) THEN excluded.jobs
            ELSE windlass_meet() END
),
rated AS MATERIALIZED (
    SELECT array_agg(given.gate) AS gates FROM (
        SELECT DISTINCT each.gate FROM (
            SELECT DISTINCT gates FROM job
            WHERE gates IS NOT NULL
                AND (SELECT gate FROM windlass_gate WHERE rated ORDER BY gate DESC LIMIT 1) IS NOT NULL
        ) AS alike, unnest(alike.gates) AS each (gate)
    ) AS given, LATERAL (
        SELECT FROM windlass_gate AS gate WHERE gate.gate = given.gate AND gate.rated LIMIT 1
    ) AS rated
),
-- A job has three gates at most; to unnest each one's costs more than all the rest of this.
noted AS (
    INSERT INTO windlass_start (gate, at, jobs)
    SELECT gate, started_at, array_agg(n) FROM (
        SELECT gates[1] AS gate, n, started_at FROM job WHERE (SELECT gates FROM rated) IS NOT NULL
        UNION ALL
        SELECT gates[2], n, started_at FROM job WHERE (SELECT gates FROM rated) IS NOT NULL
        UNION ALL
        SELECT gates[3], n, started_at FROM job WHERE (SELECT gates FROM rated) IS NOT NULL
    ) AS its
    WHERE gate = ANY ((SELECT gates FROM rated)::text[]) GROUP BY gate, started_at
),
started AS (
    DELETE FROM windlass_waiting AS waiting USING job
    WHERE job.listed IS NOT NULL AND waiting.queue = ANY (ARRAY[job.queue])
        AND waiting.state = ANY (ARRAY[job.listed]) AND waiting.n = ANY (ARRAY[job.n])
)
SELECT id, n, queue, task, created_at, started_at, lease_until, payload, priority, whole,
    position, queued_at, limit_key, gates FROM job
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, ROW (job.*),
    NULL, NULL, NULL, NULL FROM before,
    LATERAL (SELECT * FROM windlass_job AS job WHERE job.n = before.n LIMIT 1) AS job

-- name: claimable
-- Whether there is anything for a claim that came back empty: it looked at the line as it was when
-- it began, and what it found there may have been taken while more was put in.
WITH clock AS MATERIALIZED (SELECT windlass_now($1) AS now)
SELECT EXISTS (
    SELECT FROM clock, unnest($3::text[], $4::integer[], $5::integer[], $6::bigint[])
        AS part (queue, highest, lowest, behind), LATERAL (
        SELECT FROM windlass_line
        WHERE queue = part.queue AND priority <= part.highest AND priority >= part.lowest
            AND position > part.behind AND (expires_at IS NULL OR expires_at > clock.now)
        ORDER BY queue, priority DESC, position, id
        LIMIT 1
    ) AS line
    WHERE NOT EXISTS (
        SELECT FROM windlass_record AS record
        WHERE record.kind = $2 AND record.key = part.queue
            AND (record.expires_at IS NULL OR record.expires_at > clock.now)
    )
)

-- name: dead_in_line
SELECT pg_stat_get_dead_tuples('windlass_line'::regclass)

-- name: extend
-- Never shortens: a slow call must not take back what a later one gave. Never waits: one job that
-- somebody's open transaction holds must not cost a worker all its leases.
WITH clock AS MATERIALIZED (SELECT windlass_now($1) AS now),
free AS MATERIALIZED (
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
FROM clock, free WHERE job.n = ANY (ARRAY[free.n])
RETURNING job.id, job.fence, job.token, job.lease_until, job.cancel_at IS NOT NULL

-- name: held_leases
-- Of those that were not extended: which are not lost, but held by somebody's open transaction.
SELECT job.* FROM unnest($1::uuid[], $2::bigint[], $3::uuid[]) AS lease (id, fence, token),
LATERAL (
    SELECT id, job.fence, job.token, lease_until, cancel_at IS NOT NULL FROM windlass_job AS job
    WHERE job.id = lease.id AND job.state = 'running' AND job.fence = lease.fence
        AND job.token = lease.token
    LIMIT 1
) AS job

-- name: succeed
-- The one outcome that is nearly all of them, settled without a look first, in one round trip. The
-- rule is core's `decide`, which decides whatever is not found here; the model compares the two. If
-- somebody's open transaction holds one of the jobs, it gives up soon, and all are decided there.
-- To write an array costs the client more than all the rest, and of a batch most have their fence
-- and token in common: so there is one of each kind, and two bytes for each job that say which is its.
-- Gates are opened once all of a call is written: here, if these are all of it ($9) and nothing is left
-- to be decided. Else whoever left is only taken off, and the gates are told: whoever decides the rest
-- opens them. Should it never come to that, a sweep does.
WITH clock AS MATERIALIZED (
    SELECT windlass_now($1) AS now, set_config('lock_timeout', '250ms', true)
),
done AS (
    UPDATE windlass_job AS job SET
        state = 'succeeded', trigger = 'succeed', held = false, position = NULL, due_at = NULL,
        lease_until = NULL, ended_at = greatest(clock.now, job.updated_at),
        updated_at = greatest(clock.now, job.updated_at), percent = 100, result = wish.result,
        error = NULL, error_body = NULL, seq = job.seq + 1
    FROM clock, (
        SELECT id, ($4::bigint[])[kind] AS fence, ($5::uuid[])[kind] AS token,
            coalesce(own, $7) AS result
        FROM (
            SELECT id, own,
                1 + get_byte($3, place::integer * 2 - 2)
                + 256 * get_byte($3, place::integer * 2 - 1) AS kind
            FROM unnest($2::uuid[], $6::bytea[]) WITH ORDINALITY AS given (id, own, place)
        ) AS given
    ) AS wish
    WHERE job.id = ANY (ARRAY[wish.id]) AND job.state = 'running' AND job.fence = wish.fence
        AND job.token = wish.token AND job.cancel_at IS NULL AND NOT job.awaited
    RETURNING job.unique_key, job.logged, job.n, job.ended_at, job.token, job.gates, job.started_at,
        job.id, job.started_at - job.queued_at AS wait, job.ended_at - job.started_at AS run,
        job.queue, job.task, job.owner
),
ends AS MATERIALIZED (SELECT token, count(*) AS count FROM done GROUP BY token ORDER BY token),
freed AS (
    UPDATE windlass_lease AS lease SET active = lease.active - ends.count
    FROM ends WHERE lease.token = ANY (ARRAY[ends.token])
    RETURNING lease.token
),
freed_keys AS (
    DELETE FROM windlass_key AS key USING done
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
    FROM done, clock WHERE (SELECT count(*) FROM freed) >= 0  -- which comes first, as everywhere
    GROUP BY clock.now, queue, task ORDER BY queue, task
    ON CONFLICT ON CONSTRAINT windlass_rollup_key DO UPDATE SET
        count = rollup.count + excluded.count, wait = rollup.wait + excluded.wait,
        run = rollup.run + excluded.run
),
ended AS MATERIALIZED (
    SELECT count(*) AS count, count(gates) AS gated, $9 AND count(*) = cardinality($2) AS whole,
        CASE WHEN count(*) < cardinality($2) THEN array_agg(id) END AS some FROM done
)
-- Nearly always it is all of them: then their number is enough. Whom their ends make room for is
-- let in with it: the function sees what this statement did.
SELECT ended.count, ended.some, CASE WHEN ended.gated > 0 THEN (
    SELECT windlass_admit(
        leaving.gates, leaving.numbers, leaving.starts, clock.now, opening => ended.whole)
    FROM (
        SELECT array_agg(gate) AS gates, array_agg(n) AS numbers, array_agg(started_at) AS starts
        FROM (
            SELECT gates[1] AS gate, n, started_at FROM done WHERE gates IS NOT NULL
            UNION ALL
            SELECT gates[2], n, started_at FROM done WHERE gates[2] IS NOT NULL
            UNION ALL
            SELECT gates[3], n, started_at FROM done WHERE gates[3] IS NOT NULL
        ) AS its
    ) AS leaving
) END, CASE WHEN ended.gated > 0 AND NOT ended.whole THEN ARRAY(
    SELECT DISTINCT each.gate FROM (
        SELECT DISTINCT gates FROM done WHERE gates IS NOT NULL
    ) AS alike, unnest(alike.gates) AS each (gate)
) END
FROM clock, ended

-- name: standings
-- What decisions look at, under the rows' locks; the locks are taken in the order of the call, which
-- is that of the ids. What somebody else has locked is left out: their transaction may last.
SELECT job.* FROM unnest($1::uuid[]) AS wanted (id), LATERAL (SELECT
    id, queue, task, created_at, expires_at, state, trigger, held, waiting_for, position, due_at,
    attempt, fence, token, worker, lease_until, queued_at, started_at, first_started_at, ended_at,
    updated_at, seq, queued_seq, started_seq, said, percent, stage, phase, base_percent, base_stage,
    base_phase, retry_count, crash_count, cancel_at, cancel_by, cancel_reason, error, error_body,
    last_step, n, priority, owner, unique_key, logged, on_parent, awaited, signals, gates, gate,
    limit_key
FROM windlass_job AS job WHERE job.id = wanted.id LIMIT 1 FOR UPDATE SKIP LOCKED) AS job

-- name: lock_soon
-- For those who have others to see to: in the same order, and not for long.
SELECT job.* FROM (SELECT set_config('lock_timeout', '250ms', true) OFFSET 0) AS soon,
    unnest($1::uuid[]) AS wanted (id), LATERAL (
        SELECT n FROM windlass_job AS job WHERE job.id = wanted.id LIMIT 1 FOR UPDATE
    ) AS job

-- name: wait_as_usual
SELECT set_config('lock_timeout', '0', true)

-- name: lock_jobs
-- For those few who wait: in the order of the ids, too.
SELECT job.* FROM unnest($1::uuid[]) AS wanted (id), LATERAL (
    SELECT n FROM windlass_job AS job WHERE job.id = wanted.id LIMIT 1 FOR UPDATE
) AS job

-- name: present
SELECT id FROM windlass_job WHERE id = ANY ($1::uuid[])

-- name: save
-- What decisions changed, and with it the places that go by those values: a place in line, and who
-- waits outside of it. Positions are given in the order of the call, unless it says which.
WITH new AS MATERIALIZED (
    SELECT * FROM unnest(
        $1::bigint[], $2::text[], $3::text[], $4::boolean[], $5::bigint[], $6::bigint[],
        $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[],
        $13::bigint[], $14::bigint[], $15::bigint[], $16::smallint[], $17::text[], $18::text[],
        $19::smallint[], $20::text[], $21::text[], $22::bigint[], $23::bigint[], $24::bigint[],
        $25::text[], $26::text[], $27::text[], $28::bytea[], $29::bytea[], $30::text[],
        $31::bigint[], $32::bigint[], $33::text[], $34::boolean[], $35::boolean[], $36::bigint[],
        $37::boolean[], $38::bigint[]
    ) AS new (
        n, state, trigger, held, position, due_at, lease_until, queued_at, started_at, ended_at,
        updated_at, seq, queued_seq, started_seq, said, percent, stage, phase, base_percent,
        base_stage, base_phase, retry_count, crash_count, cancel_at, cancel_by, cancel_reason,
        error, error_body, result, last_step, waiting_for, signals, gate, logged, requeued, turn,
        waits, at
    )
),
job AS (
    UPDATE windlass_job AS job SET
        state = new.state, trigger = new.trigger, held = new.held,
        position = CASE WHEN NOT new.requeued THEN new.position
            WHEN new.turn IS NULL THEN nextval('windlass_serial') ELSE new.turn END,
        due_at = new.due_at, lease_until = new.lease_until, queued_at = new.queued_at,
        started_at = new.started_at, ended_at = new.ended_at, updated_at = new.updated_at,
        seq = new.seq, queued_seq = new.queued_seq, started_seq = new.started_seq, said = new.said,
        percent = new.percent, stage = new.stage, phase = new.phase,
        base_percent = new.base_percent, base_stage = new.base_stage, base_phase = new.base_phase,
        retry_count = new.retry_count, crash_count = new.crash_count, cancel_at = new.cancel_at,
        cancel_by = new.cancel_by, cancel_reason = new.cancel_reason, error = new.error,
        error_body = new.error_body, result = new.result, last_step = new.last_step,
        waiting_for = new.waiting_for, signals = new.signals, gate = new.gate, logged = new.logged
    FROM new WHERE job.n = ANY (ARRAY[new.n])
    RETURNING job.n, job.id, job.queue, job.priority, job.position, job.queued_at, job.state,
        job.gate, job.limit_key, new.requeued, new.waits, new.at,
        CASE WHEN job.first_started_at IS NULL THEN job.expires_at END AS expires_at
),
line AS (
    INSERT INTO windlass_line (queue, priority, position, id, queued_at, expires_at, limit_key)
    SELECT queue, priority, position, id, queued_at, expires_at, limit_key
    FROM job WHERE requeued AND gate IS NULL
),
parked AS (
    INSERT INTO windlass_parked (
        gate, priority, position, id, n, queue, state, expires_at, limit_key)
    SELECT gate, priority, position, id, n, queue, state, expires_at, limit_key
    FROM job WHERE requeued AND gate IS NOT NULL
)
INSERT INTO windlass_waiting (queue, state, n, at)
SELECT queue, state, n, at FROM job WHERE waits
ON CONFLICT ON CONSTRAINT windlass_waiting_key DO UPDATE SET at = excluded.at

-- name: count_down
-- The last locks of a transaction but for the counts: in the order of the call, which is by token.
UPDATE windlass_lease AS lease SET active = lease.active - ends.count
FROM unnest($1::uuid[], $2::bigint[]) AS ends (token, count)
WHERE lease.token = ANY (ARRAY[ends.token])

-- name: leave_waiting
DELETE FROM windlass_waiting AS waiting
USING unnest($1::text[], $2::text[], $3::bigint[]) AS gone (queue, state, n)
WHERE waiting.queue = ANY (ARRAY[gone.queue]) AND waiting.state = ANY (ARRAY[gone.state])
    AND waiting.n = ANY (ARRAY[gone.n])

-- name: leave_line
-- Never waits: whoever has locked a row of the line is a claim that waits for the job, and will
-- find it ended. If that claim fails after all, the row stays until the next one steps on it, or, if
-- it expired and claims pass it by, until `drop_line`.
DELETE FROM windlass_line WHERE ctid = ANY (ARRAY(
    SELECT line.ctid FROM unnest($1::text[], $2::integer[], $3::bigint[], $4::uuid[])
        AS gone (queue, priority, position, id), LATERAL (
        SELECT ctid FROM windlass_line AS line
        WHERE line.queue = gone.queue AND line.priority = gone.priority
            AND line.position = gone.position AND line.id = gone.id
        LIMIT 1 FOR UPDATE SKIP LOCKED
    ) AS line
))

-- name: leave_gate
-- The job is locked, and so is its place.
DELETE FROM windlass_parked WHERE ctid = ANY (ARRAY(
    SELECT parked.ctid FROM unnest($1::text[], $2::integer[], $3::bigint[], $4::uuid[])
        AS gone (gate, priority, position, id), LATERAL (
        SELECT ctid FROM windlass_parked AS parked
        WHERE parked.gate = gone.gate AND parked.priority = gone.priority
            AND parked.position = gone.position AND parked.id = gone.id
        LIMIT 1
    ) AS parked
))

-- name: turns
-- Numbers for jobs that come into a line, in the order of the call; who is the first there, and the
-- last of a key.
SELECT nextval('windlass_serial'), first, last
FROM unnest($1::text[], $2::text[], $3::integer[], $4::text[])
    AS given (queue, gate, priority, limit_key),
LATERAL windlass_ends(queue, gate, priority, limit_key)

-- name: admit
-- Gates, who has left each, and when its attempt had started; no job for somebody new.
SELECT windlass_admit($1::text[], $2::bigint[], $3::bigint[], $4, opening => true)

-- name: lock_gates
-- All gates of a limit, in the order of all others. Others wait there: a process that is frozen now
-- must not keep them.
SELECT gate.* FROM (
    SELECT set_config('idle_in_transaction_session_timeout', '5s', true) OFFSET 0
) AS soon, LATERAL (
    SELECT gate FROM windlass_gate
    WHERE gate >= $1 AND gate < $1 || chr(32) AND (gate = $1 OR gate > $1 || chr(31))
    ORDER BY gate FOR NO KEY UPDATE
) AS gate

-- name: look_again
-- A limit was changed, and its gates are locked: so whoever waits there is seen. Another limit may
-- count other passes. Where nobody waits, there is nothing to look at.
UPDATE windlass_gate AS gate SET checked_at = 0, look_at = CASE WHEN (
    SELECT n FROM windlass_parked AS parked WHERE parked.gate = gate.gate LIMIT 1
) IS NOT NULL THEN 0 END
WHERE gate >= $1 AND gate < $1 || chr(32) AND (gate = $1 OR gate > $1 || chr(31))

-- name: idle_gates
-- Where somebody knocked, or nothing is left.
SELECT array_agg(DISTINCT gate) FROM (
    (SELECT gate FROM windlass_knock LIMIT $2)
    UNION ALL
    (SELECT gate FROM windlass_gate WHERE idle_at IS NOT NULL AND idle_at <= $1
        ORDER BY idle_at LIMIT $2)
) AS found

-- name: drop_gates
DELETE FROM windlass_gate AS idle WHERE gate = ANY ($1::text[]) AND (
    SELECT n FROM windlass_parked AS parked WHERE parked.gate = idle.gate LIMIT 1
) IS NULL AND (
    SELECT fence FROM windlass_pass AS pass WHERE pass.gate = idle.gate LIMIT 1
) IS NULL AND (
    SELECT at FROM windlass_start AS start WHERE start.gate = idle.gate LIMIT 1
) IS NULL

-- name: drop_line
-- Places in line of jobs that are not there any more (see above), which no claim will step on.
DELETE FROM windlass_line WHERE ctid = ANY (ARRAY(
    SELECT line.ctid FROM (
        SELECT ctid, id, position FROM windlass_line
        WHERE expires_at IS NOT NULL AND expires_at <= $1 ORDER BY expires_at LIMIT $2
        FOR UPDATE SKIP LOCKED
    ) AS line
    WHERE (
        SELECT job.n FROM windlass_job AS job
        WHERE job.id = line.id AND job.state = 'queued' AND job.position = line.position LIMIT 1
    ) IS NULL
))

-- name: list_ended
WITH over AS MATERIALIZED (
    SELECT * FROM unnest(
        $1::bigint[], $2::text[], $3::bigint[], $4::boolean[], $5::text[], $6::text[], $7::text[]
    ) AS over (n, state, ended_at, logged, owner, task, unique_key)
),
listed AS (
    INSERT INTO windlass_ended (kind, ended_at, jobs)
    SELECT state, ended_at, array_agg(n ORDER BY n) FROM over GROUP BY state, ended_at
    UNION ALL
    SELECT 'log', ended_at, array_agg(n ORDER BY n) FROM over WHERE logged GROUP BY ended_at
),
trouble AS (INSERT INTO windlass_trouble (n) SELECT n FROM over WHERE state <> 'succeeded')
DELETE FROM windlass_key AS key USING over
WHERE over.unique_key IS NOT NULL AND key.owner = ANY (ARRAY[over.owner])
    AND key.task = ANY (ARRAY[over.task]) AND key.unique_key = ANY (ARRAY[over.unique_key])

-- name: insert_log
INSERT INTO windlass_log (n, seq, at, type, attempt, fence, said, facts, body)
SELECT * FROM unnest(
    $1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[],
    $8::text[], $9::bytea[]
)

-- name: past_outcomes
SELECT log.* FROM unnest($1::bigint[], $2::bigint[]) AS wanted (n, fence), LATERAL (
    SELECT log.n, log.fence, log.facts FROM windlass_log AS log
    WHERE log.n = wanted.n AND log.fence = wanted.fence AND log.type = 'attempt'
    LIMIT 1
) AS log

-- name: put_steps
INSERT INTO windlass_step (n, step, value, attempt, at)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::bigint[], $5::bigint[])
ON CONFLICT ON CONSTRAINT windlass_step_key DO UPDATE SET
    value = excluded.value, attempt = excluded.attempt, at = excluded.at

-- name: get_steps
SELECT job.id, step.step, step.value, step.attempt, step.at
FROM unnest($1::uuid[]) AS wanted (id),
LATERAL (SELECT id, n FROM windlass_job AS job WHERE job.id = wanted.id LIMIT 1) AS job,
LATERAL (SELECT * FROM windlass_step AS step WHERE step.n = job.n OFFSET 0) AS step

-- name: known_steps
SELECT step.n, step.step FROM unnest($1::bigint[], $2::text[]) AS wanted (n, step), LATERAL (
    SELECT n, step FROM windlass_step AS step
    WHERE step.n = wanted.n AND step.step = wanted.step LIMIT 1
) AS step

-- name: below
-- The time, and who waits for those of these jobs ($2) that may end: by success ($3), or without it
-- ($4; or because it was asked to cancel, or has expired), and then also who waits for those, and so
-- on. Read before any lock: whoever is found is locked with the others in one order, and
-- `dependents` looks again then.
WITH RECURSIVE ending AS MATERIALIZED (
    SELECT job.n, job.id, job.cancel_at IS NOT NULL
        OR coalesce(job.expires_at <= windlass_now($1), false) OR job.id = ANY ($4::uuid[]) AS deep
    FROM unnest($2::uuid[]) AS wanted (id), LATERAL (
        SELECT n, id, cancel_at, expires_at FROM windlass_job AS job
        WHERE job.id = wanted.id AND job.awaited LIMIT 1
    ) AS job
),
below AS (
    SELECT n, NULL::uuid AS id, deep FROM ending WHERE deep OR id = ANY ($3::uuid[])
    UNION
    SELECT edge.child, edge.child_id, below.deep FROM below, LATERAL (
        SELECT child, child_id FROM windlass_edge AS edge
        WHERE edge.parent = below.n AND edge.open ORDER BY parent, child LIMIT 1000000
    ) AS edge
    WHERE below.deep OR below.id IS NULL
)
SELECT windlass_now($1), ARRAY(SELECT DISTINCT id FROM below WHERE id IS NOT NULL)

-- name: dependents
SELECT edge.parent_id, edge.child_id FROM unnest($1::bigint[]) AS wanted (n), LATERAL (
    SELECT parent_id, child_id FROM windlass_edge AS edge
    WHERE edge.parent = wanted.n AND edge.open ORDER BY parent, child LIMIT 1000000
) AS edge

-- name: tell_dependents
UPDATE windlass_edge AS edge SET open = false
FROM unnest($1::bigint[]) AS wanted (n)
WHERE edge.parent = ANY (ARRAY[wanted.n]) AND edge.open

-- name: wait_no_more
UPDATE windlass_edge AS edge SET open = false
FROM unnest($1::bigint[]) AS wanted (n)
WHERE edge.child = ANY (ARRAY[wanted.n]) AND edge.open

-- name: put_edges
-- A job that is suspended again may wait for the same one as before.
INSERT INTO windlass_edge (child, child_id, parent, parent_id, place, open)
SELECT child, child_id, parent, parent_id, place, open FROM unnest(
    $1::bigint[], $2::uuid[], $3::bigint[], $4::uuid[], $5::bigint[], $6::boolean[]
) AS new (child, child_id, parent, parent_id, place, open)
ON CONFLICT ON CONSTRAINT windlass_edge_key DO UPDATE SET open = excluded.open

-- name: next_place
SELECT coalesce(max(place), -1) + 1 FROM windlass_edge WHERE child = $1

-- name: mark_awaited
UPDATE windlass_job AS job SET awaited = true
FROM unnest($1::bigint[]) AS wanted (n)
WHERE job.n = ANY (ARRAY[wanted.n]) AND NOT job.awaited

-- name: edges
SELECT wanted.id,
    ARRAY(
        SELECT edge.parent_id FROM windlass_edge AS edge WHERE edge.child = job.n
        ORDER BY edge.place LIMIT $2::bigint
    ),
    ARRAY(
        SELECT edge.child_id FROM windlass_edge AS edge WHERE edge.parent = job.n
        ORDER BY edge.parent, edge.child LIMIT $2::bigint
    )
FROM unnest($1::uuid[]) AS wanted (id),
    LATERAL (SELECT n FROM windlass_job AS job WHERE job.id = wanted.id LIMIT 1) AS job

-- name: flows
SELECT flow_id, state, count(*), sum(percent)::bigint, min(created_at), max(ended_at)
FROM windlass_job
WHERE flow_id IS NOT NULL AND flow_id = ANY ($1::uuid[]) AND retried_as IS NULL
    AND ($2::text IS NULL OR owner = $2) AND ($3::text IS NULL OR team = $3)
GROUP BY flow_id, state

-- name: flows_before
-- Flows are found by hopping from one to the next.
WITH RECURSIVE hop AS (
    (
        SELECT flow_id, 1 AS place FROM windlass_job
        WHERE flow_id IS NOT NULL AND flow_id < $1 AND $2 > 0
        ORDER BY flow_id DESC, n DESC LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT job.flow_id FROM windlass_job AS job
        WHERE job.flow_id IS NOT NULL AND job.flow_id < hop.flow_id
        ORDER BY job.flow_id DESC, job.n DESC LIMIT 1
    ), hop.place + 1 FROM hop WHERE hop.flow_id IS NOT NULL AND hop.place < $2
)
SELECT flow_id FROM hop WHERE flow_id IS NOT NULL ORDER BY flow_id DESC

-- name: newest_of_flows
SELECT wanted.flow_id, EXISTS (
    SELECT FROM windlass_job AS job WHERE job.flow_id IS NOT NULL AND job.flow_id = wanted.flow_id
    ORDER BY job.flow_id DESC, job.n DESC LIMIT 1 OFFSET $2
), job.state, count(*), sum(job.percent)::bigint, min(job.created_at), max(job.ended_at)
FROM unnest($1::uuid[]) AS wanted (flow_id), LATERAL (
    SELECT state, percent, created_at, ended_at, retried_as, owner, team FROM windlass_job AS job
    WHERE job.flow_id IS NOT NULL AND job.flow_id = wanted.flow_id
    ORDER BY job.flow_id DESC, job.n DESC LIMIT $2
) AS job
WHERE job.retried_as IS NULL
    AND ($3::text IS NULL OR job.owner = $3) AND ($4::text IS NULL OR job.team = $4)
GROUP BY wanted.flow_id, job.state

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
-- First whoever is the first at a gate that is to be looked at, but for those that somebody's open
-- transaction holds. Gates at which nobody waits are passed by, however many there are: they count
-- in no limit.
WITH RECURSIVE clock AS MATERIALIZED (SELECT windlass_now($1) AS now),
knocked AS (
    (SELECT gate FROM windlass_knock ORDER BY gate LIMIT 1)
    UNION ALL
    SELECT (
        SELECT knock.gate FROM windlass_knock AS knock WHERE knock.gate > knocked.gate
        ORDER BY knock.gate LIMIT 1
    ) FROM knocked WHERE knocked.gate IS NOT NULL
),
gates AS (
    SELECT gate FROM clock, LATERAL (
        SELECT gate FROM windlass_gate WHERE look_at IS NOT NULL AND look_at <= clock.now
        ORDER BY look_at OFFSET 0
    ) AS due
    UNION ALL
    SELECT gate FROM knocked WHERE gate IS NOT NULL
),
heads AS MATERIALIZED (
    SELECT DISTINCT n FROM (
        SELECT parked.n FROM gates, LATERAL (
            SELECT parked.n FROM windlass_parked AS parked, LATERAL (
                SELECT FROM windlass_job AS job WHERE job.n = parked.n LIMIT 1 FOR SHARE SKIP LOCKED
            ) AS free
            WHERE parked.gate = gates.gate
            ORDER BY parked.gate, parked.priority DESC, parked.position, parked.id LIMIT 1
        ) AS parked LIMIT $2
    ) AS found
),
found AS MATERIALIZED (
    SELECT -1::bigint AS at, n FROM heads
    UNION ALL
    SELECT waiting.at, waiting.n FROM clock, LATERAL (
        SELECT at, n FROM windlass_waiting WHERE at IS NOT NULL AND at <= clock.now
        ORDER BY at, n LIMIT $2
    ) AS waiting WHERE waiting.n NOT IN (SELECT n FROM heads)
)
SELECT job.* FROM found,
    LATERAL (SELECT * FROM windlass_job AS job WHERE job.n = found.n LIMIT 1) AS job
ORDER BY found.at, found.n LIMIT $2

-- name: expired
-- Reads the jobs of all claims that still have one running. Those are little more than there are
-- slots, not as many as there are jobs. A claim that has none left is forgotten, unless somebody is
-- about to change that.
WITH clock AS MATERIALIZED (SELECT windlass_now($1) AS now),
held AS MATERIALIZED (SELECT token, active, jobs FROM windlass_lease ORDER BY token),
running AS MATERIALIZED (
    SELECT held.token, job.n, job.lease_until FROM held, unnest(held.jobs) AS each (n), LATERAL (
        SELECT n, state, token, lease_until FROM windlass_job AS job WHERE job.n = each.n LIMIT 1
    ) AS job
    WHERE held.active > 0 AND job.state = 'running' AND job.token = held.token
),
forgotten AS (
    DELETE FROM windlass_lease WHERE ctid = ANY (ARRAY(
        SELECT lease.ctid FROM held, LATERAL (
            SELECT ctid FROM windlass_lease AS lease
            WHERE lease.token = held.token AND lease.jobs = held.jobs
            LIMIT 1 FOR UPDATE SKIP LOCKED
        ) AS lease
        WHERE held.token NOT IN (SELECT token FROM running)
    ))
)
SELECT job.* FROM clock, running,
    LATERAL (SELECT * FROM windlass_job AS job WHERE job.n = running.n LIMIT 1) AS job
WHERE running.lease_until <= clock.now
ORDER BY running.lease_until, running.n
LIMIT $2

-- name: lock_upkeep
-- One at a time is enough: whoever finds another pruning leaves it to them.
SELECT pg_try_advisory_xact_lock($1), windlass_now($2)

-- name: past_keeping
-- The first rows hold the first jobs: each row's jobs are in order, and rows are by their first.
SELECT ended.ended_at, job.n FROM (
    SELECT ended_at, jobs FROM windlass_ended WHERE kind = $1 AND ended_at <= $2
    ORDER BY ended_at, (jobs[1]) LIMIT $3
) AS ended, unnest(ended.jobs) AS job (n)
ORDER BY ended.ended_at, job.n
LIMIT $3

-- name: unlist
WITH gone AS MATERIALIZED (
    SELECT kind, ended_at, array_agg(n) AS jobs
    FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS gone (kind, ended_at, n)
    GROUP BY kind, ended_at
)
UPDATE windlass_ended AS ended
SET jobs = ARRAY(SELECT n FROM unnest(ended.jobs) AS n WHERE n <> ALL (gone.jobs) ORDER BY n)
FROM gone
WHERE ended.kind = ANY (ARRAY[gone.kind]) AND ended.ended_at = ANY (ARRAY[gone.ended_at])
    AND ended.jobs && gone.jobs

-- name: drop_unlisted
DELETE FROM windlass_ended AS ended USING unnest($1::text[], $2::bigint[]) AS gone (kind, ended_at)
WHERE ended.kind = ANY (ARRAY[gone.kind]) AND ended.ended_at = ANY (ARRAY[gone.ended_at])
    AND ended.jobs = '{}'

-- name: lock_ended
-- Those of finished jobs that nobody else has locked; the others are for the next time.
SELECT n FROM windlass_job WHERE n = ANY ($1::bigint[]) FOR UPDATE SKIP LOCKED

-- name: forget_logs
WITH log AS (DELETE FROM windlass_log WHERE n = ANY ($1::bigint[]))
UPDATE windlass_job SET logged = false, log_floor = seq - 1 WHERE n = ANY ($1::bigint[])

-- name: delete_jobs
WITH log AS (DELETE FROM windlass_log WHERE n = ANY ($1::bigint[])),
step AS (DELETE FROM windlass_step WHERE n = ANY ($1::bigint[])),
edge AS (DELETE FROM windlass_edge WHERE child = ANY ($1::bigint[])),
trouble AS (DELETE FROM windlass_trouble WHERE n = ANY ($1::bigint[]))
DELETE FROM windlass_job WHERE n = ANY ($1::bigint[]) RETURNING n, state, ended_at, logged

-- name: delete_old_rollups
WITH gone AS (
    DELETE FROM windlass_rollup WHERE minute < $1 RETURNING minute, queue, task, outcome
)
SELECT count(*) FROM (SELECT DISTINCT minute, queue, task, outcome FROM gone) AS counted

-- name: events
-- One statement, so that the row and its log are of one moment. The first lines of either sort:
-- `event.page` stops where the numbers are no longer dense.
SELECT job.*, ARRAY(
    SELECT ROW(seq, at, type, attempt, fence, said, facts, body) FROM windlass_log AS log
    WHERE log.n = job.n AND seq > $2 AND type <> 'attempt' ORDER BY seq LIMIT $3
), ARRAY(
    SELECT ROW(seq, at, type, attempt, fence, said, facts, body) FROM windlass_log AS log
    WHERE log.n = job.n AND seq > $2 AND type = 'attempt' ORDER BY fence LIMIT $3
)
FROM windlass_job AS job WHERE id = $1

-- name: attempts
SELECT job.*, ARRAY(
    SELECT ROW(seq, at, type, attempt, fence, said, facts, body) FROM windlass_log AS log
    WHERE log.n = job.n AND type = 'attempt' ORDER BY fence
)
FROM windlass_job AS job WHERE id = $1

-- name: stretch
-- The jobs a page looks at: a bounded stretch, newest first, so that a page costs the same however
-- many jobs there are. It may then be short, and its cursor leads on.
SELECT n FROM windlass_job WHERE n < $1 ORDER BY n DESC LIMIT $2

-- name: stretch_of_trouble
-- The same among failed and canceled jobs: they are rare, and a table holds them together.
SELECT n FROM windlass_trouble WHERE n < $1 ORDER BY n DESC LIMIT $2

-- name: stretch_of_lineage
-- The same among the retries of one first job.
SELECT n FROM windlass_job
WHERE root_id IS NOT NULL AND root_id = $3 AND n < $1 ORDER BY root_id DESC, n DESC LIMIT $2

-- name: stretch_of_flow
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
            ARRAY[task, error::json ->> 'code'] || tags || windlass_words(error_body)
        ) AS said (word)
        WHERE strpos(lower(word COLLATE "C"), $17) > 0))
ORDER BY n DESC
LIMIT $18

-- name: numbered
SELECT * FROM windlass_job WHERE n = ANY ($1::bigint[])

-- name: numbered_bare
-- In the order of the table, without the payload and the result: lists show neither.
SELECT id, n, owner, request_id, root_id, flow_id, limit_key, gates, gate, queue, task, created_at,
    expires_at, state, trigger, held, waiting_for, position, due_at, attempt, fence, token, worker,
    lease_until, queued_at, started_at, first_started_at, ended_at, updated_at, seq, queued_seq,
    started_seq, said, percent, stage, phase, base_percent, base_stage, base_phase, retry_count,
    crash_count, cancel_at, cancel_by, cancel_reason, error, error_body, NULL::bytea, last_step,
    ''::bytea, priority, policy, lease, team, tags, headers, digest, unique_key, retry_of,
    retried_as, log_floor, logged, on_parent, awaited, signals
FROM windlass_job WHERE n = ANY ($1::bigint[])

-- name: failures
-- The last first. Not the payload, which may be large.
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
-- Queues are found by hopping from one to the next, and counted up to a cap.
WITH RECURSIVE queues AS (
    (SELECT queue FROM windlass_line ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (
        SELECT line.queue FROM windlass_line AS line WHERE line.queue > queues.queue
        ORDER BY line.queue LIMIT 1
    ) FROM queues WHERE queues.queue IS NOT NULL
),
asides AS (
    (SELECT queue, state FROM windlass_waiting ORDER BY queue, state LIMIT 1)
    UNION ALL
    SELECT next.queue, next.state FROM asides, LATERAL (
        SELECT waiting.queue, waiting.state FROM windlass_waiting AS waiting
        WHERE (waiting.queue, waiting.state) > (asides.queue, asides.state)
        ORDER BY waiting.queue, waiting.state LIMIT 1
    ) AS next
),
parked AS (
    (
        SELECT queue, state FROM windlass_parked WHERE expires_at IS NULL
        ORDER BY queue, state LIMIT 1
    )
    UNION ALL
    SELECT next.queue, next.state FROM parked, LATERAL (
        SELECT waiting.queue, waiting.state FROM windlass_parked AS waiting
        WHERE (waiting.queue, waiting.state) > (parked.queue, parked.state)
            AND waiting.expires_at IS NULL
        ORDER BY waiting.queue, waiting.state LIMIT 1
    ) AS next
)
SELECT queue, 'queued' AS state,
    (SELECT count(*) FROM (
        SELECT FROM windlass_line AS line WHERE line.queue = queues.queue LIMIT $1 + 1) AS counted),
    (SELECT min(queued_at) FROM (
        SELECT queued_at FROM windlass_line AS line WHERE line.queue = queues.queue
        ORDER BY queue, priority DESC, position LIMIT $1) AS counted)
FROM queues WHERE queue IS NOT NULL
UNION ALL
SELECT queue, state, sum(count)::bigint, NULL FROM (
    SELECT queue, state, (SELECT count(*) FROM (
        SELECT FROM windlass_waiting AS waiting
        WHERE waiting.queue = asides.queue AND waiting.state = asides.state LIMIT $1 + 1
    ) AS counted) AS count
    FROM asides WHERE state <> 'queued'
    UNION ALL
    SELECT queue, state, (SELECT count(*) FROM (
        SELECT FROM windlass_parked AS waiting
        WHERE waiting.queue = parked.queue AND waiting.state = parked.state
            AND waiting.expires_at IS NULL LIMIT $1 + 1
    ) AS counted) AS count
    FROM parked
) AS aside GROUP BY queue, state
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
FROM unnest($1::text[], $2::text[]) AS wanted (kind, key), LATERAL (
    SELECT record.value, record.version, record.expires_at FROM windlass_record AS record
    WHERE record.kind = wanted.kind AND record.key = wanted.key LIMIT 1
) AS record

-- name: put_records
INSERT INTO windlass_record (kind, key, value, version, expires_at)
SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::bigint[], $5::bigint[])
ON CONFLICT ON CONSTRAINT windlass_record_key DO UPDATE SET
    value = excluded.value, version = excluded.version, expires_at = excluded.expires_at

-- name: may_put
SELECT has_table_privilege('windlass_record', 'INSERT')

-- name: declare
SELECT windlass_declare(name, value) FROM unnest($1::text[], $2::bytea[]) AS given (name, value)

-- name: list_records
WITH clock AS MATERIALIZED (SELECT windlass_now($1) AS now)
SELECT kind, key, value, version, expires_at FROM clock, windlass_record
WHERE kind = $2 AND key > $3 AND (expires_at IS NULL OR expires_at > clock.now)
ORDER BY key LIMIT $4

-- name: delete_records
DELETE FROM windlass_record WHERE kind = $1 AND key = ANY ($2::text[])

-- name: delete_dead_records
WITH gone AS (DELETE FROM windlass_record WHERE expires_at <= $1 RETURNING 1)
SELECT count(*) FROM gone

-- name: notify
-- Nothing is lost with a hint, so nobody waits for the disk.
SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)

-- name: heads
-- The first place that is alive in the line of each of these queues and priorities. What somebody is
-- taking is among them: to lock it here would keep others from it.
WITH clock AS MATERIALIZED (SELECT windlass_now($1) AS now)
SELECT wanted.queue, wanted.priority, line.position
FROM clock, unnest($2::text[], $3::integer[]) AS wanted (queue, priority), LATERAL (
    SELECT position FROM windlass_line
    WHERE queue = wanted.queue AND priority = wanted.priority
        AND (expires_at IS NULL OR expires_at > clock.now)
    ORDER BY queue, priority DESC, position
    LIMIT 1
) AS line

-- name: gates
-- How many wait at each, how many hold a slot, three of those, and when to look again.
SELECT (
    SELECT count(*) FROM (
        SELECT FROM windlass_parked AS parked WHERE parked.gate = wanted.name LIMIT $2
    ) AS counted
), held.count, held.some, (
    SELECT look_at FROM windlass_gate AS gate WHERE gate.gate = wanted.name LIMIT 1
)
FROM unnest($1::text[]) WITH ORDINALITY AS wanted (name, place), LATERAL (
    SELECT count(*) AS count, (array_agg(holder.id ORDER BY holder.at, holder.id))[:$3] AS some
    FROM (
        SELECT pass.at, job.id FROM windlass_pass AS pass, unnest(pass.jobs) AS each (n), LATERAL (
            SELECT id, fence, state, gate FROM windlass_job AS job WHERE job.n = each.n LIMIT 1
        ) AS job
        WHERE pass.gate = wanted.name
            AND windlass_holds(pass.fence, job.fence, job.state, job.gate)
    ) AS holder
) AS held
ORDER BY wanted.place
