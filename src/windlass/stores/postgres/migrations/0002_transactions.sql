-- Jobs inside the caller's own transaction, for any language:
--
--     SELECT * FROM windlass_enqueue('[{"task": "mail.send", "payload": {"to": "ada"}}]');
--
-- The rules are core's `enqueue.admit` and `job.opening`, and a test compares the two. A wrong item
-- raises, and says which and why: nothing of the call is stored then. All other functions here are
-- Windlass's own, and may change.
--
-- SQLSTATEs: 22023 a wrong item; WL001 the lease is lost; WL002 another database than the app's;
-- WL003 a job that cannot be, of those that come together; WL005 a parent that is not there.

-- Which data this is: in a copy, or on another server, it is another.
CREATE FUNCTION windlass_place() RETURNS text LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT concat_ws('/', (SELECT oid FROM pg_database WHERE datname = current_database()),
        'windlass_job'::regclass::oid, (SELECT applied_at FROM windlass_schema WHERE version = 1))
$$;

CREATE FUNCTION windlass_check_place(wanted text) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    IF wanted <> windlass_place() THEN
        RAISE EXCEPTION USING ERRCODE = 'WL002',
            MESSAGE = 'this connection leads to other jobs than those of the app';
    END IF;
END
$$;

-- The rows of jobs, by their ids, as JSON; whatever the caller's session makes of bytes.
CREATE FUNCTION windlass_standing(ids jsonb) RETURNS SETOF text LANGUAGE sql STABLE
SET search_path FROM CURRENT SET bytea_output = hex
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
    SELECT to_json(job)::text FROM windlass_job AS job
    WHERE job.id = ANY (ARRAY(SELECT jsonb_array_elements_text(ids)::uuid))
$$;

-- A UUIDv7 of this millisecond: a random one, with the time over its first 48 bits.
CREATE FUNCTION windlass_uuid7() RETURNS uuid LANGUAGE sql VOLATILE
AS $$
    SELECT encode(set_bit(set_bit(overlay(
        uuid_send(gen_random_uuid())
        PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
        FROM 1 FOR 6
    ), 52, 1), 53, 1), 'hex')::uuid
$$;

-- A key as the number of an advisory lock, as `enqueueing.number_of` makes it.
CREATE FUNCTION windlass_number(VARIADIC parts text[]) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$
    SELECT ('x' || encode(substring(
        sha256(convert_to(array_to_string(parts, chr(31)), 'UTF8')) FROM 1 FOR 8
    ), 'hex'))::bit(64)::bigint
$$;

-- Wait for everybody who enqueues under the same keys, in one order for all.
CREATE FUNCTION windlass_lock(jobs jsonb) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(wanted.key) FROM (
        SELECT DISTINCT keys.key FROM jsonb_array_elements(jobs) AS item, LATERAL (VALUES
            (CASE WHEN item ->> 'request_id' IS NOT NULL THEN windlass_number(
                'request', coalesce(item ->> 'owner', ''), item ->> 'request_id') END),
            (CASE WHEN item ->> 'unique_key' IS NOT NULL THEN windlass_number(
                'unique', coalesce(item ->> 'owner', ''), item ->> 'task', item ->> 'unique_key')
            END)
        ) AS keys (key)
        WHERE keys.key IS NOT NULL ORDER BY keys.key
    ) AS wanted;
END
$$;

-- Nobody ends a job that another one is about to depend on, nor the other way round. By id. What is
-- no id is told of where its item is looked at. The places in line of those that are queued are
-- locked, too: a claim would take them, and wait for the job with all that it took; so it steps over
-- them for as long as the caller's transaction lasts.
CREATE FUNCTION windlass_lock_parents(jobs jsonb) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
    wanted uuid[] := ARRAY(
        SELECT DISTINCT name::uuid FROM jsonb_array_elements(jobs) AS item,
            jsonb_array_elements_text(CASE WHEN jsonb_typeof(item -> 'depends_on') = 'array'
                THEN item -> 'depends_on' ELSE '[]' END) AS name
        WHERE name ~* '^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$'
        ORDER BY 1
    );
    parent record;
BEGIN
    FOR parent IN
        SELECT locked.* FROM unnest(wanted) AS each (id), LATERAL (
            SELECT job.id, job.state, job.queue, job.priority, job.position FROM windlass_job AS job
            WHERE job.id = each.id LIMIT 1 FOR UPDATE
        ) AS locked
    LOOP
        IF parent.state = 'queued' THEN
            PERFORM FROM windlass_line AS line
            WHERE line.queue = parent.queue AND line.priority = parent.priority
                AND line.position = parent.position AND line.id = parent.id
            FOR UPDATE SKIP LOCKED;
        END IF;
    END LOOP;
END
$$;

-- Whoever commits tells waiting workers and followers, unless windlass.notify is off: a NOTIFY puts
-- commits one behind the other. Without it they find the news by polling.
CREATE FUNCTION windlass_tell(work boolean, jobs uuid[]) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    IF (work OR jobs <> '{}')
        AND coalesce(nullif(current_setting('windlass.notify', true), '')::boolean, true)
    THEN
        PERFORM pg_notify('windlass', concat_ws(' ', 'sql', work::integer, CASE
            WHEN cardinality(jobs) > 200 THEN '*'
            ELSE coalesce((
                SELECT translate(encode(string_agg(uuid_send(job), ''), 'base64'), E'+/\n', '-_')
                FROM unnest(jobs) AS told (job)
            ), '')
        END));
    END IF;
END
$$;

CREATE FUNCTION windlass_refuse(what text) RETURNS void LANGUAGE plpgsql
AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = what; END $$;

-- A number of microseconds since 1970, or a timestamp with its time zone.
CREATE FUNCTION windlass_instant(name text, given jsonb) RETURNS bigint LANGUAGE plpgsql STABLE
AS $$
DECLARE
    text_of text := given #>> '{}';
    instant numeric;
BEGIN
    IF text_of IS NULL THEN
        RETURN NULL;
    ELSIF jsonb_typeof(given) = 'number' THEN
        instant := text_of;
    ELSIF text_of ~ ':\d\d(\.\d+)?\s*(Z|[+-]\d\d(:?\d\d)?)$' THEN
        instant := extract(epoch FROM text_of::timestamptz) * 1000000;
    ELSE
        PERFORM windlass_refuse(format(
            '%s is %L; it must be a timestamp with a time zone, or microseconds since 1970',
            name, text_of));
    END IF;
    IF instant NOT BETWEEN 0 AND 253402300799999999 OR instant <> trunc(instant) THEN
        PERFORM windlass_refuse(
            format('%s is %s; it must lie between 1970 and 9999', name, text_of));
    END IF;
    RETURN instant;
END
$$;

-- Core's `job.check`, for what a job depends on.
CREATE FUNCTION windlass_check_parents(parents jsonb, job_id uuid) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
    wrong text;
BEGIN
    SELECT left(parent::text, 80) INTO wrong FROM jsonb_array_elements(parents) AS parent
    WHERE jsonb_typeof(parent) <> 'string'
        OR parent #>> '{}' !~* '^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$' LIMIT 1;
    IF FOUND THEN
        PERFORM windlass_refuse(format('depends_on has %s; it takes the ids of jobs', wrong));
    ELSIF jsonb_array_length(parents) > 100000 THEN
        PERFORM windlass_refuse(format('it depends on %s jobs, the limit is 100,000; gather them '
            'in groups', jsonb_array_length(parents)));
    ELSIF EXISTS (
        SELECT FROM jsonb_array_elements_text(parents) AS name WHERE name::uuid = job_id
    ) THEN
        PERFORM windlass_refuse(format('job %s depends on itself', job_id));
    ELSIF jsonb_array_length(parents) > (
        SELECT count(DISTINCT name::uuid) FROM jsonb_array_elements_text(parents) AS name
    ) THEN
        PERFORM windlass_refuse('depends_on names a job twice');
    END IF;
END
$$;

-- A retry policy as rows keep it: NULL for the default one. Every value is checked and written
-- anew, for a row that nobody can read would stop its queue.
CREATE FUNCTION windlass_policy(given jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    standard CONSTANT jsonb := '{"max_retries": 3, "crash_cap": 3, "timeout": null, "backoff":
        {"kind": "exponential", "base": 0.5, "cap": 30, "jitter": "full"}}';
    most CONSTANT float8 := 315360000;
    policy jsonb := standard || jsonb_strip_nulls(coalesce(nullif(given, 'null'), '{}'));
    backoff jsonb := policy -> 'backoff';
    kind text := backoff ->> 'kind';
    limits float8[];
    made jsonb;
BEGIN
    IF EXISTS (SELECT FROM jsonb_object_keys(policy) AS key WHERE NOT standard ? key) THEN
        PERFORM windlass_refuse(
            'policy may have backoff, max_retries, crash_cap and timeout, no more');
    ELSIF kind = 'exponential' THEN
        backoff := (standard -> 'backoff') || backoff;
        limits := ARRAY[backoff ->> 'base', backoff ->> 'cap'];
        IF backoff ->> 'jitter' NOT IN ('full', 'none') THEN
            PERFORM windlass_refuse('the jitter of the backoff must be "full" or "none"');
        END IF;
        made := jsonb_build_object('kind', kind, 'base', limits[1], 'cap', limits[2],
            'jitter', backoff -> 'jitter');
    ELSIF kind = 'fixed' THEN
        limits := ARRAY[coalesce(backoff ->> 'seconds', '1')];
        made := jsonb_build_object('kind', kind, 'seconds', limits[1]);
    ELSIF kind = 'schedule' AND jsonb_typeof(backoff -> 'delays') = 'array'
        AND backoff -> 'delays' <> '[]'
    THEN
        limits := ARRAY(SELECT jsonb_array_elements_text(backoff -> 'delays'));
        made := jsonb_build_object('kind', kind, 'delays', to_jsonb(limits),
            'jitter', coalesce((backoff ->> 'jitter')::float8, 0.2));
        IF (made ->> 'jitter')::float8 NOT BETWEEN 0 AND 1 THEN
            PERFORM windlass_refuse('the jitter of the backoff must lie between 0 and 1');
        END IF;
    ELSE
        PERFORM windlass_refuse(format('the backoff is %s; its kind must be exponential, fixed or '
            'schedule (with at least one of delays)', backoff));
    END IF;
    IF EXISTS (SELECT FROM unnest(limits) AS seconds
        WHERE seconds IS NULL OR seconds NOT BETWEEN 0 AND most)
    THEN
        PERFORM windlass_refuse('a delay of the backoff must lie between 0 and 10 years');
    ELSIF (policy ->> 'max_retries')::bigint < 0 OR (policy ->> 'crash_cap')::bigint < 1 THEN
        PERFORM windlass_refuse('max_retries cannot be negative, crash_cap must be at least 1');
    ELSIF (policy ->> 'timeout')::float8 NOT BETWEEN 0 AND most
        OR (policy ->> 'timeout')::float8 = 0
    THEN
        PERFORM windlass_refuse('timeout must be positive and at most 10 years');
    END IF;
    made := jsonb_build_object('backoff', made, 'max_retries', (policy ->> 'max_retries')::bigint,
        'crash_cap', (policy ->> 'crash_cap')::bigint, 'timeout', (policy ->> 'timeout')::float8);
    RETURN CASE WHEN made <> standard THEN made::text END;
END
$$;

-- One item as the row that it would be, or what is wrong with it. The rules: core's `job.check` and
-- `job.opening`.
CREATE FUNCTION windlass_opened(item jsonb, now bigint) RETURNS windlass_job LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    kinds CONSTANT jsonb := '{
        "id": "string", "task": "string", "queue": "string", "payload_base64": "string",
        "owner": "string", "team": "string", "request_id": "string", "digest": "string",
        "unique_key": "string", "priority": "number", "delay": "number", "expires_in": "number",
        "lease": "number", "hold": "boolean", "debounce": "boolean", "tags": "array",
        "headers": "object", "policy": "object", "payload": "any", "run_at": "any",
        "expires_at": "any", "depends_on": "array", "on_parent": "string", "flow_id": "string",
        "limit_key": "string"}';
    most CONSTANT float8 := 315360000;
    wrong record;
    due bigint;
    job windlass_job;
BEGIN
    IF jsonb_typeof(item) <> 'object' THEN
        PERFORM windlass_refuse(format('it is %s; it must be an object', left(item::text, 80)));
    END IF;
    SELECT field.key, left(field.value::text, 80) AS given, kinds ->> field.key AS kind INTO wrong
    FROM jsonb_each(item) AS field
    WHERE coalesce(kinds ->> field.key NOT IN ('any', jsonb_typeof(field.value)), true)
        AND (field.value <> 'null' OR NOT kinds ? field.key)
    LIMIT 1;
    IF FOUND THEN
        PERFORM windlass_refuse(CASE
            WHEN wrong.key IN ('retry_of', 'resume') THEN
                wrong.key || ' is not for windlass_enqueue: retry a job by job.retry() or by '
                'windlass jobs retry'
            WHEN wrong.kind IS NULL THEN format('there is no field %I; there are %s', wrong.key,
                (SELECT string_agg(key, ', ' ORDER BY key) FROM jsonb_object_keys(kinds) AS key))
            ELSE format('%s is %s; it must be %s', wrong.key, wrong.given, wrong.kind)
        END);
    END IF;
    SELECT field.key, length(item ->> field.key) AS size, field.most INTO wrong
    FROM (VALUES ('task', 128), ('queue', 128), ('owner', 512), ('team', 512), ('request_id', 512),
        ('unique_key', 512), ('limit_key', 512)) AS field (key, most)
    WHERE length(item ->> field.key) > field.most LIMIT 1;
    IF FOUND THEN
        PERFORM windlass_refuse(format('%s has %s characters, the limit is %s',
            wrong.key, wrong.size, wrong.most));
    END IF;

    job.id := coalesce((item ->> 'id')::uuid, windlass_uuid7());
    IF jsonb_typeof(item -> 'depends_on') = 'array' THEN
        PERFORM windlass_check_parents(item -> 'depends_on', job.id);
    END IF;
    job.task := item ->> 'task';
    job.queue := coalesce(item ->> 'queue', 'default');
    job.owner := coalesce(item ->> 'owner', '');
    job.team := item ->> 'team';
    job.request_id := item ->> 'request_id';
    job.unique_key := item ->> 'unique_key';
    job.digest := decode(item ->> 'digest', 'base64');
    job.payload := coalesce(decode(item ->> 'payload_base64', 'base64'),
        convert_to(coalesce(item -> 'payload', '{}')::text, 'UTF8'));  -- no arguments
    job.priority := coalesce(item ->> 'priority', '0');
    job.lease := round((item ->> 'lease')::float8 * 1000000);
    job.policy := CASE WHEN item ? 'policy' THEN windlass_policy(item -> 'policy') END;
    job.held := coalesce((item ->> 'hold')::boolean, false);
    job.flow_id := (item ->> 'flow_id')::uuid;
    job.on_parent := coalesce(item ->> 'on_parent', 'cancel');
    job.limit_key := item ->> 'limit_key';
    job.gates := windlass_gates(job.queue, job.task, job.limit_key);
    IF coalesce(job.task, '') = '' OR job.queue = '' THEN
        PERFORM windlass_refuse('task and queue must have at least one character');
    ELSIF item ? 'payload' AND item ? 'payload_base64' THEN
        PERFORM windlass_refuse('payload and payload_base64 are both given; give one');
    ELSIF length(job.payload) > 1048576 THEN
        PERFORM windlass_refuse(format('the payload is %s bytes, the limit is 1,048,576; keep the '
            'data in an object store or a file and pass its address', length(job.payload)));
    ELSIF job.on_parent NOT IN ('cancel', 'fail', 'run') THEN
        PERFORM windlass_refuse(format('on_parent is %L; it must be cancel, fail or run',
            job.on_parent));
    ELSIF job.priority = -2147483648 THEN
        PERFORM windlass_refuse('priority must lie between -2147483647 and 2147483647');
    ELSIF (item ->> 'delay')::float8 NOT BETWEEN 0 AND most THEN
        PERFORM windlass_refuse(format('delay is %s s; it must lie between 0 and 10 years',
            item ->> 'delay'));
    END IF;
    SELECT * INTO wrong FROM (VALUES ('lease'), ('expires_in')) AS field (key)
    WHERE (item ->> key)::float8 <= 0 OR (item ->> key)::float8 > most LIMIT 1;
    IF FOUND THEN
        PERFORM windlass_refuse(format('%s is %s s; it must be positive and at most 10 years',
            wrong.key, item ->> wrong.key));
    END IF;
    IF jsonb_array_length(nullif(item -> 'tags', 'null')) > 0 THEN
        job.tags := ARRAY(SELECT jsonb_array_elements_text(item -> 'tags'));
        IF cardinality(job.tags) > 32 OR EXISTS (
            SELECT FROM jsonb_array_elements(item -> 'tags') AS tag
            WHERE jsonb_typeof(tag) <> 'string' OR length(tag #>> '{}') NOT BETWEEN 1 AND 512)
        THEN
            PERFORM windlass_refuse('tags must be at most 32 texts of 1 to 512 characters');
        END IF;
    END IF;
    IF nullif(item -> 'headers', 'null') <> '{}' THEN
        job.headers := item ->> 'headers';
        IF EXISTS (SELECT FROM jsonb_each(item -> 'headers') AS header
                WHERE jsonb_typeof(header.value) <> 'string')
            OR (SELECT sum(length(header.key) + length(header.value #>> '{}'))
                FROM jsonb_each(item -> 'headers') AS header) > 16384
        THEN
            PERFORM windlass_refuse('headers must be texts, and hold at most 16,384 characters');
        END IF;
    END IF;

    due := coalesce(windlass_instant('run_at', item -> 'run_at'),
        now + round((item ->> 'delay')::float8 * 1000000)::bigint, now);
    job.expires_at := coalesce(windlass_instant('expires_at', item -> 'expires_at'),
        now + round((item ->> 'expires_in')::float8 * 1000000)::bigint);
    job.state := CASE WHEN job.held OR due > now THEN 'created' ELSE 'queued' END;
    job.due_at := CASE WHEN due > now THEN due END;
    job.queued_at := CASE WHEN job.state = 'queued' THEN now END;
    job.created_at := now;
    RETURN job;
END
$$;

-- Whom a job depends on: how many have not ended, plus one if one ended without success and the
-- job has to go with it. The parents are locked. The rule is core's `enqueue.admit`.
CREATE FUNCTION windlass_parents(
    item jsonb, job windlass_job, OUT waiting bigint, OUT lost bigint
) LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    named uuid[] := ARRAY(SELECT jsonb_array_elements_text(item -> 'depends_on')::uuid);
    missing uuid;
BEGIN
    SELECT name INTO missing FROM unnest(named) AS name WHERE NOT EXISTS (
        SELECT FROM windlass_job AS parent WHERE parent.id = name AND parent.owner = job.owner
    ) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'WL005', MESSAGE = format('job %s depends on %s, and there '
            'is no such job; enqueue a job after those that it depends on', job.id, missing);
    END IF;
    SELECT parent.n INTO lost FROM unnest(named) WITH ORDINALITY AS given (name, place), LATERAL (
        SELECT n, state FROM windlass_job AS parent WHERE parent.id = given.name LIMIT 1
    ) AS parent
    WHERE parent.state IN ('failed', 'canceled') AND job.on_parent <> 'run'
    ORDER BY given.place LIMIT 1;
    SELECT count(*) + (lost IS NOT NULL)::integer INTO waiting FROM unnest(named) AS name, LATERAL (
        SELECT state FROM windlass_job AS parent WHERE parent.id = name LIMIT 1
    ) AS parent
    WHERE parent.state NOT IN ('succeeded', 'failed', 'canceled');
END
$$;

CREATE FUNCTION windlass_link(item jsonb, job windlass_job) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO windlass_edge (child, parent, place, child_id, parent_id, open)
    SELECT job.n, parent.n, given.place - 1, job.id, parent.id,
        parent.state NOT IN ('succeeded', 'failed', 'canceled')
    FROM jsonb_array_elements_text(item -> 'depends_on') WITH ORDINALITY AS given (name, place),
        LATERAL (
            SELECT n, id, state FROM windlass_job AS parent
            WHERE parent.id = given.name::uuid LIMIT 1
        ) AS parent;
    UPDATE windlass_job AS parent SET awaited = true
    FROM windlass_edge AS edge
    WHERE edge.child = job.n AND edge.open AND parent.n = ANY (ARRAY[edge.parent]);
END
$$;

-- A job that waits goes with its parent: core's `decide.parent_ended`, for a lost one.
CREATE FUNCTION windlass_end_with(job windlass_job, parent windlass_job, now bigint)
RETURNS void LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    over bigint := greatest(now, job.updated_at);
    cancels boolean := job.on_parent = 'cancel';
    outcome text := CASE WHEN cancels THEN 'canceled' ELSE 'failed' END;
BEGIN
    UPDATE windlass_job AS old SET state = outcome, held = false, position = NULL, due_at = NULL,
        gate = NULL, trigger = CASE WHEN cancels THEN 'parent-cancel' ELSE 'parent-fail' END,
        lease_until = NULL, ended_at = over, updated_at = over, waiting_for = 0,
        seq = old.seq + 1,
        cancel_reason = CASE WHEN cancels THEN format('job %s, which it depends on, %s', parent.id,
            CASE parent.state WHEN 'failed' THEN 'failed' ELSE 'was canceled' END) END,
        error = CASE WHEN NOT cancels THEN json_build_object('code', 'parent_failed', 'kind',
            'TERMINAL', 'step', NULL, 'attempt', old.attempt, 'at', over)::text END
    WHERE old.n = job.n;
    UPDATE windlass_edge AS edge SET open = false WHERE edge.child = job.n AND edge.open;
    DELETE FROM windlass_waiting AS waiting
    WHERE waiting.queue = job.queue AND waiting.state = job.state AND waiting.n = job.n;
    INSERT INTO windlass_trouble (n) VALUES (job.n);
    PERFORM windlass_ended(job, outcome, over, over - coalesce(job.queued_at, job.created_at), 0,
        now);
END
$$;

-- One job less to wait for; the last one sets it free: the same for a parent that succeeded, or
-- whose end does not matter.
CREATE FUNCTION windlass_count_down(job windlass_job, now bigint) RETURNS void LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    over bigint := greatest(now, job.updated_at);
    last CONSTANT boolean := job.waiting_for = 1;
    expires CONSTANT bigint := CASE WHEN job.first_started_at IS NULL THEN job.expires_at END;
    free CONSTANT boolean := last AND NOT job.held
        AND (job.state = 'retrying' OR coalesce(job.due_at <= over, true))
        AND coalesce(expires > over, true);
BEGIN
    IF free AND job.gates IS NOT NULL THEN
        job.position := coalesce(CASE WHEN job.limit_key IS NOT NULL THEN windlass_turn(
            job.queue, job.gates[1], job.priority, job.limit_key) END, nextval('windlass_serial'));
        UPDATE windlass_job AS old SET waiting_for = 0, trigger = 'promote', due_at = NULL,
            updated_at = over, gate = job.gates[1], position = job.position WHERE old.n = job.n;
        INSERT INTO windlass_parked (
            gate, priority, position, id, n, queue, state, expires_at, limit_key
        ) VALUES (job.gates[1], job.priority, job.position, job.id, job.n, job.queue, job.state,
            expires, job.limit_key);
        DELETE FROM windlass_waiting AS waiting
        WHERE waiting.queue = job.queue AND waiting.state = job.state AND waiting.n = job.n;
        IF expires IS NOT NULL THEN
            INSERT INTO windlass_waiting (queue, state, n, at)
            VALUES (job.queue, job.state, job.n, expires);
        END IF;
        PERFORM windlass_knock(job.gates);
    ELSIF free THEN
        job.position := coalesce(CASE WHEN job.limit_key IS NOT NULL THEN windlass_turn(
            job.queue, NULL, job.priority, job.limit_key) END, nextval('windlass_serial'));
        UPDATE windlass_job AS old SET waiting_for = 0, state = 'queued', trigger = 'promote',
            due_at = NULL, queued_at = over, started_at = NULL, updated_at = over,
            seq = old.seq + 1, queued_seq = old.seq + 1, position = job.position
        WHERE old.n = job.n;
        INSERT INTO windlass_line (queue, priority, position, id, queued_at, expires_at, limit_key)
        VALUES (job.queue, job.priority, job.position, job.id, over, expires, job.limit_key);
        DELETE FROM windlass_waiting AS waiting
        WHERE waiting.queue = job.queue AND waiting.state = job.state AND waiting.n = job.n;
        IF expires IS NOT NULL THEN
            INSERT INTO windlass_waiting (queue, state, n, at)
            VALUES (job.queue, 'queued', job.n, expires);
        END IF;
    ELSE
        UPDATE windlass_job AS old SET waiting_for = old.waiting_for - 1 WHERE old.n = job.n;
        IF last THEN
            UPDATE windlass_waiting AS waiting
            SET at = least(CASE WHEN NOT job.held THEN job.due_at END, expires)
            WHERE waiting.queue = job.queue AND waiting.state = job.state AND waiting.n = job.n;
        END IF;
    END IF;
END
$$;

-- Tell all who wait for a job that it ended, and so on from there; answers who they are.
CREATE FUNCTION windlass_tell_dependents(ended bigint, now bigint) RETURNS uuid[] LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    parents bigint[] := ARRAY[ended];
    told uuid[] := '{}';
    parent windlass_job;
    child windlass_job;
BEGIN
    WHILE cardinality(parents) > 0 LOOP
        SELECT * INTO parent FROM windlass_job AS job WHERE job.n = parents[1];
        parents := parents[2:];
        CONTINUE WHEN NOT parent.awaited;
        -- First locked, by id; then looked at: whoever waited for a lock may wait no more.
        PERFORM locked.n FROM (
            SELECT edge.child FROM windlass_edge AS edge
            WHERE edge.parent = parent.n AND edge.open ORDER BY edge.child_id OFFSET 0
        ) AS edge, LATERAL (
            SELECT n FROM windlass_job AS job WHERE job.n = edge.child LIMIT 1 FOR UPDATE
        ) AS locked;
        FOR child IN
            SELECT job.* FROM windlass_edge AS edge, LATERAL (
                SELECT * FROM windlass_job AS job WHERE job.n = edge.child LIMIT 1
            ) AS job
            WHERE edge.parent = parent.n AND edge.open ORDER BY edge.child
        LOOP
            CONTINUE WHEN child.waiting_for = 0 OR child.state NOT IN ('created', 'retrying');
            IF parent.state <> 'succeeded' AND child.state = 'created' AND child.on_parent <> 'run'
            THEN
                PERFORM windlass_end_with(child, parent, now);
                parents := parents || child.n;
            ELSE
                PERFORM windlass_count_down(child, now);
            END IF;
            told := told || child.id;
        END LOOP;
        UPDATE windlass_edge AS edge SET open = false WHERE edge.parent = parent.n AND edge.open;
    END LOOP;
    RETURN told;
END
$$;

-- A waiting job, locked, gives way to a debounced one: core's `decide.cancel`.
CREATE FUNCTION windlass_give_way(job windlass_job, now bigint) RETURNS uuid[] LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    over bigint := greatest(now, job.updated_at);
BEGIN
    UPDATE windlass_job AS old SET state = 'canceled', trigger = 'cancel', held = false,
        position = NULL, due_at = NULL, lease_until = NULL, ended_at = over, updated_at = over,
        cancel_by = NULL, cancel_reason = 'replaced by a newer job', seq = old.seq + 1,
        waiting_for = 0, gate = NULL
    WHERE old.n = job.n;
    DELETE FROM windlass_line WHERE ctid = ANY (ARRAY(
        SELECT line.ctid FROM windlass_line AS line
        WHERE line.queue = job.queue AND line.priority = job.priority
            AND line.position = job.position AND line.id = job.id
        FOR UPDATE SKIP LOCKED
    ));
    DELETE FROM windlass_parked AS parked WHERE parked.gate = job.gate
        AND parked.priority = job.priority AND parked.position = job.position
        AND parked.id = job.id;
    DELETE FROM windlass_waiting AS waiting
    WHERE waiting.queue = job.queue AND waiting.state = job.state AND waiting.n = job.n;
    INSERT INTO windlass_trouble (n) VALUES (job.n);
    PERFORM windlass_ended(job, 'canceled', over, over - coalesce(job.queued_at, job.created_at),
        0, now);
    UPDATE windlass_edge AS edge SET open = false WHERE edge.child = job.n AND edge.open;
    RETURN windlass_tell_dependents(job.n, now);
END
$$;

-- What every end leaves: its place in the order of ends, a free key, a count. The count's shard is
-- this session's own, beyond those of the handles: it stays locked until the caller commits.
CREATE FUNCTION windlass_ended(
    job windlass_job, outcome text, over bigint, wait bigint, run bigint, now bigint
) RETURNS void LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO windlass_ended (kind, ended_at, jobs) VALUES (outcome, over, ARRAY[job.n]);
    IF job.logged THEN
        INSERT INTO windlass_ended (kind, ended_at, jobs) VALUES ('log', over, ARRAY[job.n]);
    END IF;
    DELETE FROM windlass_key AS key WHERE key.owner = job.owner AND key.task = job.task
        AND key.unique_key = job.unique_key;
    IF job.gates IS NOT NULL THEN
        PERFORM windlass_knock(job.gates);
    END IF;
    INSERT INTO windlass_rollup AS rollup (minute, queue, task, outcome, shard, count, wait, run)
    VALUES (now / 60000000 * 60000000, job.queue, job.task, windlass_ended.outcome,
        100 + pg_backend_pid() % 32000, 1, windlass_ended.wait, windlass_ended.run)
    ON CONFLICT ON CONSTRAINT windlass_rollup_key DO UPDATE SET
        count = rollup.count + excluded.count, wait = rollup.wait + excluded.wait,
        run = rollup.run + excluded.run;
END
$$;

-- Jobs that come together do not, if one of them depends on one that another stands for: core's
-- `enqueue.refusal`. `stood` has the ids of those, and who stands for them; `displaced` are jobs that
-- others of the call have taken the place of.
CREATE FUNCTION windlass_check_stood(item jsonb, jobs jsonb, stood jsonb, displaced uuid[])
RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
    missed uuid;
    asked jsonb;
    rival windlass_job;
BEGIN
    SELECT name::uuid INTO missed FROM jsonb_array_elements_text(item -> 'depends_on') AS name
    WHERE stood ? name::uuid::text LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT given.value INTO asked FROM jsonb_array_elements(jobs) AS given
    WHERE (given.value ->> 'id')::uuid = missed;
    SELECT * INTO rival FROM windlass_job AS old WHERE old.id = (stood ->> missed::text)::uuid;
    RAISE EXCEPTION USING ERRCODE = 'WL003', MESSAGE = format(
        'job %s of task %L has the %s of job %s, which %s and stands for it; jobs that depend on it '
        'would wait for nobody, so none of these is stored. Wait for the end of that job, depend on '
        'it instead, or give this one a key of its own',
        missed, asked ->> 'task',
        CASE WHEN rival.request_id = asked ->> 'request_id'
            THEN format('request id %L', rival.request_id)
            ELSE format('unique key %L', rival.unique_key) END,
        rival.id,
        CASE WHEN EXISTS (
            SELECT FROM jsonb_array_elements(jobs) AS given
            WHERE (given.value ->> 'id')::uuid = rival.id
        ) THEN 'comes before it'
            WHEN rival.id = ANY (displaced) THEN 'gives way to one of these'
            ELSE 'is ' || rival.state END
    );
END
$$;

-- `jobs` is an array of jobs, or one. `now` is for tests; `place` is what windlass_place() must be.
-- `together` raises, instead of an answer that one of them is a conflict: all are stored, or none.
-- Answers in the order of the items: `id` is the item's own, `job_id` the job that stands for it,
-- and `n` and `created_at` are there if this call stored it. `error` says why it is a conflict;
-- `gated`, that limits are set for it, which it passes after the commit.
CREATE FUNCTION windlass_enqueue(
    jobs jsonb, now bigint DEFAULT NULL, place text DEFAULT NULL, together boolean DEFAULT false
) RETURNS TABLE (
    id uuid, status text, job_id uuid, n bigint, created_at bigint, error text, gated boolean
) LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off  -- plans are kept for as long as the session lasts
AS $$
#variable_conflict use_column
DECLARE
    item jsonb;
    number bigint;
    job windlass_job;
    rival windlass_job;
    lost windlass_job;
    lost_n bigint;
    work boolean := false;
    displaced uuid[] := '{}';
    stood jsonb := '{}';
BEGIN
    PERFORM windlass_check_place(place);
    IF jsonb_typeof(jobs) = 'object' THEN
        jobs := jsonb_build_array(jobs);
    ELSIF jobs IS NULL OR jsonb_typeof(jobs) <> 'array' THEN
        PERFORM windlass_refuse('windlass_enqueue takes an array of jobs, or one job');
    END IF;
    PERFORM windlass_lock(jobs);
    PERFORM windlass_lock_parents(jobs);
    now := windlass_now(now);
    FOR item, number IN
        SELECT given.value, given.ordinality
        FROM jsonb_array_elements(jobs) WITH ORDINALITY AS given ORDER BY given.ordinality
    LOOP
        BEGIN
            job := windlass_opened(item, now);
        EXCEPTION WHEN data_exception THEN
            RAISE EXCEPTION USING ERRCODE = '22023',
                MESSAGE = format('job %s of windlass_enqueue: %s', number, SQLERRM),
                HINT = 'nothing of this call was stored';
        END;
        IF stood <> '{}' AND jsonb_typeof(item -> 'depends_on') = 'array' THEN
            PERFORM windlass_check_stood(item, jobs, stood, displaced);
        END IF;
        windlass_enqueue.id := job.id;
        status := NULL;
        job_id := NULL;
        windlass_enqueue.n := NULL;
        windlass_enqueue.created_at := NULL;
        error := NULL;
        gated := false;
        -- Again, if somebody else was quicker between the look and the write.
        LOOP
            SELECT * INTO rival FROM windlass_job AS old WHERE old.id = job.id;
            IF FOUND THEN
                IF rival.owner <> job.owner OR windlass_differs(rival, job, item) THEN
                    status := 'conflict';
                    error := format('job id %s is taken; enqueue with a new id', job.id);
                ELSE
                    status := 'created';
                    job_id := job.id;
                END IF;
                EXIT;
            END IF;
            IF job.request_id IS NOT NULL THEN
                SELECT * INTO rival FROM windlass_job AS old
                WHERE old.owner = job.owner AND old.request_id = job.request_id;
                IF FOUND THEN
                    status := 'duplicate';
                    job_id := rival.id;
                    IF windlass_differs(rival, job, item) THEN
                        status := 'conflict';
                        error := format('request id %L was used for job %s with different '
                            'arguments; use a new request id for a new request', job.request_id,
                            rival.id);
                    END IF;
                    EXIT;
                END IF;
            END IF;
            IF job.unique_key IS NOT NULL THEN
                SELECT old.* INTO rival FROM windlass_key AS key, windlass_job AS old
                WHERE key.owner = job.owner AND key.task = job.task
                    AND key.unique_key = job.unique_key AND old.n = key.n;
                -- Only one that waits is locked: a job that runs has to be extended and settled,
                -- however long this transaction lasts. The lock of one that was claimed at that
                -- moment goes with the block; then we look again.
                IF rival.state <> 'running' AND (item ->> 'debounce')::boolean THEN
                    BEGIN
                        SELECT * INTO rival FROM windlass_job AS old
                        WHERE old.n = rival.n FOR UPDATE;
                        IF rival.state IN ('created', 'queued', 'retrying') IS NOT TRUE THEN
                            RAISE EXCEPTION USING ERRCODE = 'WL004';
                        END IF;
                    EXCEPTION WHEN SQLSTATE 'WL004' THEN
                        CONTINUE;
                    END;
                    displaced := displaced || rival.id || windlass_give_way(rival, now);
                    rival := NULL;
                END IF;
                IF rival.n IS NOT NULL THEN
                    status := 'duplicate';
                    job_id := rival.id;
                    EXIT;
                END IF;
            END IF;
            job.n := nextval('windlass_serial');
            IF jsonb_typeof(item -> 'depends_on') = 'array' THEN
                SELECT * INTO job.waiting_for, lost_n FROM windlass_parents(item, job);
                IF job.waiting_for > 0 THEN
                    job.state := 'created';
                    job.queued_at := NULL;
                END IF;
            END IF;
            IF job.state = 'queued' THEN
                job.position := coalesce(CASE WHEN job.limit_key IS NOT NULL THEN windlass_turn(
                    job.queue, job.gates[1], job.priority, job.limit_key) END, job.n);
            END IF;
            IF job.state = 'queued' AND job.gates IS NOT NULL THEN
                job.gate := job.gates[1];
                job.state := 'created';
                job.queued_at := NULL;
            END IF;
            IF job.unique_key IS NOT NULL THEN
                INSERT INTO windlass_key (owner, task, unique_key, n)
                VALUES (job.owner, job.task, job.unique_key, job.n) ON CONFLICT DO NOTHING;
                CONTINUE WHEN NOT FOUND;
            END IF;
            INSERT INTO windlass_job (
                id, queue, task, created_at, expires_at, state, trigger, held, position, due_at,
                queued_at, updated_at, seq, queued_seq, n, payload, priority, policy, lease, owner,
                team, tags, headers, request_id, digest, unique_key, waiting_for, on_parent,
                flow_id, limit_key, gates, gate
            ) VALUES (
                job.id, job.queue, job.task, job.created_at, job.expires_at, job.state, 'enqueue',
                job.held, job.position, job.due_at, job.queued_at,
                job.created_at, CASE WHEN job.state = 'queued' THEN 2 ELSE 1 END,
                CASE WHEN job.state = 'queued' THEN 2 ELSE 0 END, job.n, job.payload, job.priority,
                job.policy, job.lease, job.owner, job.team, job.tags, job.headers, job.request_id,
                job.digest, job.unique_key, coalesce(job.waiting_for, 0), job.on_parent,
                job.flow_id, job.limit_key, job.gates, job.gate
            ) ON CONFLICT DO NOTHING;
            IF NOT FOUND THEN
                DELETE FROM windlass_key AS key WHERE key.owner = job.owner
                    AND key.task = job.task AND key.unique_key = job.unique_key;
                CONTINUE;
            END IF;
            IF job.state = 'queued' THEN
                work := true;
                INSERT INTO windlass_line (
                    queue, priority, position, id, queued_at, expires_at, limit_key
                ) VALUES (job.queue, job.priority, job.position, job.id, job.queued_at,
                    job.expires_at, job.limit_key);
            ELSIF job.gate IS NOT NULL THEN
                INSERT INTO windlass_parked (
                    gate, priority, position, id, n, queue, state, expires_at, limit_key
                ) VALUES (job.gate, job.priority, job.position, job.id, job.n, job.queue,
                    job.state, job.expires_at, job.limit_key);
                PERFORM windlass_knock(job.gates);
            END IF;
            gated := job.gates IS NOT NULL;
            IF job.state = 'created' AND job.gate IS NULL OR job.expires_at IS NOT NULL THEN
                INSERT INTO windlass_waiting (queue, state, n, at) VALUES (job.queue, job.state,
                    job.n, least(CASE WHEN NOT job.held AND coalesce(job.waiting_for, 0) = 0
                        THEN job.due_at END, job.expires_at));
            END IF;
            IF jsonb_typeof(item -> 'depends_on') = 'array' THEN
                PERFORM windlass_link(item, job);
                IF lost_n IS NOT NULL THEN
                    SELECT * INTO lost FROM windlass_job AS old WHERE old.n = lost_n;
                    job.updated_at := job.created_at;
                    job.logged := false;
                    PERFORM windlass_end_with(job, lost, now);
                END IF;
            END IF;
            status := 'created';
            job_id := job.id;
            windlass_enqueue.n := job.n;
            windlass_enqueue.created_at := now;
            EXIT;
        END LOOP;
        IF together AND status = 'conflict' THEN
            RAISE EXCEPTION USING ERRCODE = 'WL003', MESSAGE = error;
        ELSIF together AND status = 'duplicate' THEN
            stood := stood || jsonb_build_object(job.id, job_id);
        END IF;
        RETURN NEXT;
    END LOOP;
    PERFORM windlass_tell(work, displaced);
END
$$;

-- The same for jobs that come together, in a transaction that goes on if they do not: what they
-- left is taken back, their locks and their news, too, and the one answer says why.
CREATE FUNCTION windlass_enqueue_together(jobs jsonb, now bigint, place text) RETURNS SETOF json
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN QUERY SELECT to_json(answer)
    FROM windlass_enqueue(jobs, now, place, together => true) AS answer;
EXCEPTION WHEN SQLSTATE 'WL003' OR SQLSTATE 'WL005' OR SQLSTATE '22023' THEN
    RETURN NEXT json_build_object('code', SQLSTATE, 'refused', SQLERRM);
END
$$;

-- Whether a request under the same name is another one: by the digests that clients make, or, where
-- there is none on either side, by what was asked for as JSON.
CREATE FUNCTION windlass_differs(old windlass_job, new windlass_job, item jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE
        WHEN old.digest IS NOT NULL AND new.digest IS NOT NULL THEN old.digest <> new.digest
        WHEN old.digest IS NULL AND new.digest IS NULL AND item ? 'payload'
            THEN old.payload <> new.payload OR old.task <> new.task
        ELSE false
    END
$$;

-- The success of an attempt inside its task's own transaction: {"id", "fence", "token", "result"
-- (base64), "children" (as for windlass_enqueue)}. Raises unless the lease is held and no cancel
-- was accepted, so that what the task wrote goes with it. The rule is core's `decide`.
CREATE FUNCTION windlass_succeed(wish jsonb, now bigint DEFAULT NULL, place text DEFAULT NULL)
RETURNS text LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    children jsonb := coalesce(wish -> 'children', '[]');
    job windlass_job;
    over bigint;
    told uuid[];
BEGIN
    PERFORM windlass_check_place(place);
    PERFORM windlass_lock(children);
    now := windlass_now(now);
    SELECT * INTO job FROM windlass_job AS old WHERE old.id = (wish ->> 'id')::uuid FOR UPDATE;
    IF job.fence IS DISTINCT FROM (wish ->> 'fence')::bigint
        OR job.token IS DISTINCT FROM (wish ->> 'token')::uuid OR job.state <> 'running'
    THEN
        IF job.fence = (wish ->> 'fence')::bigint AND job.token = (wish ->> 'token')::uuid
            AND job.state = 'succeeded'
        THEN
            RETURN job.state;  -- a repeat
        END IF;
        RAISE EXCEPTION USING ERRCODE = 'WL001', MESSAGE = format(
            'job %s is no longer held by this attempt', wish ->> 'id');
    ELSIF job.cancel_at IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'WL001', MESSAGE = format(
            'job %s was asked to cancel, and that wins', wish ->> 'id');
    END IF;
    over := greatest(now, job.updated_at);
    UPDATE windlass_job AS old SET
        state = 'succeeded', trigger = 'succeed', held = false, position = NULL, due_at = NULL,
        lease_until = NULL, ended_at = over, updated_at = over, percent = 100,
        result = decode(wish ->> 'result', 'base64'), error = NULL, error_body = NULL,
        seq = old.seq + 1
    WHERE old.n = job.n;
    PERFORM windlass_ended(job, 'succeeded', over, job.started_at - job.queued_at,
        over - job.started_at, now);
    PERFORM FROM windlass_enqueue(children, now, together => true);
    SELECT windlass_tell_dependents(job.n, now) INTO told;
    PERFORM windlass_tell(told <> '{}', ARRAY[job.id] || told);
    RETURN 'succeeded';
END
$$;
