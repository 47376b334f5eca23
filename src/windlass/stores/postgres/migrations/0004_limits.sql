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
    RETURN CASE WHEN first IS NOT NULL THEN greatest(first, last + 1) END;
END
$$;

-- For a transaction of a caller's own, which may last: it holds no gate, but leaves word that there
-- may be room, or somebody new. The next sweep looks.
CREATE FUNCTION windlass_knock(gates text[]) RETURNS void LANGUAGE sql VOLATILE
AS 'INSERT INTO windlass_knock (gate) SELECT unnest($1)';

-- Let in whom these gates have room for; answers who came into line. Gates are locked after jobs,
-- before leases and counts, and in one order, in which nobody who passes one comes to an earlier.
CREATE FUNCTION windlass_admit(wanted text[], now bigint) RETURNS uuid[] LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off  -- plans are kept for as long as the session lasts
AS $$
#variable_conflict use_column
DECLARE
    kind text;
    name text;
    passed record;
    let_in uuid[] := '{}';
BEGIN
    FOREACH kind IN ARRAY ARRAY['key:', 'task:', 'queue:'] LOOP
        FOR name IN
            SELECT DISTINCT given.name COLLATE "C" FROM unnest(wanted) AS given (name)
            WHERE starts_with(given.name, kind) ORDER BY 1
        LOOP
            SELECT * INTO passed FROM windlass_open(name, now);
            let_in := let_in || passed.let_in;
            wanted := wanted || passed.later;
        END LOOP;
    END LOOP;
    RETURN let_in;
END
$$;

-- Whether a pass takes a slot, by what its job's row says: core's `holds`.
CREATE FUNCTION windlass_holds(passed bigint, fence bigint, state text, gate text) RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE WHEN fence = passed THEN state = 'running'
        WHEN fence < passed THEN state = 'queued' OR gate IS NOT NULL ELSE false END
$$;

-- One gate: `let_in` came into line, `later` are the gates that others came to.
CREATE FUNCTION windlass_open(
    gate text, now bigint, OUT let_in uuid[], OUT later text[]
) LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    batch CONSTANT bigint := 1000;
    facts jsonb;
    concurrency bigint;
    starts bigint;
    length bigint;
    holding bigint;
    counted bigint[] := '{}';  -- until when each start counts
    free bigint := 4611686018427387904;
    passed bigint := 0;
    looks bigint;
BEGIN
    LOOP
        PERFORM FROM windlass_gate AS known WHERE known.gate = windlass_open.gate
        FOR NO KEY UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO windlass_gate (gate) VALUES (windlass_open.gate) ON CONFLICT DO NOTHING;
    END LOOP;
    -- What is heard of by now is seen by all that follows.
    DELETE FROM windlass_knock AS knock WHERE knock.gate = windlass_open.gate;
    SELECT convert_from(record.value, 'UTF8')::jsonb INTO facts FROM windlass_record AS record
    WHERE record.kind = 'limit' AND record.key = split_part(windlass_open.gate, chr(31), 1)
        AND (record.expires_at IS NULL OR record.expires_at > windlass_open.now);
    concurrency := facts ->> 'concurrency';
    starts := facts ->> 'starts';
    length := round((facts ->> 'period')::numeric * 1000000);

    IF starts IS NOT NULL THEN  -- as soon as a start is known, it is noted
        UPDATE windlass_pass AS pass SET started_at = job.started_at FROM windlass_job AS job
        WHERE pass.gate = windlass_open.gate AND pass.started_at IS NULL
            AND job.n = ANY (ARRAY[pass.n]) AND job.fence = pass.fence
            AND job.started_at IS NOT NULL;
        UPDATE windlass_pass AS pass SET started_at = pass.at
        WHERE pass.gate = windlass_open.gate AND pass.started_at IS NULL AND NOT EXISTS (
            SELECT FROM windlass_job AS job WHERE job.n = ANY (ARRAY[pass.n])
        );
    END IF;
    DELETE FROM windlass_pass AS pass
    WHERE pass.gate = windlass_open.gate
        AND (facts IS NULL OR starts IS NULL
            OR coalesce(pass.started_at + length <= windlass_open.now, true))
        AND (facts IS NULL OR NOT EXISTS (
            SELECT FROM windlass_job AS job WHERE job.n = ANY (ARRAY[pass.n])
                AND windlass_holds(pass.fence, job.fence, job.state, job.gate)
        ));
    IF facts IS NOT NULL AND starts IS NULL THEN
        SELECT count(*) INTO holding FROM windlass_pass AS pass
        WHERE pass.gate = windlass_open.gate;
    ELSIF facts IS NOT NULL THEN
        SELECT count(*) FILTER (WHERE seen.holds), coalesce(array_agg(seen.until ORDER BY seen.until)
            FILTER (WHERE seen.until > windlass_open.now), '{}')
        INTO holding, counted FROM (
            SELECT holds, coalesce(pass.started_at,
                CASE WHEN holds THEN windlass_open.now END) + length AS until
            FROM windlass_pass AS pass, LATERAL (SELECT EXISTS (
                SELECT FROM windlass_job AS job WHERE job.n = ANY (ARRAY[pass.n])
                    AND windlass_holds(pass.fence, job.fence, job.state, job.gate)
            ) AS holds) AS held
            WHERE pass.gate = windlass_open.gate
        ) AS seen;
        free := starts - cardinality(counted);
    END IF;
    free := greatest(least(free, coalesce(concurrency - holding, free)), 0);

    IF free > 0 THEN
        SELECT * INTO let_in, later, passed
        FROM windlass_let_in(windlass_open.gate, facts IS NOT NULL, least(free, batch), now);
    END IF;
    let_in := coalesce(let_in, '{}');
    later := coalesce(later, '{}');

    IF EXISTS (SELECT FROM windlass_parked AS parked WHERE parked.gate = windlass_open.gate) THEN
        IF starts IS NOT NULL AND cardinality(counted) + passed >= starts THEN
            counted := counted || array_fill(windlass_open.now + length, ARRAY[passed::integer]);
            looks := counted[cardinality(counted) - starts + 1];
        ELSIF passed < free AND EXISTS (
            SELECT FROM windlass_parked AS parked WHERE parked.gate = windlass_open.gate
                AND (parked.expires_at IS NULL OR parked.expires_at > windlass_open.now)
        ) THEN
            looks := windlass_open.now;  -- there were too many, or somebody has one of them
        END IF;
    END IF;
    UPDATE windlass_gate AS known SET look_at = looks, idle_at = CASE
        WHEN NOT EXISTS (SELECT FROM windlass_parked AS parked
            WHERE parked.gate = windlass_open.gate) THEN windlass_open.now + coalesce(length, 0) END
    WHERE known.gate = windlass_open.gate;
END
$$;

-- The first of those who wait at a gate, so many, pass it: core's `decide.let_in` and `place`. Nobody
-- is waited for: whoever has one of these jobs will knock.
CREATE FUNCTION windlass_let_in(
    gate text, limited boolean, most bigint, now bigint,
    OUT let_in uuid[], OUT later text[], OUT passed bigint
) LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    WITH picked AS MATERIALIZED (
        SELECT job.*, parked.place, parked.position AS position, parked.ctid_
        FROM (
            SELECT parked.ctid AS ctid_, parked.n, parked.position, row_number() OVER () AS place
            FROM (
                SELECT ctid, n, position FROM windlass_parked AS parked
                WHERE parked.gate = $1 AND (parked.expires_at IS NULL OR parked.expires_at > $4)
                ORDER BY parked.gate, parked.priority DESC, parked.position, parked.id LIMIT $3
            ) AS parked
        ) AS parked, LATERAL (
            SELECT n, id, queue, priority, limit_key, state, fence, seq, updated_at, gates,
                CASE WHEN first_started_at IS NULL THEN expires_at END AS expires_at
            FROM windlass_job AS job WHERE job.n = parked.n AND job.gate = $1
            LIMIT 1 FOR UPDATE SKIP LOCKED
        ) AS job
        ORDER BY parked.place
    ),
    passes AS (
        INSERT INTO windlass_pass (gate, n, fence, at)
        SELECT $1, n, fence + 1, $4 FROM picked WHERE $2
    ),
    left_gate AS (
        DELETE FROM windlass_parked WHERE ctid = ANY (ARRAY(SELECT ctid_ FROM picked))
    ),
    moving AS MATERIALIZED (
        SELECT picked.*, next.gate AS next,
            CASE WHEN next.gate IS NULL THEN nextval('windlass_serial') ELSE position END AS arrival,
            CASE WHEN limit_key IS NOT NULL
                THEN windlass_turn(queue, next.gate, priority, limit_key) END AS turn
        FROM picked, LATERAL (
            SELECT picked.gates[array_position(picked.gates, $1) + 1] AS gate
        ) AS next
        ORDER BY place
    ),
    placed AS MATERIALIZED (
        SELECT moving.*, CASE WHEN limit_key IS NULL THEN arrival
            ELSE coalesce(turn, min(arrival) OVER same_line) + row_number() OVER same_key - 1
            END AS becomes
        FROM moving
        WINDOW same_line AS (PARTITION BY next, queue, priority),
            same_key AS (PARTITION BY next, queue, priority, limit_key ORDER BY place)
    ),
    job AS (
        UPDATE windlass_job AS job SET
            gate = placed.next, position = placed.becomes,
            state = CASE WHEN placed.next IS NULL THEN 'queued' ELSE job.state END,
            queued_at = CASE WHEN placed.next IS NULL THEN greatest($4, job.updated_at)
                ELSE job.queued_at END,
            started_at = CASE WHEN placed.next IS NOT NULL THEN job.started_at END,
            updated_at = CASE WHEN placed.next IS NULL THEN greatest($4, job.updated_at)
                ELSE job.updated_at END,
            seq = CASE WHEN placed.next IS NULL THEN job.seq + 1 ELSE job.seq END,
            queued_seq = CASE WHEN placed.next IS NULL THEN job.seq + 1 ELSE job.queued_seq END
        FROM placed WHERE job.n = ANY (ARRAY[placed.n])
        RETURNING job.id, job.n, job.queue, job.priority, job.position, job.limit_key,
            job.queued_at, job.gate, placed.expires_at, placed.state AS before
    ),
    line AS (
        INSERT INTO windlass_line (queue, priority, position, id, queued_at, expires_at, limit_key)
        SELECT queue, priority, position, id, queued_at, expires_at, limit_key
        FROM job WHERE gate IS NULL
    ),
    parked AS (
        INSERT INTO windlass_parked (gate, priority, position, id, n, expires_at, limit_key)
        SELECT gate, priority, position, id, n, expires_at, limit_key
        FROM job WHERE gate IS NOT NULL
    ),
    left_aside AS (
        DELETE FROM windlass_waiting AS waiting USING job
        WHERE job.gate IS NULL AND waiting.queue = ANY (ARRAY[job.queue])
            AND waiting.state = ANY (ARRAY[job.before]) AND waiting.n = ANY (ARRAY[job.n])
    ),
    aside AS (
        INSERT INTO windlass_waiting (queue, state, n, at)
        SELECT queue, 'queued', n, expires_at FROM job
        WHERE gate IS NULL AND expires_at IS NOT NULL
    )
    SELECT array_agg(id) FILTER (WHERE job.gate IS NULL),
        array_agg(DISTINCT job.gate) FILTER (WHERE job.gate IS NOT NULL), count(*)
    INTO let_in, later, passed FROM job;
END
$$;
