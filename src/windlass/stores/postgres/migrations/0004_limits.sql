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

-- A limit that code declares, by the bytes of core's `Setting`, stored if there is none of that name.
-- A program that may only enqueue writes no records, and its jobs have to find their gate: so this is
-- done with the rights of the tables' owner. Whatever else could be asked of it is refused; and what it
-- calls is named in full, so that nobody's own function is taken for ours, or for PostgreSQL's.
DO $do$
BEGIN
    EXECUTE format($format$
CREATE FUNCTION %1$I.windlass_declare(name text, value bytea) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    said text := convert_from(value, 'UTF8');
    facts jsonb := said::jsonb;
    most text := facts ->> 'concurrency';
    starts text := facts ->> 'starts';
    period text := facts ->> 'period';
    written text := format('"concurrency":%%s,"starts":%%s,"period":%%s', coalesce(most, 'null'),
        coalesce(starts, 'null'), coalesce(period, 'null'));
BEGIN
    IF coalesce(name, '') !~ '^(queue|task|key):.' OR length(name) > 512
        OR said IS DISTINCT FROM format('{%%s,"declared":{%%s},"given":null}', written, written)
        OR num_nonnulls(most, starts) = 0 OR num_nonnulls(starts, period) = 1
        OR NOT coalesce(most, '1') ~ '^[1-9][0-9]{0,5}$'
        OR NOT coalesce(starts, '1') ~ '^[1-9][0-9]{0,5}$'
        OR NOT coalesce(period, '1') ~ '^[0-9]{1,9}(\.[0-9]{1,20})?$'
    THEN
        PERFORM %1$I.windlass_refuse(format('%%s is no limit that could be declared', left(name, 80)));
    ELSIF greatest(most::integer, starts::integer) > 100000
        OR period::numeric NOT BETWEEN 0.001 AND 315360000
    THEN
        PERFORM %1$I.windlass_refuse(format('the limit of %%s is out of range', left(name, 80)));
    END IF;
    PERFORM pg_advisory_xact_lock(  -- as `lock_records` does
        %1$I.windlass_number(VARIADIC ARRAY['record', 'limit', name]));
    INSERT INTO %1$I.windlass_record (kind, key, value, version) VALUES ('limit', name, value, 1)
    ON CONFLICT DO NOTHING;
END
$$
    $format$, current_schema());
END
$do$;

REVOKE EXECUTE ON FUNCTION windlass_declare FROM PUBLIC;

-- Who is the first in the line of a queue, or, if there is one, before a gate; and the last of a key
-- there. NULL for nobody, and if there is no key.
CREATE FUNCTION windlass_ends(
    queue text, gate text, priority integer, limit_key text, OUT first bigint, OUT last bigint
) LANGUAGE plpgsql VOLATILE
-- Behind a pooler no session has settings; and the first plan is kept for as long as it lasts.
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    IF windlass_ends.limit_key IS NULL THEN
        RETURN;
    ELSIF windlass_ends.gate IS NULL THEN
        SELECT position INTO first FROM windlass_line AS line
        WHERE line.queue = windlass_ends.queue AND line.priority = windlass_ends.priority
        ORDER BY line.queue, line.priority DESC, line.position, line.id LIMIT 1;
        SELECT position INTO last FROM windlass_line AS line
        WHERE windlass_turn_number(line.queue, line.priority, line.limit_key)
                = windlass_turn_number(
                    windlass_ends.queue, windlass_ends.priority, windlass_ends.limit_key)
            AND line.limit_key = windlass_ends.limit_key AND line.limit_key IS NOT NULL
            AND line.queue IS NOT DISTINCT FROM windlass_ends.queue
            AND line.priority IS NOT DISTINCT FROM windlass_ends.priority
        ORDER BY line.position DESC LIMIT 1;
    ELSE
        SELECT position INTO first FROM windlass_parked AS parked
        WHERE parked.gate = windlass_ends.gate AND parked.priority = windlass_ends.priority
        ORDER BY parked.gate, parked.priority DESC, parked.position, parked.id LIMIT 1;
        SELECT position INTO last FROM windlass_parked AS parked
        WHERE windlass_turn_number(parked.gate, parked.priority, parked.limit_key)
                = windlass_turn_number(
                    windlass_ends.gate, windlass_ends.priority, windlass_ends.limit_key)
            AND parked.limit_key = windlass_ends.limit_key AND parked.limit_key IS NOT NULL
            AND parked.gate IS NOT DISTINCT FROM windlass_ends.gate
            AND parked.priority IS NOT DISTINCT FROM windlass_ends.priority
        ORDER BY parked.position DESC LIMIT 1;
    END IF;
END
$$;

-- Where the next job with a key stands: core's `place`. NULL if nobody stands there.
CREATE FUNCTION windlass_turn(queue text, gate text, priority integer, limit_key text)
RETURNS bigint LANGUAGE sql VOLATILE
AS $$
    SELECT CASE WHEN last IS NULL THEN first + 1 ELSE greatest(first, last + 2) END
    FROM windlass_ends(queue, gate, priority, limit_key)
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
-- that held a slot of the gate of the same place, and hold none by what this transaction wrote, or
-- NULL; `begun` is when their attempts had started, or NULL. Gates are locked after jobs, before
-- leases and counts, and in one order, in which nobody who passes one comes to an earlier. If they
-- are not `opening`, whoever left is taken off, and where somebody waits, it is time to look again.
CREATE FUNCTION windlass_admit(
    wanted text[], gone bigint[], begun bigint[], now bigint, opening boolean
) RETURNS uuid[]
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off  -- plans are kept for as long as the session lasts
SET plan_cache_mode = force_generic_plan  -- and to make one takes longer than all the rest
AS $$
#variable_conflict use_column
DECLARE
    kind text;
    known record;  -- here and below: one value for each gate, in the order of their names
    these record;
    passed record;
    let_in uuid[] := '{}';
BEGIN
    -- Others wait at these gates: a worker that is frozen now must not keep them.
    PERFORM set_config('idle_in_transaction_session_timeout', '5s', true);
    SELECT array_agg(gate) AS gates, array_agg(number) AS gone, array_agg(yet) AS yet
    INTO known FROM (
        SELECT given.gate COLLATE "C" AS gate, count(given.n) AS number,
            count(given.n) FILTER (WHERE given.at IS NULL) AS yet
        FROM unnest(wanted, gone, begun) AS given (gate, n, at) GROUP BY 1
    ) AS each;
    FOREACH kind IN ARRAY ARRAY['key:', 'task:', 'queue:'] LOOP
        SELECT array_agg(gate) AS names, array_agg(number) AS gone, array_agg(yet) AS yet
        INTO these FROM (
            SELECT gate COLLATE "C" AS gate, sum(number)::bigint AS number, sum(yet)::bigint AS yet
            FROM unnest(known.gates, known.gone, known.yet) AS given (gate, number, yet)
            WHERE starts_with(gate, kind) GROUP BY 1 ORDER BY 1
        ) AS each;
        CONTINUE WHEN these.names IS NULL;
        SELECT * INTO passed FROM windlass_open(
            these.names, these.gone, these.yet, wanted, gone, begun, now, opening);
        let_in := let_in || passed.let_in;
        known.gates := known.gates || passed.later;  -- of which nobody has left
        known.gone := known.gone || array_fill(0::bigint, ARRAY[cardinality(passed.later)]);
        known.yet := known.yet || array_fill(0::bigint, ARRAY[cardinality(passed.later)]);
    END LOOP;
    RETURN let_in;
END
$$;

-- Gates of one kind, with how many have left each, and how many of those had not started: `let_in`
-- came into line, `later` are the gates that others came to.
--
-- What a pass is worth, its job's row says. To read all of them each time would be slow where many
-- run: so a gate counts who holds a slot, and whoever leaves is taken off, once, because a row is
-- changed once. Where there is a rate, it counts starts too. Once a second, when somebody knocked, or
-- when nobody should be left, all passes are compared with their jobs, and counted anew.
CREATE FUNCTION windlass_open(
    names text[], leaving bigint[], leaving_yet bigint[],
    left_gate text[], gone bigint[], begun bigint[], now bigint, opening boolean,
    OUT let_in uuid[], OUT later text[]
) LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    batch CONSTANT bigint := 1000;
    endless CONSTANT bigint := 4611686018427387904;
    was record;  -- the gates as they are found: here and below, one value for each
    knocked text[];
    holding bigint[];
    coming bigint[];
    started bigint[];
    suspect boolean[];
    concurrency bigint[];
    starts bigint[];
    length bigint[];
    free bigint[];
    passed bigint[];
BEGIN
    LOOP
        -- Who changes a limit looks at all its gates, and would not see one that is in the making:
        -- so it comes before that, or after. It holds the same lock for itself (`lock_records`), and
        -- then waits for gates: so what is missing is made before any is locked. (If one was dropped
        -- meanwhile, others are locked by then: two that meet so are told apart, and one comes again.)
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
        SELECT array_agg(holding) AS holding, array_agg(coming) AS coming,
            array_agg(started) AS started, array_agg(checked_at) AS checked_at,
            array_agg(look_at) AS look_at, array_agg(idle_at) AS idle_at
        INTO was FROM (
            SELECT holding, coming, started, checked_at, look_at, idle_at
            FROM windlass_gate AS gate
            WHERE gate.gate = ANY (names) ORDER BY gate.gate FOR NO KEY UPDATE
        ) AS gates;
        EXIT WHEN cardinality(was.holding) = cardinality(names);  -- else one was dropped meanwhile
    END LOOP;
    -- What is heard of by now is seen by all that follows.
    WITH knock AS (
        DELETE FROM windlass_knock AS knock WHERE knock.gate = ANY (names) RETURNING knock.gate
    )
    SELECT array_agg(gate) INTO knocked FROM knock;
    holding := ARRAY(
        SELECT held - less FROM unnest(was.holding, leaving) AS given (held, less));
    coming := ARRAY(
        SELECT yet - less FROM unnest(was.coming, leaving_yet) AS given (yet, less));
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
            OR checked_at > windlass_open.now OR gate = ANY (knocked)
            OR held < before AND (held < 0 OR held = 0 AND limits.starts IS NULL), false)
            ORDER BY place),
        array_agg(limits.concurrency ORDER BY place), array_agg(limits.starts ORDER BY place),
        array_agg(limits.length ORDER BY place)
    INTO suspect, concurrency, starts, length
    FROM unnest(names, was.checked_at, was.holding, holding) WITH ORDINALITY
        AS given (gate, checked_at, before, held, place), limits
    WHERE limits.name = split_part(given.gate, chr(31), 1);

    started := was.started;
    IF num_nonnulls(VARIADIC starts) > 0 THEN
        SELECT * INTO coming, started FROM windlass_count_starts(
            names, starts, length, left_gate, begun, gone, now, coming, started);
    END IF;
    IF true = ANY (suspect) THEN
        SELECT * INTO holding, coming, started FROM windlass_count_passes(
            names, suspect, starts, length, now, holding, coming, started);
    END IF;
    free := ARRAY(
        SELECT CASE WHEN num_nonnulls(most, rate) = 0 THEN endless
            ELSE greatest(0, least(most - held, rate - yet - begun)) END
        FROM unnest(concurrency, starts, holding, coming, started)
            AS given (most, rate, held, yet, begun)
    );
    IF opening AND 0 < ANY (free) THEN
        SELECT * INTO let_in, later, passed FROM windlass_let_in(names, ARRAY(
            SELECT least(room, batch) FROM unnest(free) AS given (room)
        ), now);
    ELSE
        let_in := '{}';
        later := '{}';
        passed := array_fill(0::bigint, ARRAY[cardinality(names)]);
    END IF;

    -- Where there is no room left, somebody's leaving brings it up; unless a start's end does.
    UPDATE windlass_gate AS gate SET look_at = news.look_at, idle_at = news.idle_at,
        holding = news.holding, coming = news.coming, started = news.started,
        checked_at = news.checked_at, rated = news.starts IS NOT NULL
    FROM (
        SELECT known.*, CASE
            WHEN known.waits IS NOT TRUE THEN NULL
            -- there were too many, or somebody has one of them
            WHEN known.may_pass THEN windlass_open.now
            WHEN known.full AND known.starts <= known.coming + known.started
                THEN windlass_next_start(known.gate, known.coming,
                    known.coming + known.started - known.starts, known.length, now)
            END AS look_at, CASE
            WHEN known.waits THEN NULL
            WHEN known.idled_at > windlass_open.now THEN known.idled_at
            WHEN known.waits IS NULL THEN NULL  -- it is full: whoever leaves makes it idle
            ELSE windlass_open.now + greatest(known.length, 60000000) END AS idle_at
        FROM (
            SELECT given.gate, given.looked_at, given.idled_at, given.held, given.starts,
                given.length, given.suspect, given.passed >= given.free AS full,
                given.holding + given.passed AS holding,
                CASE WHEN given.starts IS NULL THEN 0 ELSE given.coming + given.passed END
                    AS coming,
                CASE WHEN given.starts IS NULL THEN 0 ELSE given.started END AS started,
                CASE WHEN given.suspect THEN windlass_open.now ELSE given.checked END AS checked_at,
                given.yet, given.begun,
                -- The last in order: before the first of them are all who have just left. And not
                -- EXISTS: that may be planned as a list of all who wait.
                CASE WHEN given.passed < given.free OR given.starts IS NOT NULL THEN (
                    SELECT parked.n FROM windlass_parked AS parked WHERE parked.gate = given.gate
                    ORDER BY parked.gate DESC, parked.priority, parked.position DESC,
                        parked.id DESC LIMIT 1
                ) IS NOT NULL END AS waits,
                given.passed < given.free AND (
                    SELECT parked.n FROM windlass_parked AS parked WHERE parked.gate = given.gate
                        AND (parked.expires_at IS NULL OR parked.expires_at > windlass_open.now)
                    ORDER BY parked.gate DESC, parked.priority, parked.position DESC,
                        parked.id DESC LIMIT 1
                ) IS NOT NULL AS may_pass
            FROM unnest(names, was.look_at, was.idle_at, was.holding, was.coming, was.started,
                was.checked_at, starts, length, holding, coming, started, free, passed, suspect
            ) AS given (gate, looked_at, idled_at, held, yet, begun, checked, starts, length,
                holding, coming, started, free, passed, suspect)
        ) AS known
    ) AS news
    WHERE gate.gate = ANY (ARRAY[news.gate]) AND (news.suspect
        OR news.look_at IS DISTINCT FROM news.looked_at
        OR news.idle_at IS DISTINCT FROM news.idled_at OR news.holding <> news.held
        OR news.coming <> news.yet OR news.started <> news.begun
        OR gate.rated <> (news.starts IS NOT NULL));
END
$$;

-- Where there is a rate: starts that claims have noted since the last look are counted, and those
-- whose time is over go. Whoever has left and is not among them started by a claim that did not know
-- of the rate: it counts, however soon its job has ended.
CREATE FUNCTION windlass_count_starts(
    names text[], starts bigint[], length bigint[], left_gate text[], begun bigint[],
    gone bigint[], now bigint, INOUT coming bigint[], INOUT started bigint[]
) LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    WITH rated AS MATERIALIZED (
        SELECT given.gate, windlass_count_starts.now - given.length AS over
        FROM unnest(names, starts, length) AS given (gate, rate, length)
        WHERE given.rate IS NOT NULL
    ),
    ended AS (
        DELETE FROM windlass_start AS start USING rated
        WHERE start.gate = ANY (ARRAY[rated.gate]) AND start.at <= rated.over
        RETURNING start.gate, cardinality(start.jobs) AS number, start.seen
    ),
    news AS (
        UPDATE windlass_start AS start SET seen = true FROM rated
        WHERE start.gate = ANY (ARRAY[rated.gate]) AND NOT start.seen AND start.at > rated.over
        RETURNING start.gate, cardinality(start.jobs) AS number
    ),
    leaving AS MATERIALIZED (
        SELECT given.gate COLLATE "C" AS gate, given.at, given.n
        FROM unnest(left_gate, gone, begun) AS given (gate, n, at), (
            SELECT DISTINCT split_part(rated.gate, chr(31), 1) AS name, over FROM rated
        ) AS limits
        WHERE given.n IS NOT NULL AND given.at > limits.over
            AND limits.name = split_part(given.gate, chr(31), 1)
    ),
    missed AS (
        INSERT INTO windlass_start (gate, at, jobs, seen)
        SELECT gate, at, array_agg(n), true FROM (
            SELECT gate, at, n FROM leaving
            EXCEPT
            SELECT start.gate, start.at, each.n FROM (
                SELECT DISTINCT gate, at FROM leaving
            ) AS wanted, LATERAL (
                SELECT gate, at, jobs FROM windlass_start AS start
                WHERE start.gate = wanted.gate AND start.at = wanted.at OFFSET 0
            ) AS start, unnest(start.jobs) AS each (n)
        ) AS missing GROUP BY gate, at
        RETURNING gate, cardinality(jobs) AS number
    )
    SELECT array_agg(yet ORDER BY gate), array_agg(count ORDER BY gate) INTO coming, started
    FROM (
        SELECT gate, sum(yet)::bigint AS yet, sum(count)::bigint AS count FROM (
            SELECT gate, yet, count FROM unnest(names, coming, started) AS given (gate, yet, count)
            UNION ALL
            SELECT gate, CASE WHEN seen THEN 0 ELSE -number END,
                CASE WHEN seen THEN -number ELSE 0 END FROM ended
            UNION ALL
            SELECT gate, -number, number FROM news
            UNION ALL
            SELECT gate, -number, number FROM missed
        ) AS each GROUP BY gate
    ) AS gates;
END
$$;

-- Of gates that are suspect: what all passes are worth, by the rows of their jobs, and which starts
-- count. Whoever has left is taken out. One statement, so that no claim comes between the two.
CREATE FUNCTION windlass_count_passes(
    names text[], suspect boolean[], starts bigint[], length bigint[], now bigint,
    INOUT holding bigint[], INOUT coming bigint[], INOUT started bigint[]
) LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    WITH wanted AS MATERIALIZED (
        SELECT given.gate,
            CASE WHEN rate IS NOT NULL THEN windlass_count_passes.now - given.length END AS over
        FROM unnest(names, suspect, starts, length) AS given (gate, suspect, rate, length)
        WHERE given.suspect
    ),
    seen AS MATERIALIZED (
        SELECT wanted.gate, pass.*, its.*
        FROM wanted, LATERAL (
            SELECT ctid AS ctid_, fence, at, jobs FROM windlass_pass AS pass
            WHERE pass.gate = wanted.gate OFFSET 0
        ) AS pass, LATERAL (
            SELECT array_agg(each.n) FILTER (WHERE holds) AS holders,
                count(*) FILTER (WHERE holds) AS held,
                count(*) FILTER (WHERE holds AND each.fence < pass.fence) AS yet,
                -- of those who left, too: a start counts, however soon its job has ended
                array_agg(each.n) FILTER (WHERE begun) AS started,
                array_agg(each.started_at) FILTER (WHERE begun) AS starts
            FROM (
                SELECT job.n, job.fence, job.started_at,
                    windlass_holds(pass.fence, job.fence, job.state, job.gate) AS holds,
                    job.fence = pass.fence AND job.started_at > wanted.over AS begun
                FROM windlass_job AS job WHERE job.n = ANY (pass.jobs)
            ) AS each WHERE holds OR begun  -- nearly all have left
        ) AS its
    ),
    gone AS (
        DELETE FROM windlass_pass WHERE ctid = ANY (ARRAY(
            SELECT ctid_ FROM seen WHERE held < cardinality(jobs)
        ))
    ),
    left_over AS (
        INSERT INTO windlass_pass (gate, fence, at, jobs)
        SELECT gate, fence, at, holders FROM seen WHERE held > 0 AND held < cardinality(jobs)
    ),
    noted AS MATERIALIZED (
        SELECT start.* FROM wanted, LATERAL (
            SELECT ctid AS ctid_, gate, at, jobs, seen, coalesce(at > wanted.over, false) AS counts
            FROM windlass_start AS start WHERE start.gate = wanted.gate OFFSET 0
        ) AS start
    ),
    ended AS (
        DELETE FROM windlass_start
        WHERE ctid = ANY (ARRAY(SELECT ctid_ FROM noted WHERE NOT counts))
    ),
    news AS (
        UPDATE windlass_start SET seen = true
        WHERE ctid = ANY (ARRAY(SELECT ctid_ FROM noted WHERE counts AND NOT seen))
    ),
    missed AS (
        INSERT INTO windlass_start (gate, at, jobs, seen)
        SELECT gate, at, array_agg(n), true FROM (
            SELECT seen.gate, each.at, each.n
            FROM seen, unnest(seen.started, seen.starts) AS each (n, at)
            EXCEPT
            SELECT noted.gate, noted.at, each.n FROM noted, unnest(noted.jobs) AS each (n)
            WHERE noted.counts
        ) AS missing GROUP BY gate, at
        RETURNING gate, cardinality(jobs) AS number
    )
    SELECT array_agg(held ORDER BY gate), array_agg(yet ORDER BY gate),
        array_agg(count ORDER BY gate)
    INTO holding, coming, started FROM (
        SELECT gate, sum(held)::bigint AS held, sum(yet)::bigint AS yet, sum(count)::bigint AS count
        FROM (
            SELECT gate, CASE WHEN suspect THEN 0 ELSE held END AS held,
                CASE WHEN suspect THEN 0 ELSE yet END AS yet,
                CASE WHEN suspect THEN 0 ELSE count END AS count
            FROM unnest(names, suspect, holding, coming, started)
                AS given (gate, suspect, held, yet, count)
            UNION ALL
            SELECT gate, held, yet, 0 FROM seen
            UNION ALL
            SELECT gate, 0, 0, cardinality(jobs) FROM noted WHERE counts
            UNION ALL
            SELECT gate, 0, 0, number FROM missed
        ) AS each GROUP BY gate
    ) AS gates;
END
$$;

-- When a rate lets the next one pass: core's `room`. Of the starts that count, `more` end sooner;
-- those who are `coming` may start now.
CREATE FUNCTION windlass_next_start(
    gate text, coming bigint, more bigint, length bigint, now bigint
) RETURNS bigint LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    one record;
BEGIN
    FOR one IN
        SELECT start.at, cardinality(start.jobs) AS number FROM windlass_start AS start
        WHERE start.gate = windlass_next_start.gate AND start.seen
        ORDER BY start.gate, start.at
    LOOP
        -- a start that lies ahead is from before the clock was set back
        EXIT WHEN one.at > now AND more < coming;
        IF one.at > now THEN
            more := more - coming;
            coming := 0;
        END IF;
        IF more < one.number THEN
            RETURN one.at + length;
        END IF;
        more := more - one.number;
    END LOOP;
    RETURN now + length;
END
$$;

-- The first of those who wait at each gate, so many, pass it: core's `decide.let_in` and `place`.
-- Nobody is waited for: who is held by somebody's open transaction is passed by, and so is who was
-- changed since this statement began (what is locked and read is the new row, and only the old one
-- would be found to be written): the sweep looks again.
CREATE FUNCTION windlass_let_in(
    names text[], most bigint[], now bigint,
    OUT let_in uuid[], OUT later text[], OUT passed bigint[]
) LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    PERFORM FROM unnest(names, most) AS given (gate, most), LATERAL (
        SELECT FROM windlass_parked AS parked WHERE parked.gate = given.gate AND given.most > 0
        ORDER BY parked.gate DESC, parked.priority, parked.position DESC, parked.id DESC LIMIT 1
    ) AS parked LIMIT 1;
    IF NOT FOUND THEN  -- nearly always, where a limit is wide
        let_in := '{}';
        later := '{}';
        passed := array_fill(0::bigint, ARRAY[cardinality(names)]);
        RETURN;
    END IF;
    WITH moving AS MATERIALIZED (
        SELECT its.limit_key, its.next, CASE WHEN its.next IS NOT NULL THEN its.position END
                AS position,
            its.priority, nextval('windlass_serial') AS place, given.number, its.parked_, its.ctid_,
            CASE WHEN its.next IS NULL THEN its.queue END AS line
        FROM unnest(names, most) WITH ORDINALITY AS given (gate, most, number), LATERAL (
            SELECT parked.ctid AS parked_, parked.queue, parked.priority, parked.limit_key,
                parked.position, job.*
            FROM windlass_parked AS parked, LATERAL (
                SELECT job.ctid AS ctid_,
                    CASE WHEN job.gates[2] IS NOT NULL THEN
                        job.gates[array_position(job.gates, given.gate) + 1] END AS next
                FROM windlass_job AS job WHERE job.n = parked.n AND job.gate = given.gate
                LIMIT 1 FOR UPDATE SKIP LOCKED  -- not to be planned as a walk over all jobs
            ) AS job
            WHERE parked.gate = given.gate AND given.most > 0
                AND (parked.expires_at IS NULL OR parked.expires_at > windlass_let_in.now)
            ORDER BY parked.gate, parked.priority DESC, parked.position, parked.id
            LIMIT given.most
        ) AS its
    ),
    -- Those of one key stand two apart, behind the last of it.
    keys AS MATERIALIZED (
        SELECT next, line, priority, min(place) AS place, array_agg(number ORDER BY place) AS numbers,
            array_agg(parked_ ORDER BY place) AS places, array_agg(ctid_ ORDER BY place) AS jobs,
            CASE WHEN next IS NULL THEN (
                SELECT position FROM windlass_line AS old
                WHERE windlass_turn_number(old.queue, old.priority, old.limit_key)
                        = windlass_turn_number(moving.line, moving.priority, moving.limit_key)
                    AND old.limit_key = moving.limit_key AND old.limit_key IS NOT NULL
                    AND old.queue IS NOT DISTINCT FROM moving.line
                    AND old.priority IS NOT DISTINCT FROM moving.priority
                ORDER BY old.position DESC LIMIT 1
            ) ELSE (
                SELECT position FROM windlass_parked AS old
                WHERE windlass_turn_number(old.gate, old.priority, old.limit_key)
                        = windlass_turn_number(moving.next, moving.priority, moving.limit_key)
                    AND old.limit_key = moving.limit_key AND old.limit_key IS NOT NULL
                    AND old.gate IS NOT DISTINCT FROM moving.next
                    AND old.priority IS NOT DISTINCT FROM moving.priority
                ORDER BY old.position DESC LIMIT 1
            ) END AS last
        FROM moving WHERE limit_key IS NOT NULL GROUP BY next, line, priority, limit_key
    ),
    -- Where each line begins that somebody with a key comes into, or will: with the first who stands
    -- there, else with the first who comes. Whoever has no key may stand before that, for keys' own
    -- places run ahead of the count of arrivals; `bare` is the first of those.
    lines AS MATERIALIZED (
        SELECT each.*, CASE WHEN next IS NULL THEN place
            ELSE (SELECT position FROM moving WHERE moving.place = each.place) END AS arrival
        FROM (
            SELECT next, line, priority, min(place) AS place,
                min(place) FILTER (WHERE NOT keyed) AS bare, CASE WHEN next IS NULL THEN (
                SELECT position FROM windlass_line AS old
                WHERE old.queue = coming.line AND old.priority = coming.priority
                ORDER BY old.queue, old.priority DESC, old.position, old.id LIMIT 1
            ) ELSE (
                SELECT position FROM windlass_parked AS old
                WHERE old.gate = coming.next AND old.priority = coming.priority
                ORDER BY old.gate, old.priority DESC, old.position, old.id LIMIT 1
            ) END AS first
            FROM (
                SELECT next, line, priority, place, true AS keyed FROM keys
                UNION ALL
                SELECT next, line, priority, place, false FROM moving
                WHERE limit_key IS NULL AND EXISTS (SELECT FROM keys)
            ) AS coming GROUP BY next, line, priority HAVING bool_or(keyed)
        ) AS each
    ),
    placed AS (
        SELECT number, parked_, ctid_, next, CASE WHEN next IS NULL THEN place ELSE position END
            AS becomes
        FROM moving WHERE limit_key IS NULL
        UNION ALL
        SELECT number, parked_, ctid_, next, turn + 2 * (rank - 1) FROM (
            SELECT unnest(keys.numbers) AS number, unnest(keys.places) AS parked_,
                unnest(keys.jobs) AS ctid_, generate_subscripts(keys.numbers, 1) AS rank,
                keys.next, lines.turn
            FROM keys, LATERAL (
                SELECT CASE
                    WHEN lines.first IS NULL AND lines.place = keys.place THEN lines.arrival
                    WHEN keys.last IS NOT NULL THEN greatest(lines.first, keys.last + 2)
                    ELSE 1 + least(coalesce(lines.first, lines.arrival), CASE
                        WHEN lines.bare IS NULL OR lines.bare > keys.place THEN NULL
                        WHEN keys.next IS NULL THEN lines.bare
                        ELSE (
                            SELECT min(position) FROM moving
                            WHERE limit_key IS NULL AND next = keys.next
                                AND priority = keys.priority AND place < keys.place
                        ) END) END AS turn
                FROM lines WHERE lines.priority = keys.priority
                    AND lines.line IS NOT DISTINCT FROM keys.line
                    AND lines.next IS NOT DISTINCT FROM keys.next
            ) AS lines
        ) AS each
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
        FROM placed WHERE job.ctid = placed.ctid_
        -- first what is asked of all of them below: to read a column is to step over all before it
        RETURNING job.gate, CASE WHEN job.first_started_at IS NULL THEN job.expires_at END
                AS expires_at,
            placed.parked_, placed.number, job.fence, job.n, job.id, job.priority, job.position,
            job.queued_at, job.queue, job.limit_key, job.state
    ),
    gone AS (DELETE FROM windlass_parked WHERE ctid = ANY (ARRAY(SELECT parked_ FROM job))),
    passing AS (
        INSERT INTO windlass_pass (gate, fence, at, jobs)
        SELECT names[number], fence + 1, windlass_let_in.now, array_agg(n) FROM job
        GROUP BY number, fence
        RETURNING gate, cardinality(jobs) AS number
    ),
    line AS (
        INSERT INTO windlass_line (queue, priority, position, id, queued_at, expires_at, limit_key)
        SELECT queue, priority, position, id, queued_at, expires_at, limit_key
        FROM job WHERE gate IS NULL
    ),
    parked AS (
        INSERT INTO windlass_parked (
            gate, priority, position, id, n, queue, state, expires_at, limit_key)
        SELECT gate, priority, position, id, n, queue, state, expires_at, limit_key
        FROM job WHERE gate IS NOT NULL
    ),
    -- Whoever expires is listed with its state; at a gate, it has not run before.
    left_aside AS (
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
    aside AS (
        INSERT INTO windlass_waiting (queue, state, n, at)
        SELECT queue, state, n, expires_at FROM job WHERE gate IS NULL AND expires_at IS NOT NULL
    )
    SELECT
        (SELECT coalesce(array_agg(id), '{}') FROM job WHERE gate IS NULL),
        (SELECT coalesce(array_agg(DISTINCT gate), '{}') FROM job WHERE gate IS NOT NULL),
        (SELECT array_agg(number ORDER BY gate) FROM (
            SELECT gate, sum(number) AS number FROM (
                SELECT gate, number FROM passing UNION ALL SELECT unnest(names) COLLATE "C", 0
            ) AS given GROUP BY gate
        ) AS each)
    INTO let_in, later, passed;
END
$$;
