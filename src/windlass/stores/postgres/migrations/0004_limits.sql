-- Limits: which jobs may enter the queue. The rules are core's `admission.gates`; the model test
-- compares the two.

-- Returns the gates of a job, in order; NULL for none. The same as core's `gates_of`.
CREATE FUNCTION windlass_gates(queue text, task text, limit_key text) RETURNS text[]
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_variable
DECLARE
    gates text[] := '{}';
    name text;
BEGIN
    FOR name IN
        SELECT record.key FROM windlass_record AS record
        WHERE record.kind = 'limit'
            AND record.key = ANY (ARRAY['key:' || task, 'task:' || task, 'queue:' || queue])
        ORDER BY strpos('ktq', left(record.key, 1))
    LOOP
        IF NOT starts_with(name, 'key:') THEN
            gates := gates || name;
        ELSIF limit_key IS NOT NULL THEN
            gates := gates || (name || chr(31) || limit_key);
        END IF;
    END LOOP;
    RETURN nullif(gates, '{}');
END
$$;

-- Stores a limit that code declares, as the bytes of core's `LimitSetting`, unless that name has
-- one. A role that may only enqueue cannot write records, but its jobs need their gates. So this
-- function runs with the rights of the tables' owner (SECURITY DEFINER). It refuses everything else.
-- All names in it are qualified: no function of the caller's search_path can replace them.
DO $do$
BEGIN
    EXECUTE format($format$
CREATE FUNCTION %1$I.windlass_declare_limit(name text, value bytea) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    content text := convert_from(value, 'UTF8');
    limits jsonb := content::jsonb;
    concurrency text := limits ->> 'concurrency';
    starts text := limits ->> 'starts';
    period text := limits ->> 'period';
    fields text := format('"concurrency":%%s,"starts":%%s,"period":%%s',
        coalesce(concurrency, 'null'), coalesce(starts, 'null'), coalesce(period, 'null'));
BEGIN
    IF coalesce(name, '') !~ '^(queue|task|key):.' OR length(name) > 512
        OR content IS DISTINCT FROM format('{%%s,"declared":{%%s},"override":null}', fields, fields)
        OR num_nonnulls(concurrency, starts) = 0 OR num_nonnulls(starts, period) = 1
        OR NOT coalesce(concurrency, '1') ~ '^[1-9][0-9]{0,5}$'
        OR NOT coalesce(starts, '1') ~ '^[1-9][0-9]{0,5}$'
        OR NOT coalesce(period, '1') ~ '^[0-9]{1,9}(\.[0-9]{1,20})?$'
    THEN
        PERFORM %1$I.windlass_refuse(format('%%s is not a valid declared limit', left(name, 80)));
    ELSIF greatest(concurrency::integer, starts::integer) > 100000
        OR period::numeric NOT BETWEEN 0.001 AND 315360000
    THEN
        PERFORM %1$I.windlass_refuse(format('the limit of %%s is out of range', left(name, 80)));
    END IF;
    PERFORM pg_advisory_xact_lock(  -- the same lock as `lock_records`
        %1$I.windlass_lock_number(VARIADIC ARRAY['record', 'limit', name]));
    INSERT INTO %1$I.windlass_record (kind, key, value, version) VALUES ('limit', name, value, 1)
    ON CONFLICT DO NOTHING;
END
$$
    $format$, current_schema());
END
$do$;

REVOKE EXECUTE ON FUNCTION windlass_declare_limit FROM PUBLIC;

-- Returns the first position of a queue, or of a gate if one is given, and the last position of a
-- limit key there. NULL where there is no job, and if there is no key.
CREATE FUNCTION windlass_bounds(
    queue text, gate text, priority integer, limit_key text, OUT first bigint, OUT last bigint
) LANGUAGE plpgsql VOLATILE
-- Sessions behind a pooler have no settings, and the session keeps the first plan.
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    IF windlass_bounds.limit_key IS NULL THEN
        RETURN;
    ELSIF windlass_bounds.gate IS NULL THEN
        SELECT position INTO first FROM windlass_queued AS queued
        WHERE queued.queue = windlass_bounds.queue AND queued.priority = windlass_bounds.priority
        ORDER BY queued.queue, queued.priority DESC, queued.position, queued.id LIMIT 1;
        SELECT position INTO last FROM windlass_queued AS queued
        WHERE windlass_limit_key_hash(queued.queue, queued.priority, queued.limit_key)
                = windlass_limit_key_hash(
                    windlass_bounds.queue, windlass_bounds.priority, windlass_bounds.limit_key)
            AND queued.limit_key = windlass_bounds.limit_key AND queued.limit_key IS NOT NULL
            AND queued.queue IS NOT DISTINCT FROM windlass_bounds.queue
            AND queued.priority IS NOT DISTINCT FROM windlass_bounds.priority
        ORDER BY queued.position DESC LIMIT 1;
    ELSE
        SELECT position INTO first FROM windlass_gate_queue AS entry
        WHERE entry.gate = windlass_bounds.gate AND entry.priority = windlass_bounds.priority
        ORDER BY entry.gate, entry.priority DESC, entry.position, entry.id LIMIT 1;
        SELECT position INTO last FROM windlass_gate_queue AS entry
        WHERE windlass_limit_key_hash(entry.gate, entry.priority, entry.limit_key)
                = windlass_limit_key_hash(
                    windlass_bounds.gate, windlass_bounds.priority, windlass_bounds.limit_key)
            AND entry.limit_key = windlass_bounds.limit_key AND entry.limit_key IS NOT NULL
            AND entry.gate IS NOT DISTINCT FROM windlass_bounds.gate
            AND entry.priority IS NOT DISTINCT FROM windlass_bounds.priority
        ORDER BY entry.position DESC LIMIT 1;
    END IF;
END
$$;

-- Returns the position of the next job of a limit key, for fairness between keys. The same as
-- core's `fair_position`. NULL if no job waits there.
CREATE FUNCTION windlass_fair_position(queue text, gate text, priority integer, limit_key text)
RETURNS bigint LANGUAGE sql VOLATILE
AS $$
    SELECT CASE WHEN last IS NULL THEN first + 1 ELSE greatest(first, last + 2) END
    FROM windlass_bounds(queue, gate, priority, limit_key)
$$;

-- Requests a check of gates that may have free capacity or a new job. A caller's own transaction
-- may stay open for long, so it must not lock gates. The next sweep checks them.
CREATE FUNCTION windlass_request_gate_check(gates text[]) RETURNS void LANGUAGE sql VOLATILE
AS 'INSERT INTO windlass_gate_check (gate) SELECT unnest($1)';

-- Whether a permit holds a slot, by the row of its job. The same as core's `permits.in_use`.
CREATE FUNCTION windlass_permit_in_use(permit_fence bigint, fence bigint, state text, gate text)
RETURNS boolean LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE WHEN fence = permit_fence THEN state = 'running'
        WHEN fence < permit_fence THEN state = 'queued' OR gate IS NOT NULL ELSE false END
$$;

-- Admits as many waiting jobs as these gates have capacity for; returns the ids of jobs that were
-- queued. The arrays run in parallel. `left_jobs` has the number of a job that held a slot of the
-- gate and released it in this transaction, or NULL. `left_started_at` has the start of its
-- attempt, or NULL. Lock order: jobs, gates, leases, rollups. Gates are locked in the order key,
-- task, queue: a job never moves to an earlier kind. Without `admitting`, releases are counted and
-- nothing is admitted; gates with waiting jobs become due for a check.
CREATE FUNCTION windlass_admit(
    gates text[], left_jobs bigint[], left_started_at bigint[], now bigint, admitting boolean
) RETURNS uuid[]
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off  -- the session keeps its plans
SET plan_cache_mode = force_generic_plan  -- planning takes longer than execution
AS $$
#variable_conflict use_column
DECLARE
    kind text;
    totals record;  -- here and below: one value per gate, ordered by name
    same_kind record;
    result record;
    admitted uuid[] := '{}';
BEGIN
    -- Other transactions wait for these gate locks: a frozen worker must not keep them.
    PERFORM set_config('idle_in_transaction_session_timeout', '5s', true);
    SELECT array_agg(gate) AS gates, array_agg(number) AS leaving, array_agg(pending) AS pending
    INTO totals FROM (
        SELECT given.gate COLLATE "C" AS gate, count(given.n) AS number,
            count(given.n) FILTER (WHERE given.at IS NULL) AS pending
        FROM unnest(gates, left_jobs, left_started_at) AS given (gate, n, at) GROUP BY 1
    ) AS each;
    FOREACH kind IN ARRAY ARRAY['key:', 'task:', 'queue:'] LOOP
        SELECT array_agg(gate) AS names, array_agg(number) AS leaving, array_agg(pending) AS pending
        INTO same_kind FROM (
            SELECT gate COLLATE "C" AS gate, sum(number)::bigint AS number,
                sum(pending)::bigint AS pending
            FROM unnest(totals.gates, totals.leaving, totals.pending)
                AS given (gate, number, pending)
            WHERE starts_with(gate, kind) GROUP BY 1 ORDER BY 1
        ) AS each;
        CONTINUE WHEN same_kind.names IS NULL;
        SELECT * INTO result FROM windlass_open_gates(
            same_kind.names, same_kind.leaving, same_kind.pending, gates, left_jobs,
            left_started_at, now, admitting);
        admitted := admitted || result.admitted;
        totals.gates := totals.gates || result.next_gates;  -- no job left these
        totals.leaving := totals.leaving
            || array_fill(0::bigint, ARRAY[cardinality(result.next_gates)]);
        totals.pending := totals.pending
            || array_fill(0::bigint, ARRAY[cardinality(result.next_gates)]);
    END LOOP;
    RETURN admitted;
END
$$;

-- Opens gates of one kind. `leaving` counts the jobs that left each, `leaving_pending` those of
-- them that had not started. `admitted` are the jobs that were queued, `next_gates` the gates that
-- other jobs moved to.
--
-- The row of its job decides whether a permit holds a slot. Reading all of these rows each time is
-- slow when many jobs run. So a gate counts its holders; a leaving job is subtracted once, because
-- its row changes once. A gate with a rate also counts starts. All permits are compared with their
-- jobs and recounted once a second, when a check was requested, and when the count becomes zero or
-- negative.
CREATE FUNCTION windlass_open_gates(
    names text[], leaving bigint[], leaving_pending bigint[],
    left_gates text[], left_jobs bigint[], left_started_at bigint[], now bigint, admitting boolean,
    OUT admitted uuid[], OUT next_gates text[]
) LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    max_batch CONSTANT bigint := 1000;
    unlimited CONSTANT bigint := 4611686018427387904;
    stored record;  -- the gates as stored: here and below, one value per gate
    requested text[];
    holding bigint[];
    pending bigint[];
    started bigint[];
    recount boolean[];
    concurrency bigint[];
    starts bigint[];
    period bigint[];
    free bigint[];
    permitted bigint[];
BEGIN
    LOOP
        -- A change of a limit updates all its gates, but cannot see a gate that is not committed
        -- yet. So creating a gate takes the lock of the limit's record in shared mode; the change
        -- takes it exclusively (`lock_records`), then locks gates. Missing gates are therefore
        -- created before any is locked. (If one was deleted meanwhile, others are locked already: a
        -- deadlock is possible then, the server detects it, and one of the two transactions
        -- retries.)
        IF cardinality(names) > (
            SELECT count(*) FROM windlass_gate AS gate WHERE gate.gate = ANY (names)
        ) THEN
            PERFORM pg_advisory_xact_lock_shared(locks.number) FROM (
                SELECT DISTINCT windlass_lock_number(
                    'record', 'limit', split_part(given.gate, chr(31), 1)) AS number
                FROM unnest(names) AS given (gate) ORDER BY number
            ) AS locks;
            INSERT INTO windlass_gate (gate) SELECT unnest(names) ON CONFLICT DO NOTHING;
        END IF;
        SELECT array_agg(holding) AS holding, array_agg(pending) AS pending,
            array_agg(started) AS started, array_agg(recounted_at) AS recounted_at,
            array_agg(next_check_at) AS next_check_at, array_agg(idle_at) AS idle_at
        INTO stored FROM (
            SELECT holding, pending, started, recounted_at, next_check_at, idle_at
            FROM windlass_gate AS gate
            WHERE gate.gate = ANY (names) ORDER BY gate.gate FOR NO KEY UPDATE
        ) AS gates;
        -- Else one was deleted meanwhile.
        EXIT WHEN cardinality(stored.holding) = cardinality(names);
    END LOOP;
    -- The statements below see everything that these requests were made for.
    WITH deleted AS (
        DELETE FROM windlass_gate_check AS request WHERE request.gate = ANY (names)
        RETURNING request.gate
    )
    SELECT array_agg(gate) INTO requested FROM deleted;
    holding := ARRAY(
        SELECT held - less FROM unnest(stored.holding, leaving) AS given (held, less));
    pending := ARRAY(
        SELECT not_started - less
        FROM unnest(stored.pending, leaving_pending) AS given (not_started, less));
    WITH limits AS MATERIALIZED (
        SELECT name, (settings ->> 'concurrency')::bigint AS concurrency,
            (settings ->> 'starts')::bigint AS starts,
            coalesce(round((settings ->> 'period')::numeric * 1000000), 0)::bigint AS period
        FROM (
            SELECT DISTINCT split_part(given.gate, chr(31), 1) AS name
            FROM unnest(names) AS given (gate)
        ) AS each LEFT JOIN LATERAL (
            SELECT convert_from(record.value, 'UTF8')::jsonb AS settings
            FROM windlass_record AS record
            WHERE record.kind = 'limit' AND record.key = each.name
                AND (record.expires_at IS NULL OR record.expires_at > windlass_open_gates.now)
            LIMIT 1
        ) AS record ON true
    )
    SELECT array_agg(coalesce(recounted_at <= windlass_open_gates.now - 1000000
            OR recounted_at > windlass_open_gates.now OR gate = ANY (requested)
            OR held < before AND (held < 0 OR held = 0 AND limits.starts IS NULL), false)
            ORDER BY place),
        array_agg(limits.concurrency ORDER BY place), array_agg(limits.starts ORDER BY place),
        array_agg(limits.period ORDER BY place)
    INTO recount, concurrency, starts, period
    FROM unnest(names, stored.recounted_at, stored.holding, holding) WITH ORDINALITY
        AS given (gate, recounted_at, before, held, place), limits
    WHERE limits.name = split_part(given.gate, chr(31), 1);

    started := stored.started;
    IF num_nonnulls(VARIADIC starts) > 0 THEN
        SELECT * INTO pending, started FROM windlass_count_starts(
            names, starts, period, left_gates, left_started_at, left_jobs, now, pending, started);
    END IF;
    IF true = ANY (recount) THEN
        SELECT * INTO holding, pending, started FROM windlass_count_permits(
            names, recount, starts, period, now, holding, pending, started);
    END IF;
    free := ARRAY(
        SELECT CASE WHEN num_nonnulls(max_holding, rate) = 0 THEN unlimited
            ELSE greatest(0, least(max_holding - held, rate - not_started - in_period)) END
        FROM unnest(concurrency, starts, holding, pending, started)
            AS given (max_holding, rate, held, not_started, in_period)
    );
    IF admitting AND 0 < ANY (free) THEN
        SELECT * INTO admitted, next_gates, permitted FROM windlass_admit_waiting(names, ARRAY(
            SELECT least(capacity, max_batch) FROM unnest(free) AS given (capacity)
        ), now);
    ELSE
        admitted := '{}';
        next_gates := '{}';
        permitted := array_fill(0::bigint, ARRAY[cardinality(names)]);
    END IF;

    -- A full gate needs no check time: the next release opens it. With a rate, the end of a start's
    -- period may open it earlier.
    UPDATE windlass_gate AS gate SET next_check_at = updated.next_check_at,
        idle_at = updated.idle_at, holding = updated.holding, pending = updated.pending,
        started = updated.started, recounted_at = updated.recounted_at,
        rate_limited = updated.starts IS NOT NULL
    FROM (
        SELECT gate_state.*, CASE
            WHEN gate_state.has_waiting IS NOT TRUE THEN NULL
            -- more than one batch, or another transaction has one of them locked
            WHEN gate_state.admissible THEN windlass_open_gates.now
            WHEN gate_state.full AND gate_state.starts <= gate_state.pending + gate_state.started
                THEN windlass_next_rate_slot(gate_state.gate, gate_state.pending,
                    gate_state.pending + gate_state.started - gate_state.starts,
                    gate_state.period, now)
            END AS next_check_at, CASE
            WHEN gate_state.has_waiting THEN NULL
            WHEN gate_state.stored_idle_at > windlass_open_gates.now THEN gate_state.stored_idle_at
            WHEN gate_state.has_waiting IS NULL THEN NULL  -- full: the next release makes it idle
            ELSE windlass_open_gates.now + greatest(gate_state.period, 60000000) END AS idle_at
        FROM (
            SELECT given.gate, given.stored_next_check_at, given.stored_idle_at,
                given.stored_holding, given.starts, given.period, given.recount,
                given.permitted >= given.free AS full,
                given.holding + given.permitted AS holding,
                CASE WHEN given.starts IS NULL THEN 0 ELSE given.pending + given.permitted END
                    AS pending,
                CASE WHEN given.starts IS NULL THEN 0 ELSE given.started END AS started,
                CASE WHEN given.recount THEN windlass_open_gates.now
                    ELSE given.stored_recounted_at END AS recounted_at,
                given.stored_pending, given.stored_started,
                -- Reads the last entry: dead rows of jobs that just left precede the first. EXISTS
                -- would allow a plan that reads all entries.
                CASE WHEN given.permitted < given.free OR given.starts IS NOT NULL THEN (
                    SELECT entry.n FROM windlass_gate_queue AS entry WHERE entry.gate = given.gate
                    ORDER BY entry.gate DESC, entry.priority, entry.position DESC,
                        entry.id DESC LIMIT 1
                ) IS NOT NULL END AS has_waiting,
                given.permitted < given.free AND (
                    SELECT entry.n FROM windlass_gate_queue AS entry WHERE entry.gate = given.gate
                        AND (entry.expires_at IS NULL OR entry.expires_at > windlass_open_gates.now)
                    ORDER BY entry.gate DESC, entry.priority, entry.position DESC,
                        entry.id DESC LIMIT 1
                ) IS NOT NULL AS admissible
            FROM unnest(names, stored.next_check_at, stored.idle_at, stored.holding, stored.pending,
                stored.started, stored.recounted_at, starts, period, holding, pending, started,
                free, permitted, recount
            ) AS given (gate, stored_next_check_at, stored_idle_at, stored_holding, stored_pending,
                stored_started, stored_recounted_at, starts, period, holding, pending, started,
                free, permitted, recount)
        ) AS gate_state
    ) AS updated
    WHERE gate.gate = ANY (ARRAY[updated.gate]) AND (updated.recount
        OR updated.next_check_at IS DISTINCT FROM updated.stored_next_check_at
        OR updated.idle_at IS DISTINCT FROM updated.stored_idle_at
        OR updated.holding <> updated.stored_holding
        OR updated.pending <> updated.stored_pending OR updated.started <> updated.stored_started
        OR gate.rate_limited <> (updated.starts IS NOT NULL));
END
$$;

-- Counts starts at gates with a rate: adds the starts that claims recorded since the last count,
-- and deletes those whose period is over. A leaving job without a recorded start was claimed before
-- the claim saw the rate: its start counts, too, even if its job has ended already.
CREATE FUNCTION windlass_count_starts(
    names text[], starts bigint[], period bigint[], left_gates text[], left_started_at bigint[],
    left_jobs bigint[], now bigint, INOUT pending bigint[], INOUT started bigint[]
) LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    WITH rate_limited AS MATERIALIZED (
        SELECT given.gate, windlass_count_starts.now - given.period AS window_start
        FROM unnest(names, starts, period) AS given (gate, rate, period)
        WHERE given.rate IS NOT NULL
    ),
    expired AS (
        DELETE FROM windlass_start AS start USING rate_limited
        WHERE start.gate = ANY (ARRAY[rate_limited.gate]) AND start.at <= rate_limited.window_start
        RETURNING start.gate, cardinality(start.jobs) AS number, start.counted
    ),
    newly_counted AS (
        UPDATE windlass_start AS start SET counted = true FROM rate_limited
        WHERE start.gate = ANY (ARRAY[rate_limited.gate]) AND NOT start.counted
            AND start.at > rate_limited.window_start
        RETURNING start.gate, cardinality(start.jobs) AS number
    ),
    leaving AS MATERIALIZED (
        SELECT given.gate COLLATE "C" AS gate, given.at, given.n
        FROM unnest(left_gates, left_jobs, left_started_at) AS given (gate, n, at), (
            SELECT DISTINCT split_part(rate_limited.gate, chr(31), 1) AS name, window_start
            FROM rate_limited
        ) AS limits
        WHERE given.n IS NOT NULL AND given.at > limits.window_start
            AND limits.name = split_part(given.gate, chr(31), 1)
    ),
    unrecorded AS (
        INSERT INTO windlass_start (gate, at, jobs, counted)
        SELECT gate, at, array_agg(n), true FROM (
            SELECT gate, at, n FROM leaving
            EXCEPT
            SELECT start.gate, start.at, each.n FROM (
                SELECT DISTINCT gate, at FROM leaving
            ) AS left_starts, LATERAL (
                SELECT gate, at, jobs FROM windlass_start AS start
                WHERE start.gate = left_starts.gate AND start.at = left_starts.at OFFSET 0
            ) AS start, unnest(start.jobs) AS each (n)
        ) AS missing GROUP BY gate, at
        RETURNING gate, cardinality(jobs) AS number
    )
    SELECT array_agg(not_started ORDER BY gate), array_agg(in_window ORDER BY gate)
    INTO pending, started FROM (
        SELECT gate, sum(not_started)::bigint AS not_started, sum(in_window)::bigint AS in_window
        FROM (
            SELECT gate, not_started, in_window
            FROM unnest(names, pending, started) AS given (gate, not_started, in_window)
            UNION ALL
            SELECT gate, CASE WHEN counted THEN 0 ELSE -number END,
                CASE WHEN counted THEN -number ELSE 0 END FROM expired
            UNION ALL
            SELECT gate, -number, number FROM newly_counted
            UNION ALL
            SELECT gate, -number, number FROM unrecorded
        ) AS each GROUP BY gate
    ) AS gates;
END
$$;

-- Recounts gates: which permits hold a slot, by the rows of their jobs, and which starts count.
-- Removes jobs that left. One statement, so that no claim commits between the two counts.
CREATE FUNCTION windlass_count_permits(
    names text[], recount boolean[], starts bigint[], period bigint[], now bigint,
    INOUT holding bigint[], INOUT pending bigint[], INOUT started bigint[]
) LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    WITH recounted AS MATERIALIZED (
        SELECT given.gate,
            CASE WHEN rate IS NOT NULL THEN windlass_count_permits.now - given.period END
                AS window_start
        FROM unnest(names, recount, starts, period) AS given (gate, recount, rate, period)
        WHERE given.recount
    ),
    permits AS MATERIALIZED (
        SELECT recounted.gate, permit.*, holding_jobs.*
        FROM recounted, LATERAL (
            SELECT ctid AS ctid_, fence, at, jobs FROM windlass_permit AS permit
            WHERE permit.gate = recounted.gate OFFSET 0
        ) AS permit, LATERAL (
            SELECT array_agg(each.n) FILTER (WHERE in_use) AS holders,
                count(*) FILTER (WHERE in_use) AS held,
                count(*) FILTER (WHERE in_use AND each.fence < permit.fence) AS not_started,
                -- jobs that left included: a start counts even if its job has ended
                array_agg(each.n) FILTER (WHERE started_in_window) AS started,
                array_agg(each.started_at) FILTER (WHERE started_in_window) AS starts
            FROM (
                SELECT job.n, job.fence, job.started_at,
                    windlass_permit_in_use(permit.fence, job.fence, job.state, job.gate) AS in_use,
                    job.fence = permit.fence AND job.started_at > recounted.window_start
                        AS started_in_window
                FROM windlass_job AS job WHERE job.n = ANY (permit.jobs)
            ) AS each WHERE in_use OR started_in_window  -- nearly all have left
        ) AS holding_jobs
    ),
    deleted AS (
        DELETE FROM windlass_permit WHERE ctid = ANY (ARRAY(
            SELECT ctid_ FROM permits WHERE held < cardinality(jobs)
        ))
    ),
    reduced AS (
        INSERT INTO windlass_permit (gate, fence, at, jobs)
        SELECT gate, fence, at, holders FROM permits WHERE held > 0 AND held < cardinality(jobs)
    ),
    recorded AS MATERIALIZED (
        SELECT start.* FROM recounted, LATERAL (
            SELECT ctid AS ctid_, gate, at, jobs, counted,
                coalesce(at > recounted.window_start, false) AS in_window
            FROM windlass_start AS start WHERE start.gate = recounted.gate OFFSET 0
        ) AS start
    ),
    expired AS (
        DELETE FROM windlass_start
        WHERE ctid = ANY (ARRAY(SELECT ctid_ FROM recorded WHERE NOT in_window))
    ),
    newly_counted AS (
        UPDATE windlass_start SET counted = true
        WHERE ctid = ANY (ARRAY(SELECT ctid_ FROM recorded WHERE in_window AND NOT counted))
    ),
    unrecorded AS (
        INSERT INTO windlass_start (gate, at, jobs, counted)
        SELECT gate, at, array_agg(n), true FROM (
            SELECT permits.gate, each.at, each.n
            FROM permits, unnest(permits.started, permits.starts) AS each (n, at)
            EXCEPT
            SELECT recorded.gate, recorded.at, each.n
            FROM recorded, unnest(recorded.jobs) AS each (n)
            WHERE recorded.in_window
        ) AS missing GROUP BY gate, at
        RETURNING gate, cardinality(jobs) AS number
    )
    SELECT array_agg(held ORDER BY gate), array_agg(not_started ORDER BY gate),
        array_agg(in_window ORDER BY gate)
    INTO holding, pending, started FROM (
        SELECT gate, sum(held)::bigint AS held, sum(not_started)::bigint AS not_started,
            sum(in_window)::bigint AS in_window
        FROM (
            SELECT gate, CASE WHEN recount THEN 0 ELSE held END AS held,
                CASE WHEN recount THEN 0 ELSE not_started END AS not_started,
                CASE WHEN recount THEN 0 ELSE in_window END AS in_window
            FROM unnest(names, recount, holding, pending, started)
                AS given (gate, recount, held, not_started, in_window)
            UNION ALL
            SELECT gate, held, not_started, 0 FROM permits
            UNION ALL
            SELECT gate, 0, 0, cardinality(jobs) FROM recorded WHERE in_window
            UNION ALL
            SELECT gate, 0, 0, number FROM unrecorded
        ) AS each GROUP BY gate
    ) AS gates;
END
$$;

-- Returns when a rate admits the next job: core's `gates.capacity`. `earlier` counted starts expire
-- before that; the `pending` jobs may start now.
CREATE FUNCTION windlass_next_rate_slot(
    gate text, pending bigint, earlier bigint, period bigint, now bigint
) RETURNS bigint LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    start_row record;
BEGIN
    FOR start_row IN
        SELECT start.at, cardinality(start.jobs) AS number FROM windlass_start AS start
        WHERE start.gate = windlass_next_rate_slot.gate AND start.counted
        ORDER BY start.gate, start.at
    LOOP
        -- a start in the future was recorded before the clock was set back
        EXIT WHEN start_row.at > now AND earlier < pending;
        IF start_row.at > now THEN
            earlier := earlier - pending;
            pending := 0;
        END IF;
        IF earlier < start_row.number THEN
            RETURN start_row.at + period;
        END IF;
        earlier := earlier - start_row.number;
    END LOOP;
    RETURN now + period;
END
$$;

-- Admits the first jobs at each gate, up to a number: core's `decide.admit` and
-- `fair_position`. Never blocks: locked rows are skipped, and so are rows updated after this
-- statement's snapshot. (The lock reads the new version of the row; the update matches the old
-- version by ctid and finds none.) The next sweep retries.
CREATE FUNCTION windlass_admit_waiting(
    names text[], max_admitted bigint[], now bigint,
    OUT admitted uuid[], OUT next_gates text[], OUT permitted bigint[]
) LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    PERFORM FROM unnest(names, max_admitted) AS given (gate, max_admitted), LATERAL (
        SELECT FROM windlass_gate_queue AS entry
        WHERE entry.gate = given.gate AND given.max_admitted > 0
        ORDER BY entry.gate DESC, entry.priority, entry.position DESC, entry.id DESC LIMIT 1
    ) AS entry LIMIT 1;
    IF NOT FOUND THEN  -- the usual case where a limit is high
        admitted := '{}';
        next_gates := '{}';
        permitted := array_fill(0::bigint, ARRAY[cardinality(names)]);
        RETURN;
    END IF;
    WITH moving AS MATERIALIZED (
        SELECT candidate.limit_key, candidate.next,
            CASE WHEN candidate.next IS NOT NULL THEN candidate.position END AS position,
            candidate.priority, nextval('windlass_serial') AS serial, given.number,
            candidate.entry_ctid, candidate.job_ctid,
            CASE WHEN candidate.next IS NULL THEN candidate.queue END AS target_queue
        FROM unnest(names, max_admitted) WITH ORDINALITY AS given (gate, max_admitted, number),
        LATERAL (
            SELECT entry.ctid AS entry_ctid, entry.queue, entry.priority, entry.limit_key,
                entry.position, job.*
            FROM windlass_gate_queue AS entry, LATERAL (
                SELECT job.ctid AS job_ctid,
                    CASE WHEN job.gates[2] IS NOT NULL THEN
                        job.gates[array_position(job.gates, given.gate) + 1] END AS next
                FROM windlass_job AS job WHERE job.n = entry.n AND job.gate = given.gate
                LIMIT 1 FOR UPDATE SKIP LOCKED  -- LIMIT: no plan may scan all jobs
            ) AS job
            WHERE entry.gate = given.gate AND given.max_admitted > 0
                AND (entry.expires_at IS NULL OR entry.expires_at > windlass_admit_waiting.now)
            ORDER BY entry.gate, entry.priority DESC, entry.position, entry.id
            LIMIT given.max_admitted
        ) AS candidate
    ),
    -- Positions of one key are two apart, after the last job of the key.
    keys AS MATERIALIZED (
        SELECT next, target_queue, priority, min(serial) AS serial,
            array_agg(number ORDER BY serial) AS numbers,
            array_agg(entry_ctid ORDER BY serial) AS entry_ctids,
            array_agg(job_ctid ORDER BY serial) AS jobs,
            CASE WHEN next IS NULL THEN (
                SELECT position FROM windlass_queued AS old
                WHERE windlass_limit_key_hash(old.queue, old.priority, old.limit_key)
                        = windlass_limit_key_hash(
                            moving.target_queue, moving.priority, moving.limit_key)
                    AND old.limit_key = moving.limit_key AND old.limit_key IS NOT NULL
                    AND old.queue IS NOT DISTINCT FROM moving.target_queue
                    AND old.priority IS NOT DISTINCT FROM moving.priority
                ORDER BY old.position DESC LIMIT 1
            ) ELSE (
                SELECT position FROM windlass_gate_queue AS old
                WHERE windlass_limit_key_hash(old.gate, old.priority, old.limit_key)
                        = windlass_limit_key_hash(moving.next, moving.priority, moving.limit_key)
                    AND old.limit_key = moving.limit_key AND old.limit_key IS NOT NULL
                    AND old.gate IS NOT DISTINCT FROM moving.next
                    AND old.priority IS NOT DISTINCT FROM moving.priority
                ORDER BY old.position DESC LIMIT 1
            ) END AS last
        FROM moving WHERE limit_key IS NOT NULL GROUP BY next, target_queue, priority, limit_key
    ),
    -- The first position of each queue or gate that a job with a key enters: that of the first job
    -- there, else of the first arriving job. A job without a key may precede it, because positions
    -- of keys may be higher than the serial; `first_unkeyed` is the first of these.
    targets AS MATERIALIZED (
        SELECT each.*, CASE WHEN next IS NULL THEN serial
            ELSE (SELECT position FROM moving WHERE moving.serial = each.serial) END AS arrival
        FROM (
            SELECT next, target_queue, priority, min(serial) AS serial,
                min(serial) FILTER (WHERE NOT keyed) AS first_unkeyed, CASE WHEN next IS NULL THEN (
                SELECT position FROM windlass_queued AS old
                WHERE old.queue = arriving.target_queue AND old.priority = arriving.priority
                ORDER BY old.queue, old.priority DESC, old.position, old.id LIMIT 1
            ) ELSE (
                SELECT position FROM windlass_gate_queue AS old
                WHERE old.gate = arriving.next AND old.priority = arriving.priority
                ORDER BY old.gate, old.priority DESC, old.position, old.id LIMIT 1
            ) END AS first
            FROM (
                SELECT next, target_queue, priority, serial, true AS keyed FROM keys
                UNION ALL
                SELECT next, target_queue, priority, serial, false FROM moving
                WHERE limit_key IS NULL AND EXISTS (SELECT FROM keys)
            ) AS arriving GROUP BY next, target_queue, priority HAVING bool_or(keyed)
        ) AS each
    ),
    placed AS (
        SELECT number, entry_ctid, job_ctid, next,
            CASE WHEN next IS NULL THEN serial ELSE position END AS new_position
        FROM moving WHERE limit_key IS NULL
        UNION ALL
        SELECT number, entry_ctid, job_ctid, next, base_position + 2 * (rank - 1) FROM (
            SELECT unnest(keys.numbers) AS number, unnest(keys.entry_ctids) AS entry_ctid,
                unnest(keys.jobs) AS job_ctid, generate_subscripts(keys.numbers, 1) AS rank,
                keys.next, targets.base_position
            FROM keys, LATERAL (
                SELECT CASE
                    WHEN targets.first IS NULL AND targets.serial = keys.serial THEN targets.arrival
                    WHEN keys.last IS NOT NULL THEN greatest(targets.first, keys.last + 2)
                    ELSE 1 + least(coalesce(targets.first, targets.arrival), CASE
                        WHEN targets.first_unkeyed IS NULL
                            OR targets.first_unkeyed > keys.serial THEN NULL
                        WHEN keys.next IS NULL THEN targets.first_unkeyed
                        ELSE (
                            SELECT min(position) FROM moving
                            WHERE limit_key IS NULL AND next = keys.next
                                AND priority = keys.priority AND serial < keys.serial
                        ) END) END AS base_position
                FROM targets WHERE targets.priority = keys.priority
                    AND targets.target_queue IS NOT DISTINCT FROM keys.target_queue
                    AND targets.next IS NOT DISTINCT FROM keys.next
            ) AS targets
        ) AS each
    ),
    job AS (
        UPDATE windlass_job AS job SET
            gate = placed.next, position = placed.new_position,
            state = CASE WHEN placed.next IS NULL THEN 'queued' ELSE job.state END,
            queued_at = CASE WHEN placed.next IS NULL
                THEN greatest(windlass_admit_waiting.now, job.updated_at) ELSE job.queued_at END,
            started_at = CASE WHEN placed.next IS NOT NULL THEN job.started_at END,
            updated_at = CASE WHEN placed.next IS NULL
                THEN greatest(windlass_admit_waiting.now, job.updated_at) ELSE job.updated_at END,
            seq = CASE WHEN placed.next IS NULL THEN job.seq + 1 ELSE job.seq END,
            queued_seq = CASE WHEN placed.next IS NULL THEN job.seq + 1 ELSE job.queued_seq END
        FROM placed WHERE job.ctid = placed.job_ctid
        -- Columns that every clause below reads come first: reading one steps over all before it.
        RETURNING job.gate, CASE WHEN job.first_started_at IS NULL THEN job.expires_at END
                AS expires_at,
            placed.entry_ctid, placed.number, job.fence, job.n, job.id, job.priority, job.position,
            job.queued_at, job.queue, job.limit_key, job.state
    ),
    deleted AS (
        DELETE FROM windlass_gate_queue WHERE ctid = ANY (ARRAY(SELECT entry_ctid FROM job))
    ),
    permits AS (
        INSERT INTO windlass_permit (gate, fence, at, jobs)
        SELECT names[number], fence + 1, windlass_admit_waiting.now, array_agg(n) FROM job
        GROUP BY number, fence
        RETURNING gate, cardinality(jobs) AS number
    ),
    queued AS (
        INSERT INTO windlass_queued (
            queue, priority, position, id, queued_at, expires_at, limit_key)
        SELECT queue, priority, position, id, queued_at, expires_at, limit_key
        FROM job WHERE gate IS NULL
    ),
    gate_queue AS (
        INSERT INTO windlass_gate_queue (
            gate, priority, position, id, n, queue, state, expires_at, limit_key)
        SELECT gate, priority, position, id, n, queue, state, expires_at, limit_key
        FROM job WHERE gate IS NOT NULL
    ),
    -- A job with an expiry has a row with its state. A job at a gate that can expire has never run.
    left_waiting AS (
        DELETE FROM windlass_waiting WHERE ctid = ANY (ARRAY(
            SELECT waiting.ctid FROM job, LATERAL (
                SELECT ctid FROM windlass_waiting AS waiting
                WHERE waiting.queue = job.queue AND waiting.state = 'created'
                    AND waiting.n = job.n
                LIMIT 1
            ) AS waiting
            WHERE job.gate IS NULL AND job.expires_at IS NOT NULL
        ))
    ),
    waiting AS (
        INSERT INTO windlass_waiting (queue, state, n, at)
        SELECT queue, state, n, expires_at FROM job WHERE gate IS NULL AND expires_at IS NOT NULL
    )
    SELECT
        (SELECT coalesce(array_agg(id), '{}') FROM job WHERE gate IS NULL),
        (SELECT coalesce(array_agg(DISTINCT gate), '{}') FROM job WHERE gate IS NOT NULL),
        (SELECT array_agg(number ORDER BY gate) FROM (
            SELECT gate, sum(number) AS number FROM (
                SELECT gate, number FROM permits UNION ALL SELECT unnest(names) COLLATE "C", 0
            ) AS given GROUP BY gate
        ) AS each)
    INTO admitted, next_gates, permitted;
END
$$;
