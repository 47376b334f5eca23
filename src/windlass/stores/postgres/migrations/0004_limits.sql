-- Limits: who may come into the line. The rules are core's `gate`, and the model compares the two.

-- The gates that a job has to pass, in order; NULL for none. Core's `gates_of`.
CREATE FUNCTION windlass_gates(queue text, task text, limit_key text) RETURNS text[]
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_variable
DECLARE
    found text[] := '{}';
    name text;
BEGIN
    FOR name IN
        SELECT record.key FROM windlass_record AS record
        WHERE record.kind = 'limit'
            AND record.key = ANY (ARRAY['key:' || task, 'task:' || task, 'queue:' || queue])
        ORDER BY strpos('ktq', left(record.key, 1))
    LOOP
        IF NOT starts_with(name, 'key:') THEN
            found := found || name;
        ELSIF limit_key IS NOT NULL THEN
            found := found || (name || chr(31) || limit_key);
        END IF;
    END LOOP;
    RETURN nullif(found, '{}');
END
$$;

-- Where the next job with a key stands in the line of a queue, or, if there is one, before a gate:
-- core's `place`. NULL if nobody stands there.
CREATE FUNCTION windlass_turn(queue text, gate text, priority integer, limit_key text)
RETURNS bigint LANGUAGE plpgsql VOLATILE
-- Behind a pooler no session has settings; and the first plan is kept for as long as it lasts.
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    first bigint;
    last bigint;
BEGIN
    IF windlass_turn.gate IS NULL THEN
        SELECT position INTO first FROM windlass_line AS line
        WHERE line.queue = windlass_turn.queue AND line.priority = windlass_turn.priority
        ORDER BY line.queue, line.priority DESC, line.position, line.id LIMIT 1;
        SELECT position INTO last FROM windlass_line AS line
        WHERE line.queue = windlass_turn.queue AND line.priority = windlass_turn.priority
            AND line.limit_key = windlass_turn.limit_key AND line.limit_key IS NOT NULL
        ORDER BY line.queue DESC, line.priority DESC, line.limit_key DESC, line.position DESC
        LIMIT 1;
    ELSE
        SELECT position INTO first FROM windlass_parked AS parked
        WHERE parked.gate = windlass_turn.gate AND parked.priority = windlass_turn.priority
        ORDER BY parked.gate, parked.priority DESC, parked.position, parked.id LIMIT 1;
        SELECT position INTO last FROM windlass_parked AS parked
        WHERE parked.gate = windlass_turn.gate AND parked.priority = windlass_turn.priority
            AND parked.limit_key = windlass_turn.limit_key AND parked.limit_key IS NOT NULL
        ORDER BY parked.gate DESC, parked.priority DESC, parked.limit_key DESC,
            parked.position DESC LIMIT 1;
    END IF;
    RETURN CASE WHEN last IS NULL THEN first + 1 ELSE greatest(first, last + 2) END;
END
$$;

-- For a transaction of a caller's own, which may last: it holds no gate, but leaves word that there
-- may be room, or somebody new. The next sweep looks.
CREATE FUNCTION windlass_knock(gates text[]) RETURNS void LANGUAGE sql VOLATILE
AS 'INSERT INTO windlass_knock (gate) SELECT unnest($1)';

-- Whether a pass takes a slot, by what its job's row says: core's `holds`.
CREATE FUNCTION windlass_holds(passed bigint, fence bigint, state text, gate text) RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE WHEN fence = passed THEN state = 'running'
        WHEN fence < passed THEN state = 'queued' OR gate IS NOT NULL ELSE false END
$$;

-- Let in whom these gates have room for; answers who came into line. `gone` are the numbers of jobs
-- that have left the gate of the same place, or NULL. Gates are locked after jobs, before leases and
-- counts, and in one order, in which nobody who passes one comes to an earlier.
CREATE FUNCTION windlass_admit(wanted text[], gone bigint[], now bigint) RETURNS uuid[]
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off  -- plans are kept for as long as the session lasts
SET plan_cache_mode = force_generic_plan  -- and to make one takes longer than all the rest
AS $$
#variable_conflict use_column
DECLARE
    kind text;
    names text[];
    passed record;
    let_in uuid[] := '{}';
BEGIN
    -- Others wait at these gates: a worker that is frozen now must not keep them.
    PERFORM set_config('idle_in_transaction_session_timeout', '5s', true);
    FOREACH kind IN ARRAY ARRAY['key:', 'task:', 'queue:'] LOOP
        names := ARRAY(
            SELECT DISTINCT given.name COLLATE "C" FROM unnest(wanted) AS given (name)
            WHERE starts_with(given.name, kind) ORDER BY 1
        );
        CONTINUE WHEN names = '{}';
        SELECT * INTO passed FROM windlass_open(names, wanted, gone, now);
        let_in := let_in || passed.let_in;
        wanted := wanted || passed.later;  -- of which nobody has left
    END LOOP;
    RETURN let_in;
END
$$;

-- Gates of one kind: `let_in` came into line, `later` are the gates that others came to.
--
-- What a pass is worth, its job's row says. To read all of them each time would be slow where many
-- run: so whoever leaves is looked at, and all are once a second, or when somebody knocked, in case
-- one left without a word. Starts are looked at until they are known.
CREATE FUNCTION windlass_open(
    names text[], left_gate text[], gone bigint[], now bigint, OUT let_in uuid[], OUT later text[]
) LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    batch CONSTANT bigint := 1000;
    endless CONSTANT bigint := 4611686018427387904;
    kind CONSTANT text := split_part(names[1], ':', 1) || ':';
    locked bigint;
    rated text[];  -- the limits that have a rate
    suspect boolean[];  -- here and below, one for each gate
    concurrency bigint[];
    starts bigint[];
    length bigint[];
    free bigint[];
    passed bigint[];
BEGIN
    LOOP
        -- Who changes a limit looks at all its gates, and would not see one that is in the making:
        -- so it comes before that, or after. It holds the same lock for itself (`lock_records`), and
        -- then waits for gates: so what is missing is made before any is locked.
        IF EXISTS (SELECT FROM unnest(names) AS given (gate) WHERE NOT EXISTS (
            SELECT FROM windlass_gate AS gate WHERE gate.gate = given.gate
        )) THEN
            PERFORM pg_advisory_xact_lock_shared(locks.number) FROM (
                SELECT DISTINCT windlass_number(
                    'record', 'limit', split_part(given.gate, chr(31), 1)) AS number
                FROM unnest(names) AS given (gate) ORDER BY number
            ) AS locks;
            INSERT INTO windlass_gate (gate) SELECT unnest(names) ON CONFLICT DO NOTHING;
        END IF;
        SELECT count(*) INTO locked FROM (
            SELECT FROM windlass_gate AS gate WHERE gate.gate = ANY (names)
            ORDER BY gate.gate FOR NO KEY UPDATE
        ) AS gates;
        EXIT WHEN locked = cardinality(names);  -- else one was dropped meanwhile
    END LOOP;
    -- What is heard of by now is seen by all that follows.
    WITH knocked AS (
        DELETE FROM windlass_knock AS knock WHERE knock.gate = ANY (names) RETURNING knock.gate
    )
    UPDATE windlass_gate AS gate SET checked_at = windlass_open.now
    WHERE gate.gate = ANY (names) AND (
        gate.checked_at <= windlass_open.now - 1000000 OR gate.checked_at > windlass_open.now
        OR gate.gate IN (SELECT gate FROM knocked)
    );
    SELECT array_agg(checked_at = windlass_open.now ORDER BY place),
        array_agg(DISTINCT split_part(gate, chr(31), 1)) FILTER (WHERE facts ->> 'starts' <> ''),
        array_agg((facts ->> 'concurrency')::bigint ORDER BY place),
        array_agg((facts ->> 'starts')::bigint ORDER BY place),
        array_agg(coalesce(round((facts ->> 'period')::numeric * 1000000), 0)::bigint
            ORDER BY place)
    INTO suspect, rated, concurrency, starts, length FROM (
        SELECT gate, place, (
            SELECT checked_at FROM windlass_gate AS found WHERE found.gate = given.gate
        ) AS checked_at, (
            SELECT convert_from(record.value, 'UTF8')::jsonb FROM windlass_record AS record
            WHERE record.kind = 'limit' AND record.key = split_part(gate, chr(31), 1)
                AND (record.expires_at IS NULL OR record.expires_at > windlass_open.now)
        ) AS facts
        FROM unnest(names) WITH ORDINALITY AS given (gate, place) OFFSET 0
    ) AS limits;

    IF num_nonnulls(VARIADIC starts) > 0 THEN  -- as soon as a start is known, it is noted
        UPDATE windlass_pass AS pass SET started_at = job.started_at FROM windlass_job AS job
        WHERE pass.gate = ANY (names) AND pass.started_at IS NULL
            AND job.n = ANY (ARRAY[pass.n]) AND job.fence = pass.fence
            AND job.started_at IS NOT NULL;
        UPDATE windlass_pass AS pass SET started_at = pass.at
        WHERE pass.gate = ANY (names) AND pass.started_at IS NULL AND NOT EXISTS (
            SELECT FROM windlass_job AS job WHERE job.n = ANY (ARRAY[pass.n])
        );
    END IF;
    DELETE FROM windlass_pass WHERE ctid = ANY (ARRAY(
        SELECT pass.ctid_ FROM unnest(left_gate, gone) AS given (gate, n), LATERAL (
            SELECT pass.ctid AS ctid_ FROM windlass_pass AS pass, LATERAL (
                SELECT fence, state, gate FROM windlass_job AS job WHERE job.n = pass.n LIMIT 1
            ) AS job
            WHERE pass.gate = given.gate AND pass.n = given.n
                AND NOT windlass_holds(pass.fence, job.fence, job.state, job.gate)
            OFFSET 0
        ) AS pass
        WHERE given.n IS NOT NULL AND starts_with(given.gate, kind)
            AND split_part(given.gate, chr(31), 1) <> ALL (coalesce(rated, '{}'))
    ));
    WITH seen AS MATERIALIZED (
        SELECT limits.place, limits.starts, limits.length, pass.ctid_, pass.started_at,
            NOT pass.looked OR coalesce((
                SELECT windlass_holds(pass.fence, job.fence, job.state, job.gate)
                FROM windlass_job AS job WHERE job.n = pass.n
            ), false) AS holds
        FROM unnest(names, suspect, concurrency, starts, length) WITH ORDINALITY
            AS limits (gate, suspect, concurrency, starts, length, place),
        LATERAL (
            SELECT pass.ctid AS ctid_, pass.n, pass.fence, pass.started_at,
                limits.suspect OR limits.starts IS NOT NULL
                    AND (limits.concurrency IS NOT NULL OR pass.started_at IS NULL) AS looked
            FROM windlass_pass AS pass WHERE pass.gate = limits.gate OFFSET 0
        ) AS pass
    ),
    judged AS MATERIALIZED (
        SELECT place, ctid_, holds, holds OR (starts IS NOT NULL AND started_at + length > now)
                AS counts,
            starts IS NOT NULL AND (started_at IS NULL AND holds OR started_at + length > now)
                AS started
        FROM seen, (SELECT windlass_open.now AS now) AS clock
    ),
    over AS (
        DELETE FROM windlass_pass WHERE ctid = ANY (ARRAY(
            SELECT ctid_ FROM judged WHERE counts IS NOT TRUE
        ))
    )
    SELECT array_agg(CASE WHEN num_nonnulls(starts[place], concurrency[place]) = 0 THEN endless
        ELSE greatest(0, least(concurrency[place] - holding, starts[place] - started)) END
        ORDER BY place)
    INTO free FROM (
        SELECT place, count(*) FILTER (WHERE holds) AS holding,
            count(*) FILTER (WHERE started) AS started
        FROM (
            SELECT place, holds, started FROM judged
            UNION ALL
            SELECT place, NULL, NULL FROM generate_subscripts(names, 1) AS place
        ) AS passes GROUP BY place
    ) AS counts;

    SELECT * INTO let_in, later, passed FROM windlass_let_in(names, ARRAY(
        SELECT least(room, batch) FROM unnest(free) AS given (room)
    ), ARRAY(
        SELECT num_nonnulls(most, rate) > 0 FROM unnest(concurrency, starts) AS given (most, rate)
    ), now);

    UPDATE windlass_gate AS gate SET look_at = news.look_at, idle_at = news.idle_at
    FROM (
        SELECT known.gate, CASE
            WHEN NOT known.waits THEN NULL
            -- there were too many, or somebody has one of them
            WHEN passed[known.place] < free[known.place] AND known.may_pass THEN windlass_open.now
            WHEN starts[known.place] IS NOT NULL AND passed[known.place] >= free[known.place]
                THEN windlass_next_start(known.gate, starts[known.place], length[known.place], now)
            END AS look_at, CASE
            WHEN known.waits THEN NULL
            WHEN known.idle_at > windlass_open.now THEN known.idle_at
            ELSE windlass_open.now + greatest(length[known.place], 60000000) END AS idle_at
        FROM (
            SELECT given.gate, given.place, gate.idle_at, EXISTS (
                SELECT FROM windlass_parked AS parked WHERE parked.gate = given.gate
            ) AS waits, EXISTS (
                SELECT FROM windlass_parked AS parked WHERE parked.gate = given.gate
                    AND (parked.expires_at IS NULL OR parked.expires_at > windlass_open.now)
            ) AS may_pass
            FROM unnest(names) WITH ORDINALITY AS given (gate, place), LATERAL (
                SELECT idle_at FROM windlass_gate AS gate WHERE gate.gate = given.gate LIMIT 1
            ) AS gate
        ) AS known
    ) AS news
    WHERE gate.gate = ANY (ARRAY[news.gate]) AND (gate.look_at IS DISTINCT FROM news.look_at
        OR gate.idle_at IS DISTINCT FROM news.idle_at);
END
$$;

-- When a rate lets the next one pass: core's `room`. NULL if it does so now, and only somebody's end
-- makes room: a job that runs for longer than the period holds a pass, though its start counts no more.
CREATE FUNCTION windlass_next_start(gate text, starts bigint, length bigint, now bigint)
RETURNS bigint LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    counted bigint[] := ARRAY(
        SELECT ends.at FROM (
            SELECT coalesce(pass.started_at, windlass_next_start.now) + windlass_next_start.length
                AS at
            FROM windlass_pass AS pass WHERE pass.gate = windlass_next_start.gate
        ) AS ends
        WHERE ends.at > windlass_next_start.now ORDER BY ends.at
    );
BEGIN
    RETURN counted[cardinality(counted) - starts + 1];
END
$$;

-- The first of those who wait at each gate, so many, pass it: core's `decide.let_in` and `place`.
-- Nobody is waited for: who is held by somebody's open transaction is passed by, and the sweep looks
-- again.
CREATE FUNCTION windlass_let_in(
    names text[], most bigint[], limited boolean[], now bigint,
    OUT let_in uuid[], OUT later text[], OUT passed bigint[]
) LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    WITH picked AS MATERIALIZED (
        SELECT first.*, given.gate AS passes, given.number, given.limited,
            row_number() OVER () AS place
        FROM unnest(names, most, limited) WITH ORDINALITY AS given (gate, most, limited, number),
        LATERAL (
            SELECT job.*, parked.ctid AS ctid_, parked.position
            FROM windlass_parked AS parked, LATERAL (
                SELECT n, id, queue, priority, limit_key, state, fence, gates,
                    CASE WHEN first_started_at IS NULL THEN expires_at END AS expires_at
                FROM windlass_job AS job WHERE job.n = parked.n AND job.gate = given.gate
                LIMIT 1 FOR UPDATE SKIP LOCKED
            ) AS job
            WHERE parked.gate = given.gate AND given.most > 0
                AND (parked.expires_at IS NULL OR parked.expires_at > windlass_let_in.now)
            ORDER BY parked.gate, parked.priority DESC, parked.position, parked.id
            LIMIT given.most
        ) AS first
    ),
    passing AS (
        INSERT INTO windlass_pass (gate, n, fence, at)
        SELECT passes, n, fence + 1, windlass_let_in.now FROM picked WHERE limited
    ),
    left_gate AS (
        DELETE FROM windlass_parked WHERE ctid = ANY (ARRAY(SELECT ctid_ FROM picked))
    ),
    moving AS MATERIALIZED (
        SELECT ranked.*, CASE WHEN limit_key IS NOT NULL AND rank = 1
            THEN windlass_turn(queue, next, priority, limit_key) END AS turn
        FROM (
            SELECT arrived.*, row_number() OVER (
                PARTITION BY next, CASE WHEN next IS NULL THEN queue END, priority, limit_key
                ORDER BY place
            ) AS rank FROM (
                SELECT picked.*, next.gate AS next, CASE WHEN next.gate IS NULL
                    THEN nextval('windlass_serial') ELSE position END AS arrival
                FROM picked, LATERAL (
                    SELECT picked.gates[array_position(picked.gates, picked.passes) + 1] AS gate
                ) AS next OFFSET 0
            ) AS arrived
        ) AS ranked
    ),
    placed AS MATERIALIZED (
        SELECT moving.*, CASE WHEN limit_key IS NULL THEN arrival
            ELSE 2 * (rank - 1) + coalesce(max(turn) OVER same_key, CASE
                WHEN min(place) OVER same_key = min(place) OVER same_line THEN arrival_of_first
                ELSE arrival_of_first + 1 END) END AS becomes
        FROM (
            SELECT moving.*, CASE WHEN next IS NULL THEN queue END AS line, first_value(arrival)
                OVER (PARTITION BY next, CASE WHEN next IS NULL THEN queue END, priority
                    ORDER BY place) AS arrival_of_first
            FROM moving
        ) AS moving
        WINDOW same_line AS (PARTITION BY next, line, priority),
            same_key AS (PARTITION BY next, line, priority, limit_key)
    ),
    job AS (
        UPDATE windlass_job AS job SET
            gate = placed.next, position = placed.becomes,
            state = CASE WHEN placed.next IS NULL THEN 'queued' ELSE job.state END,
            queued_at = CASE WHEN placed.next IS NULL
                THEN greatest(windlass_let_in.now, job.updated_at) ELSE job.queued_at END,
            started_at = CASE WHEN placed.next IS NOT NULL THEN job.started_at END,
            updated_at = CASE WHEN placed.next IS NULL
                THEN greatest(windlass_let_in.now, job.updated_at) ELSE job.updated_at END,
            seq = CASE WHEN placed.next IS NULL THEN job.seq + 1 ELSE job.seq END,
            queued_seq = CASE WHEN placed.next IS NULL THEN job.seq + 1 ELSE job.queued_seq END
        FROM placed WHERE job.n = ANY (ARRAY[placed.n])
        RETURNING job.id, job.n, job.queue, job.priority, job.position, job.limit_key,
            job.queued_at, job.gate, placed.expires_at, placed.state AS before, placed.number
    ),
    line AS (
        INSERT INTO windlass_line (queue, priority, position, id, queued_at, expires_at, limit_key)
        SELECT queue, priority, position, id, queued_at, expires_at, limit_key
        FROM job WHERE job.gate IS NULL
    ),
    parked AS (
        INSERT INTO windlass_parked (gate, priority, position, id, n, expires_at, limit_key)
        SELECT gate, priority, position, id, n, expires_at, limit_key
        FROM job WHERE job.gate IS NOT NULL
    ),
    left_aside AS (
        DELETE FROM windlass_waiting AS waiting USING job
        WHERE job.gate IS NULL AND waiting.queue = ANY (ARRAY[job.queue])
            AND waiting.state = ANY (ARRAY[job.before]) AND waiting.n = ANY (ARRAY[job.n])
    ),
    aside AS (
        INSERT INTO windlass_waiting (queue, state, n, at)
        SELECT queue, 'queued', n, expires_at FROM job
        WHERE job.gate IS NULL AND expires_at IS NOT NULL
    )
    SELECT coalesce(array_agg(id) FILTER (WHERE job.gate IS NULL), '{}'),
        coalesce(array_agg(DISTINCT job.gate) FILTER (WHERE job.gate IS NOT NULL), '{}'),
        ARRAY(
            SELECT count(*) - 1 FROM (
                SELECT number FROM job
                UNION ALL
                SELECT number FROM generate_subscripts(names, 1) AS number
            ) AS each GROUP BY number ORDER BY number
        )
    INTO let_in, later, passed FROM job;
END
$$;
