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
-- run: so a gate counts its passes, and whoever leaves is looked at and taken off. Once a second, or
-- when somebody knocked, all are looked at and counted anew, in case one left without a word. Where
-- there is a rate, the passes are read each time, for their starts; their jobs only where it matters.
CREATE FUNCTION windlass_open(
    names text[], left_gate text[], gone bigint[], now bigint, OUT let_in uuid[], OUT later text[]
) LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    batch CONSTANT bigint := 1000;
    endless CONSTANT bigint := 4611686018427387904;
    kind CONSTANT text := split_part(names[1], ':', 1) || ':';
    was record;  -- the gates as they are found: here and below, one value for each
    knocked text[];
    suspect boolean[];
    concurrency bigint[];
    starts bigint[];
    length bigint[];
    rates text[];  -- the limits that have one
    holding bigint[];
    started bigint[];  -- how many starts count, and when the first of them ceases to
    ends bigint[];
    free bigint[];
    passed bigint[];
BEGIN
    LOOP
        -- Who changes a limit looks at all its gates, and would not see one that is in the making:
        -- so it comes before that, or after. It holds the same lock for itself (`lock_records`), and
        -- then waits for gates: so what is missing is made before any is locked.
        IF cardinality(names) > (
            SELECT count(*) FROM windlass_gate AS gate WHERE gate.gate = ANY (names)
        ) THEN
            PERFORM pg_advisory_xact_lock_shared(locks.number) FROM (
                SELECT DISTINCT windlass_number(
                    'record', 'limit', split_part(given.gate, chr(31), 1)) AS number
                FROM unnest(names) AS given (gate) ORDER BY number
            ) AS locks;
            INSERT INTO windlass_gate (gate) SELECT unnest(names) ON CONFLICT DO NOTHING;
        END IF;
        SELECT array_agg(holding) AS holding, array_agg(checked_at) AS checked_at,
            array_agg(look_at) AS look_at, array_agg(idle_at) AS idle_at
        INTO was FROM (
            SELECT holding, checked_at, look_at, idle_at FROM windlass_gate AS gate
            WHERE gate.gate = ANY (names) ORDER BY gate.gate FOR NO KEY UPDATE
        ) AS gates;
        EXIT WHEN cardinality(was.holding) = cardinality(names);  -- else one was dropped meanwhile
    END LOOP;
    -- What is heard of by now is seen by all that follows.
    WITH knock AS (
        DELETE FROM windlass_knock AS knock WHERE knock.gate = ANY (names) RETURNING knock.gate
    )
    SELECT array_agg(gate) INTO knocked FROM knock;
    WITH limits AS MATERIALIZED (
        SELECT name, (facts ->> 'concurrency')::bigint AS concurrency,
            (facts ->> 'starts')::bigint AS starts,
            coalesce(round((facts ->> 'period')::numeric * 1000000), 0)::bigint AS length
        FROM (
            SELECT DISTINCT split_part(given.gate, chr(31), 1) AS name
            FROM unnest(names) AS given (gate)
        ) AS each LEFT JOIN LATERAL (
            SELECT convert_from(record.value, 'UTF8')::jsonb AS facts
            FROM windlass_record AS record
            WHERE record.kind = 'limit' AND record.key = each.name
                AND (record.expires_at IS NULL OR record.expires_at > windlass_open.now)
            LIMIT 1
        ) AS record ON true
    )
    SELECT array_agg(coalesce(checked_at <= windlass_open.now - 1000000
            OR checked_at > windlass_open.now OR gate = ANY (knocked), false) ORDER BY place),
        array_agg(limits.concurrency ORDER BY place), array_agg(limits.starts ORDER BY place),
        array_agg(limits.length ORDER BY place),
        coalesce(array_agg(limits.name) FILTER (WHERE limits.starts IS NOT NULL), '{}')
    INTO suspect, concurrency, starts, length, rates
    FROM unnest(names, was.checked_at) WITH ORDINALITY AS given (gate, checked_at, place), limits
    WHERE limits.name = split_part(given.gate, chr(31), 1);

    -- Starts that no claim has noted, for it did not know of the rate: of those who leave, while that
    -- is known, and of all where they are suspect.
    IF rates <> '{}' THEN
        UPDATE windlass_pass AS pass SET started_at = known.started_at
        FROM (
            SELECT pass.gate, pass.n, pass.fence, CASE WHEN job.n IS NULL THEN pass.at
                WHEN job.fence = pass.fence THEN job.started_at END AS started_at
            FROM (
                SELECT pass.gate, pass.n, pass.fence, pass.at FROM windlass_pass AS pass
                WHERE pass.gate = ANY (ARRAY(
                    SELECT gate FROM unnest(names, suspect, starts) AS given (gate, suspect, starts)
                    WHERE given.suspect AND given.starts IS NOT NULL
                )) AND pass.started_at IS NULL
                UNION ALL
                SELECT pass.gate, pass.n, pass.fence, pass.at
                FROM unnest(left_gate, gone) AS given (gate, n), LATERAL (
                    SELECT gate, n, fence, at FROM windlass_pass AS pass
                    WHERE pass.gate = given.gate AND pass.n = given.n AND pass.started_at IS NULL
                    OFFSET 0
                ) AS pass
                WHERE given.n IS NOT NULL AND split_part(given.gate, chr(31), 1) = ANY (rates)
            ) AS pass LEFT JOIN LATERAL (
                SELECT n, fence, started_at FROM windlass_job AS job WHERE job.n = pass.n LIMIT 1
            ) AS job ON true OFFSET 0
        ) AS known
        WHERE known.started_at IS NOT NULL
            AND pass.gate = ANY (ARRAY[known.gate]) AND pass.n = ANY (ARRAY[known.n])
            AND pass.fence = ANY (ARRAY[known.fence]);
    END IF;
    -- A start counts, however soon its job has ended.
    WITH over AS (
        DELETE FROM windlass_pass WHERE ctid = ANY (ARRAY(
            SELECT pass.ctid_ FROM unnest(left_gate, gone) AS given (gate, n), LATERAL (
                SELECT pass.ctid AS ctid_ FROM windlass_pass AS pass, LATERAL (
                    SELECT fence, state, gate, started_at FROM windlass_job AS job
                    WHERE job.n = pass.n LIMIT 1
                ) AS job
                WHERE pass.gate = given.gate AND pass.n = given.n
                    AND NOT windlass_holds(pass.fence, job.fence, job.state, job.gate)
                    AND (split_part(given.gate, chr(31), 1) <> ALL (rates)
                        OR pass.started_at IS NULL
                        AND (job.fence < pass.fence OR job.started_at IS NULL))
                OFFSET 0
            ) AS pass
            WHERE given.n IS NOT NULL AND starts_with(given.gate, kind)
        )) RETURNING gate
    )
    SELECT array_agg(held ORDER BY gate) INTO holding FROM (
        SELECT gate, sum(held)::bigint AS held FROM (
            SELECT gate, -1 AS held FROM over
            UNION ALL
            SELECT gate COLLATE "C", held FROM unnest(names, was.holding) AS given (gate, held)
        ) AS each GROUP BY gate
    ) AS gates;
    IF rates <> '{}' OR true = ANY (suspect) THEN
        SELECT * INTO holding, started, ends
        FROM windlass_count_passes(names, suspect, concurrency, starts, length, holding, now);
    END IF;
    free := ARRAY(
        SELECT CASE WHEN num_nonnulls(most, rate) = 0 THEN endless
            ELSE greatest(0, least(most - held, rate - begun)) END
        FROM unnest(concurrency, starts, holding, started) AS given (most, rate, held, begun)
    );
    IF 0 < ANY (free) THEN
        SELECT * INTO let_in, later, passed FROM windlass_let_in(names, ARRAY(
            SELECT least(room, batch) FROM unnest(free) AS given (room)
        ), ARRAY(
            SELECT num_nonnulls(most, rate) > 0
            FROM unnest(concurrency, starts) AS given (most, rate)
        ), now);
    ELSE
        let_in := '{}';
        later := '{}';
        passed := array_fill(0::bigint, ARRAY[cardinality(names)]);
    END IF;

    -- Where there is no room left, somebody's leaving brings it up; unless a start's end does.
    UPDATE windlass_gate AS gate SET look_at = news.look_at, idle_at = news.idle_at,
        holding = news.holding, checked_at = news.checked_at, rated = news.starts IS NOT NULL
    FROM (
        SELECT known.*, CASE
            WHEN known.waits IS NOT TRUE THEN NULL
            -- there were too many, or somebody has one of them
            WHEN known.may_pass THEN windlass_open.now
            WHEN known.full AND known.starts = known.started
                THEN least(known.ends, windlass_open.now + known.length)
            WHEN known.full AND known.starts < known.started
                THEN windlass_next_start(known.gate, known.starts, known.length, now)
            END AS look_at, CASE
            WHEN known.waits THEN NULL
            WHEN known.idled_at > windlass_open.now THEN known.idled_at
            WHEN known.waits IS NULL THEN NULL  -- it is full: whoever leaves makes it idle
            ELSE windlass_open.now + greatest(known.length, 60000000) END AS idle_at
        FROM (
            SELECT given.gate, given.looked_at, given.idled_at, given.held, given.starts,
                given.length, given.ends, given.started + given.passed AS started,
                given.passed >= given.free AS full,
                CASE WHEN num_nonnulls(given.most, given.starts) = 0 THEN given.holding
                    ELSE given.holding + given.passed END AS holding,
                CASE WHEN given.suspect THEN windlass_open.now ELSE given.checked END AS checked_at,
                given.suspect,
                CASE WHEN given.passed < given.free OR given.starts IS NOT NULL THEN EXISTS (
                    SELECT FROM windlass_parked AS parked WHERE parked.gate = given.gate
                ) END AS waits,
                given.passed < given.free AND EXISTS (
                    SELECT FROM windlass_parked AS parked WHERE parked.gate = given.gate
                        AND (parked.expires_at IS NULL OR parked.expires_at > windlass_open.now)
                ) AS may_pass
            FROM unnest(names, was.look_at, was.idle_at, was.holding, was.checked_at, concurrency,
                starts, length, holding, started, ends, free, passed, suspect
            ) AS given (gate, looked_at, idled_at, held, checked, most, starts, length, holding,
                started, ends, free, passed, suspect)
        ) AS known
    ) AS news
    WHERE gate.gate = ANY (ARRAY[news.gate]) AND (news.suspect
        OR news.look_at IS DISTINCT FROM news.looked_at
        OR news.idle_at IS DISTINCT FROM news.idled_at OR news.holding <> news.held);
END
$$;

-- What all passes of these gates are worth, where they are suspect or there is a rate; the others
-- are as they were. What counts no more goes.
CREATE FUNCTION windlass_count_passes(
    names text[], suspect boolean[], concurrency bigint[], starts bigint[], length bigint[],
    INOUT holding bigint[], now bigint, OUT started bigint[], OUT ends bigint[]
) LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    WITH seen AS MATERIALIZED (
        SELECT limits.place, limits.most, limits.rate, pass.ctid_, pass.until, NOT pass.looked
            OR coalesce((
                SELECT windlass_holds(pass.fence, job.fence, job.state, job.gate)
                FROM windlass_job AS job WHERE job.n = pass.n
            ), false) AS holds
        FROM unnest(names, suspect, concurrency, starts, length) WITH ORDINALITY
            AS limits (gate, suspect, most, rate, length, place),
        LATERAL (
            SELECT pass.ctid AS ctid_, pass.n, pass.fence, pass.started_at + limits.length AS until,
                limits.suspect OR limits.most IS NOT NULL OR coalesce(
                    pass.started_at + limits.length <= windlass_count_passes.now, false) AS looked
            FROM windlass_pass AS pass WHERE pass.gate = limits.gate OFFSET 0
        ) AS pass
        WHERE limits.suspect OR limits.rate IS NOT NULL
    ),
    judged AS MATERIALIZED (
        SELECT place, ctid_, until, holds AND num_nonnulls(most, rate) > 0 AS holds,
            rate IS NOT NULL AND coalesce(until > windlass_count_passes.now, holds) AS starts
        FROM seen
    ),
    over AS (
        DELETE FROM windlass_pass WHERE ctid = ANY (ARRAY(
            SELECT ctid_ FROM judged WHERE NOT holds AND NOT starts
        ))
    )
    SELECT array_agg(CASE WHEN looked THEN held ELSE was END ORDER BY place),
        array_agg(begun ORDER BY place), array_agg(first_end ORDER BY place)
    INTO holding, started, ends FROM (
        SELECT place, count(*) FILTER (WHERE holds) AS held, count(*) FILTER (WHERE starts) AS begun,
            min(until) FILTER (WHERE starts) AS first_end, max(was) AS was,
            bool_or(looked) AS looked
        FROM (
            SELECT place, holds, starts, until, NULL::bigint AS was, NULL::boolean AS looked
            FROM judged
            UNION ALL
            SELECT place, NULL, NULL, NULL, was, suspect OR rate IS NOT NULL
            FROM unnest(holding, suspect, starts) WITH ORDINALITY
                AS given (was, suspect, rate, place)
        ) AS passes GROUP BY place
    ) AS counts;
END
$$;

-- When a rate that was lowered lets the next one pass: core's `room`.
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
        SELECT moving.*, CASE WHEN next IS NULL THEN queue END AS line,
            CASE WHEN next IS NULL THEN nextval('windlass_serial') ELSE position END AS arrival
        FROM (
            SELECT picked.*, gates[array_position(gates, passes) + 1] AS next FROM picked
            ORDER BY place OFFSET 0
        ) AS moving
    ),
    -- Where each line begins that somebody with a key comes into, or will.
    lines AS MATERIALIZED (
        SELECT next, line, priority, min(place) AS place,
            (array_agg(arrival ORDER BY place))[1] AS arrival, CASE WHEN next IS NULL THEN (
                SELECT position FROM windlass_line AS old
                WHERE old.queue = moving.line AND old.priority = moving.priority
                ORDER BY old.queue, old.priority DESC, old.position, old.id LIMIT 1
            ) ELSE (
                SELECT position FROM windlass_parked AS old
                WHERE old.gate = moving.next AND old.priority = moving.priority
                ORDER BY old.gate, old.priority DESC, old.position, old.id LIMIT 1
            ) END AS first
        FROM moving GROUP BY next, line, priority HAVING count(limit_key) > 0
    ),
    placed AS MATERIALIZED (
        SELECT n, next, state, expires_at, number, arrival AS becomes FROM moving
        WHERE limit_key IS NULL
        UNION ALL
        SELECT n, next, state, expires_at, number,
            first_value(turn) OVER (PARTITION BY next, line, priority, limit_key ORDER BY place)
                + 2 * (rank - 1)
        FROM (
            SELECT known.*, CASE WHEN rank = 1 THEN (
                SELECT CASE
                    WHEN lines.first IS NULL
                        THEN lines.arrival + (known.place > lines.place)::integer
                    WHEN known.last IS NULL THEN lines.first + 1
                    ELSE greatest(lines.first, known.last + 2) END
                FROM lines WHERE lines.priority = known.priority
                    AND lines.line IS NOT DISTINCT FROM known.line
                    AND lines.next IS NOT DISTINCT FROM known.next
            ) END AS turn
            FROM (
                SELECT ranked.*, CASE WHEN rank > 1 THEN NULL WHEN next IS NULL THEN (
                    SELECT position FROM windlass_line AS old
                    WHERE old.queue = ranked.line AND old.priority = ranked.priority
                        AND old.limit_key = ranked.limit_key AND old.limit_key IS NOT NULL
                    ORDER BY old.queue DESC, old.priority DESC, old.limit_key DESC,
                        old.position DESC LIMIT 1
                ) ELSE (
                    SELECT position FROM windlass_parked AS old
                    WHERE old.gate = ranked.next AND old.priority = ranked.priority
                        AND old.limit_key = ranked.limit_key AND old.limit_key IS NOT NULL
                    ORDER BY old.gate DESC, old.priority DESC, old.limit_key DESC,
                        old.position DESC LIMIT 1
                ) END AS last
                FROM (
                    SELECT moving.*, row_number() OVER (
                        PARTITION BY next, line, priority, limit_key ORDER BY place
                    ) AS rank FROM moving WHERE limit_key IS NOT NULL
                ) AS ranked OFFSET 0
            ) AS known
        ) AS turned
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
