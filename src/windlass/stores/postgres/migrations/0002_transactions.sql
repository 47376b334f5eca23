-- Jobs inside the caller's own transaction, for any language:
--
--     SELECT * FROM windlass_enqueue('[{"task": "mail.send", "payload": {"to": "ada"}}]');
--
-- The rules are those of core's enqueue decision and initial state; a test compares the two. An
-- invalid item raises an error that names the item and the reason, and nothing of the call is
-- stored. All other functions here are internal and may change.
--
-- SQLSTATEs: 22023 invalid item; WL001 lease lost; WL002 another database than the app's; WL003
-- conflict of a job that is enqueued together with others; WL005 parent not found.

-- Identifies this database: a copy, or another server, returns another value.
CREATE FUNCTION windlass_database_id() RETURNS text LANGUAGE sql STABLE SET search_path FROM CURRENT
AS $$
    SELECT concat_ws('/', (SELECT oid FROM pg_database WHERE datname = current_database()),
        'windlass_job'::regclass::oid, (SELECT applied_at FROM windlass_schema WHERE version = 1))
$$;

CREATE FUNCTION windlass_check_database(database_id text) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    IF database_id <> windlass_database_id() THEN
        RAISE EXCEPTION USING ERRCODE = 'WL002',
            MESSAGE = 'this connection leads to another database than the store of the app';
    END IF;
END
$$;

-- Returns the rows of jobs, by id, as JSON. Independent of the session's bytea_output.
CREATE FUNCTION windlass_job_rows(ids jsonb) RETURNS SETOF text LANGUAGE sql STABLE
SET search_path FROM CURRENT SET bytea_output = hex
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
    SELECT to_json(job)::text FROM windlass_job AS job
    WHERE job.id = ANY (ARRAY(SELECT jsonb_array_elements_text(ids)::uuid))
$$;

-- Returns a UUIDv7: a random UUID with the current millisecond in its first 48 bits.
CREATE FUNCTION windlass_uuid7() RETURNS uuid LANGUAGE sql VOLATILE
AS $$
    SELECT encode(set_bit(set_bit(overlay(
        uuid_send(gen_random_uuid())
        PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
        FROM 1 FOR 6
    ), 52, 1), 53, 1), 'hex')::uuid
$$;

-- Returns the advisory lock number of a key; the same as Python's `lock_number`.
CREATE FUNCTION windlass_lock_number(VARIADIC parts text[]) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$
    SELECT ('x' || encode(substring(
        sha256(convert_to(array_to_string(parts, chr(31)), 'UTF8')) FROM 1 FOR 8
    ), 'hex'))::bit(64)::bigint
$$;

-- Waits for transactions that enqueue under the same keys. All take these locks in the same order.
CREATE FUNCTION windlass_lock_keys(jobs jsonb) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(requested.key) FROM (
        SELECT DISTINCT keys.key FROM jsonb_array_elements(jobs) AS item, LATERAL (VALUES
            (CASE WHEN item ->> 'request_id' IS NOT NULL THEN windlass_lock_number(
                'request', coalesce(item ->> 'owner', ''), item ->> 'request_id') END),
            (CASE WHEN item ->> 'unique_key' IS NOT NULL THEN windlass_lock_number(
                'unique', coalesce(item ->> 'owner', ''), item ->> 'task', item ->> 'unique_key')
            END)
        ) AS keys (key)
        WHERE keys.key IS NOT NULL ORDER BY keys.key
    ) AS requested;
END
$$;

-- Locks parents, in the order of their ids, so that none of them ends while a job starts to depend
-- on it. Invalid ids are reported later, with their item. Also locks the queue rows of queued
-- parents: otherwise a claim would take them and block on the job row, with all other jobs that it
-- took. So claims skip them as long as the caller's transaction lasts.
CREATE FUNCTION windlass_lock_parents(jobs jsonb) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
    parent_ids uuid[] := ARRAY(
        SELECT DISTINCT name::uuid FROM jsonb_array_elements(jobs) AS item,
            jsonb_array_elements_text(CASE WHEN jsonb_typeof(item -> 'depends_on') = 'array'
                THEN item -> 'depends_on' ELSE '[]' END) AS name
        WHERE name ~* '^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$'
        ORDER BY 1
    );
    parent record;
BEGIN
    FOR parent IN
        SELECT locked.* FROM unnest(parent_ids) AS each (id), LATERAL (
            SELECT job.id, job.state, job.queue, job.priority, job.position FROM windlass_job AS job
            WHERE job.id = each.id LIMIT 1 FOR UPDATE
        ) AS locked
    LOOP
        IF parent.state = 'queued' THEN
            PERFORM FROM windlass_queued AS queued
            WHERE queued.queue = parent.queue AND queued.priority = parent.priority
                AND queued.position = parent.position AND queued.id = parent.id
            FOR UPDATE SKIP LOCKED;
        END IF;
    END LOOP;
END
$$;

-- Notifies waiting workers and event readers at commit, unless the setting windlass.notify is off:
-- NOTIFY serializes commits. Without it, they find changes by polling.
CREATE FUNCTION windlass_notify(work boolean, jobs uuid[]) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    IF (work OR jobs <> '{}')
        AND coalesce(nullif(current_setting('windlass.notify', true), '')::boolean, true)
    THEN
        PERFORM pg_notify('windlass', concat_ws(' ', 'sql', work::integer, CASE
            WHEN cardinality(jobs) > 200 THEN '*'
            ELSE coalesce((
                SELECT translate(encode(string_agg(uuid_send(job), ''), 'base64'), E'+/\n', '-_')
                FROM unnest(jobs) AS changed (job)
            ), '')
        END));
    END IF;
END
$$;

-- Raises the error of an invalid item.
CREATE FUNCTION windlass_refuse(message text) RETURNS void LANGUAGE plpgsql
AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = message; END $$;

-- Parses an instant: microseconds since 1970, or a timestamp with a time zone.
CREATE FUNCTION windlass_instant(name text, value jsonb) RETURNS bigint LANGUAGE plpgsql STABLE
AS $$
DECLARE
    content text := value #>> '{}';
    instant numeric;
BEGIN
    IF content IS NULL THEN
        RETURN NULL;
    ELSIF jsonb_typeof(value) = 'number' THEN
        instant := content;
    ELSIF content ~ ':\d\d(\.\d+)?\s*(Z|[+-]\d\d(:?\d\d)?)$' THEN
        instant := extract(epoch FROM content::timestamptz) * 1000000;
    ELSE
        PERFORM windlass_refuse(format(
            '%s is %L; it must be a timestamp with a time zone, or microseconds since 1970',
            name, content));
    END IF;
    IF instant NOT BETWEEN 0 AND 253402300799999999 OR instant <> trunc(instant) THEN
        PERFORM windlass_refuse(
            format('%s is %s; it must be between 1970 and 9999', name, content));
    END IF;
    RETURN instant;
END
$$;

-- Checks `depends_on`, by the rules of core's check of new jobs.
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
        PERFORM windlass_refuse(format('depends_on has %s jobs, the limit is 100,000; split them '
            'into groups', jsonb_array_length(parents)));
    ELSIF EXISTS (
        SELECT FROM jsonb_array_elements_text(parents) AS name WHERE name::uuid = job_id
    ) THEN
        PERFORM windlass_refuse(format('job %s depends on itself', job_id));
    ELSIF jsonb_array_length(parents) > (
        SELECT count(DISTINCT name::uuid) FROM jsonb_array_elements_text(parents) AS name
    ) THEN
        PERFORM windlass_refuse('depends_on contains a job twice');
    END IF;
END
$$;

-- Returns a retry policy in its stored form: NULL for the default. Checks and rebuilds every value:
-- a row that cannot be decoded would stop its queue.
CREATE FUNCTION windlass_parse_policy(given jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    defaults CONSTANT jsonb := '{"max_retries": 3, "crash_cap": 3, "timeout": null, "backoff":
        {"kind": "exponential", "base": 0.5, "cap": 30, "jitter": "full"}}';
    max_seconds CONSTANT float8 := 315360000;
    policy jsonb := defaults || jsonb_strip_nulls(coalesce(nullif(given, 'null'), '{}'));
    backoff jsonb := policy -> 'backoff';
    kind text := backoff ->> 'kind';
    delay_values float8[];
    result jsonb;
BEGIN
    IF EXISTS (SELECT FROM jsonb_object_keys(policy) AS key WHERE NOT defaults ? key) THEN
        PERFORM windlass_refuse(
            'policy accepts only backoff, max_retries, crash_cap and timeout');
    ELSIF kind = 'exponential' THEN
        backoff := (defaults -> 'backoff') || backoff;
        delay_values := ARRAY[backoff ->> 'base', backoff ->> 'cap'];
        IF backoff ->> 'jitter' NOT IN ('full', 'none') THEN
            PERFORM windlass_refuse('the jitter of the backoff must be "full" or "none"');
        END IF;
        result := jsonb_build_object('kind', kind, 'base', delay_values[1], 'cap', delay_values[2],
            'jitter', backoff -> 'jitter');
    ELSIF kind = 'fixed' THEN
        delay_values := ARRAY[coalesce(backoff ->> 'seconds', '1')];
        result := jsonb_build_object('kind', kind, 'seconds', delay_values[1]);
    ELSIF kind = 'delays' AND jsonb_typeof(backoff -> 'delays') = 'array'
        AND backoff -> 'delays' <> '[]'
    THEN
        delay_values := ARRAY(SELECT jsonb_array_elements_text(backoff -> 'delays'));
        result := jsonb_build_object('kind', kind, 'delays', to_jsonb(delay_values),
            'jitter', coalesce((backoff ->> 'jitter')::float8, 0.2));
        IF (result ->> 'jitter')::float8 NOT BETWEEN 0 AND 1 THEN
            PERFORM windlass_refuse('the jitter of the backoff must be between 0 and 1');
        END IF;
    ELSE
        PERFORM windlass_refuse(format('the backoff is %s; its kind must be exponential, fixed or '
            'schedule (with at least one of delays)', backoff));
    END IF;
    IF EXISTS (SELECT FROM unnest(delay_values) AS seconds
        WHERE seconds IS NULL OR seconds NOT BETWEEN 0 AND max_seconds)
    THEN
        PERFORM windlass_refuse('a delay of the backoff must be between 0 and 10 years');
    ELSIF (policy ->> 'max_retries')::bigint < 0 OR (policy ->> 'crash_cap')::bigint < 1 THEN
        PERFORM windlass_refuse('max_retries cannot be negative, crash_cap must be at least 1');
    ELSIF (policy ->> 'timeout')::float8 NOT BETWEEN 0 AND max_seconds
        OR (policy ->> 'timeout')::float8 = 0
    THEN
        PERFORM windlass_refuse('timeout must be positive and at most 10 years');
    END IF;
    result := jsonb_build_object('backoff', result,
        'max_retries', (policy ->> 'max_retries')::bigint,
        'crash_cap', (policy ->> 'crash_cap')::bigint, 'timeout', (policy ->> 'timeout')::float8);
    RETURN CASE WHEN result <> defaults THEN result::text END;
END
$$;

-- Returns the row of a new job, or raises why the item is invalid. The rules are core's check of
-- new jobs and their initial state.
CREATE FUNCTION windlass_new_row(item jsonb, now bigint) RETURNS windlass_job LANGUAGE plpgsql
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
    max_seconds CONSTANT float8 := 315360000;
    wrong record;
    due bigint;
    job windlass_job;
BEGIN
    IF jsonb_typeof(item) <> 'object' THEN
        PERFORM windlass_refuse(
            format('the job is %s; it must be an object', left(item::text, 80)));
    END IF;
    SELECT field.key, left(field.value::text, 80) AS given, kinds ->> field.key AS kind INTO wrong
    FROM jsonb_each(item) AS field
    WHERE coalesce(kinds ->> field.key NOT IN ('any', jsonb_typeof(field.value)), true)
        AND (field.value <> 'null' OR NOT kinds ? field.key)
    LIMIT 1;
    IF FOUND THEN
        PERFORM windlass_refuse(CASE
            WHEN wrong.key IN ('retry_of', 'resume') THEN
                wrong.key || ' is not supported by windlass_enqueue: retry a job with job.retry() '
                'or windlass jobs retry'
            WHEN wrong.kind IS NULL THEN format('unknown field %I; valid fields: %s', wrong.key,
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
    job.policy := CASE WHEN item ? 'policy' THEN windlass_parse_policy(item -> 'policy') END;
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
        PERFORM windlass_refuse('priority must be between -2147483647 and 2147483647');
    ELSIF (item ->> 'delay')::float8 NOT BETWEEN 0 AND max_seconds THEN
        PERFORM windlass_refuse(format('delay is %s s; it must be between 0 and 10 years',
            item ->> 'delay'));
    END IF;
    SELECT * INTO wrong FROM (VALUES ('lease'), ('expires_in')) AS field (key)
    WHERE (item ->> key)::float8 <= 0 OR (item ->> key)::float8 > max_seconds LIMIT 1;
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

-- Counts the parents that have not ended, plus one if a parent ended without success and the job
-- must end with it (`failed_parent`). The parents are locked. The rule is core's enqueue decision.
CREATE FUNCTION windlass_count_parents(
    item jsonb, job windlass_job, OUT waiting bigint, OUT failed_parent bigint
) LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    parent_ids uuid[] := ARRAY(SELECT jsonb_array_elements_text(item -> 'depends_on')::uuid);
    missing uuid;
BEGIN
    SELECT name INTO missing FROM unnest(parent_ids) AS name WHERE NOT EXISTS (
        SELECT FROM windlass_job AS parent WHERE parent.id = name AND parent.owner = job.owner
    ) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'WL005', MESSAGE = format('job %s depends on job %s, which '
            'does not exist; enqueue a job after the jobs that it depends on', job.id, missing);
    END IF;
    SELECT parent.n INTO failed_parent
    FROM unnest(parent_ids) WITH ORDINALITY AS given (name, ordinal), LATERAL (
        SELECT n, state FROM windlass_job AS parent WHERE parent.id = given.name LIMIT 1
    ) AS parent
    WHERE parent.state IN ('failed', 'canceled') AND job.on_parent <> 'run'
    ORDER BY given.ordinal LIMIT 1;
    SELECT count(*) + (failed_parent IS NOT NULL)::integer INTO waiting
    FROM unnest(parent_ids) AS name, LATERAL (
        SELECT state FROM windlass_job AS parent WHERE parent.id = name LIMIT 1
    ) AS parent
    WHERE parent.state NOT IN ('succeeded', 'failed', 'canceled');
END
$$;

-- Stores the dependencies of a new job, and marks its active parents as awaited.
CREATE FUNCTION windlass_insert_edges(item jsonb, job windlass_job) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO windlass_edge (child, parent, ordinal, child_id, parent_id, open)
    SELECT job.n, parent.n, given.ordinal - 1, job.id, parent.id,
        parent.state NOT IN ('succeeded', 'failed', 'canceled')
    FROM jsonb_array_elements_text(item -> 'depends_on') WITH ORDINALITY AS given (name, ordinal),
        LATERAL (
            SELECT n, id, state FROM windlass_job AS parent
            WHERE parent.id = given.name::uuid LIMIT 1
        ) AS parent;
    UPDATE windlass_job AS parent SET awaited = true
    FROM windlass_edge AS edge
    WHERE edge.child = job.n AND edge.open AND parent.n = ANY (ARRAY[edge.parent]);
END
$$;

-- Ends a waiting job after its parent failed or was canceled: core's `parent_ended`.
CREATE FUNCTION windlass_end_with_parent(job windlass_job, parent windlass_job, now bigint)
RETURNS void LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    ended bigint := greatest(now, job.updated_at);
    cancels boolean := job.on_parent = 'cancel';
    outcome text := CASE WHEN cancels THEN 'canceled' ELSE 'failed' END;
BEGIN
    UPDATE windlass_job AS old SET state = outcome, held = false, position = NULL, due_at = NULL,
        gate = NULL, trigger = CASE WHEN cancels THEN 'parent-cancel' ELSE 'parent-fail' END,
        lease_until = NULL, ended_at = ended, updated_at = ended, waiting_for = 0,
        seq = old.seq + 1,
        cancel_reason = CASE WHEN cancels THEN format('job %s, which it depends on, %s', parent.id,
            CASE parent.state WHEN 'failed' THEN 'failed' ELSE 'was canceled' END) END,
        error = CASE WHEN NOT cancels THEN json_build_object('code', 'parent_failed', 'kind',
            'TERMINAL', 'step', NULL, 'attempt', old.attempt, 'at', ended)::text END
    WHERE old.n = job.n;
    UPDATE windlass_edge AS edge SET open = false WHERE edge.child = job.n AND edge.open;
    DELETE FROM windlass_waiting AS waiting
    WHERE waiting.queue = job.queue AND waiting.state = job.state AND waiting.n = job.n;
    INSERT INTO windlass_unsuccessful (n) VALUES (job.n);
    PERFORM windlass_record_end(job, outcome, ended,
        ended - coalesce(job.queued_at, job.created_at), 0, now);
END
$$;

-- Decrements `waiting_for`, and queues the job when it reaches zero: core's `parent_ended`, for a
-- parent that succeeded or whose failure does not matter.
CREATE FUNCTION windlass_count_down_parents(job windlass_job, now bigint)
RETURNS void LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    effective_now bigint := greatest(now, job.updated_at);
    last CONSTANT boolean := job.waiting_for = 1;
    expires CONSTANT bigint := CASE WHEN job.first_started_at IS NULL THEN job.expires_at END;
    released CONSTANT boolean := last AND NOT job.held
        AND (job.state = 'retrying' OR coalesce(job.due_at <= effective_now, true))
        AND coalesce(expires > effective_now, true);
BEGIN
    IF released AND job.gates IS NOT NULL THEN
        job.position := coalesce(CASE WHEN job.limit_key IS NOT NULL THEN windlass_fair_position(
            job.queue, job.gates[1], job.priority, job.limit_key) END, nextval('windlass_serial'));
        UPDATE windlass_job AS old SET waiting_for = 0, trigger = 'promote', due_at = NULL,
            updated_at = effective_now, gate = job.gates[1], position = job.position
        WHERE old.n = job.n;
        INSERT INTO windlass_gate_queue (
            gate, priority, position, id, n, queue, state, expires_at, limit_key
        ) VALUES (job.gates[1], job.priority, job.position, job.id, job.n, job.queue, job.state,
            expires, job.limit_key);
        DELETE FROM windlass_waiting AS waiting
        WHERE waiting.queue = job.queue AND waiting.state = job.state AND waiting.n = job.n;
        IF expires IS NOT NULL THEN
            INSERT INTO windlass_waiting (queue, state, n, at)
            VALUES (job.queue, job.state, job.n, expires);
        END IF;
        PERFORM windlass_request_gate_check(job.gates);
    ELSIF released THEN
        job.position := coalesce(CASE WHEN job.limit_key IS NOT NULL THEN windlass_fair_position(
            job.queue, NULL, job.priority, job.limit_key) END, nextval('windlass_serial'));
        UPDATE windlass_job AS old SET waiting_for = 0, state = 'queued', trigger = 'promote',
            due_at = NULL, queued_at = effective_now, started_at = NULL, updated_at = effective_now,
            seq = old.seq + 1, queued_seq = old.seq + 1, position = job.position
        WHERE old.n = job.n;
        INSERT INTO windlass_queued (
            queue, priority, position, id, queued_at, expires_at, limit_key
        ) VALUES (job.queue, job.priority, job.position, job.id, effective_now, expires,
            job.limit_key);
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

-- Updates all jobs that wait for a job that ended, recursively; returns their ids.
CREATE FUNCTION windlass_update_dependents(ended bigint, now bigint) RETURNS uuid[] LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    parents bigint[] := ARRAY[ended];
    changed uuid[] := '{}';
    parent windlass_job;
    child windlass_job;
BEGIN
    WHILE cardinality(parents) > 0 LOOP
        SELECT * INTO parent FROM windlass_job AS job WHERE job.n = parents[1];
        parents := parents[2:];
        CONTINUE WHEN NOT parent.awaited;
        -- Locks by id, then reads: a child may have changed while this waited for its lock.
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
                PERFORM windlass_end_with_parent(child, parent, now);
                parents := parents || child.n;
            ELSE
                PERFORM windlass_count_down_parents(child, now);
            END IF;
            changed := changed || child.id;
        END LOOP;
        UPDATE windlass_edge AS edge SET open = false WHERE edge.parent = parent.n AND edge.open;
    END LOOP;
    RETURN changed;
END
$$;

-- Cancels a waiting, locked job that a debounced one replaces: core's `cancel`.
CREATE FUNCTION windlass_displace(job windlass_job, now bigint) RETURNS uuid[] LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    ended bigint := greatest(now, job.updated_at);
BEGIN
    UPDATE windlass_job AS old SET state = 'canceled', trigger = 'cancel', held = false,
        position = NULL, due_at = NULL, lease_until = NULL, ended_at = ended, updated_at = ended,
        cancel_by = NULL, cancel_reason = 'replaced by a newer job', seq = old.seq + 1,
        waiting_for = 0, gate = NULL
    WHERE old.n = job.n;
    DELETE FROM windlass_queued WHERE ctid = ANY (ARRAY(
        SELECT queued.ctid FROM windlass_queued AS queued
        WHERE queued.queue = job.queue AND queued.priority = job.priority
            AND queued.position = job.position AND queued.id = job.id
        FOR UPDATE SKIP LOCKED
    ));
    DELETE FROM windlass_gate_queue AS entry WHERE entry.gate = job.gate
        AND entry.priority = job.priority AND entry.position = job.position
        AND entry.id = job.id;
    DELETE FROM windlass_waiting AS waiting
    WHERE waiting.queue = job.queue AND waiting.state = job.state AND waiting.n = job.n;
    INSERT INTO windlass_unsuccessful (n) VALUES (job.n);
    PERFORM windlass_record_end(job, 'canceled', ended,
        ended - coalesce(job.queued_at, job.created_at), 0, now);
    UPDATE windlass_edge AS edge SET open = false WHERE edge.child = job.n AND edge.open;
    RETURN windlass_update_dependents(job.n, now);
END
$$;

-- Writes what every end needs: the row in `windlass_ended`, the freed unique key, the rollup. The
-- rollup's shard belongs to this session, above those of the handles: it stays locked until commit.
CREATE FUNCTION windlass_record_end(
    job windlass_job, outcome text, ended bigint, wait bigint, run bigint, now bigint
) RETURNS void LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO windlass_ended (kind, ended_at, jobs) VALUES (outcome, ended, ARRAY[job.n]);
    IF job.logged THEN
        INSERT INTO windlass_ended (kind, ended_at, jobs) VALUES ('log', ended, ARRAY[job.n]);
    END IF;
    DELETE FROM windlass_unique_key AS key WHERE key.owner = job.owner AND key.task = job.task
        AND key.unique_key = job.unique_key;
    IF job.gates IS NOT NULL THEN
        PERFORM windlass_request_gate_check(job.gates);
    END IF;
    INSERT INTO windlass_rollup AS rollup (minute, queue, task, outcome, shard, count, wait, run)
    VALUES (now / 60000000 * 60000000, job.queue, job.task, windlass_record_end.outcome,
        100 + pg_backend_pid() % 32000, 1, windlass_record_end.wait, windlass_record_end.run)
    ON CONFLICT ON CONSTRAINT windlass_rollup_key DO UPDATE SET
        count = rollup.count + excluded.count, wait = rollup.wait + excluded.wait,
        run = rollup.run + excluded.run;
END
$$;

-- Refuses jobs that are enqueued together if one depends on a duplicate of an existing job: core's
-- `batch_conflict`. `duplicates` maps ids of duplicates to ids of the existing jobs. `displaced`
-- are jobs that other jobs of the call replaced.
CREATE FUNCTION windlass_check_duplicate_parents(
    item jsonb, jobs jsonb, duplicates jsonb, displaced uuid[]
) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
    duplicate_id uuid;
    request jsonb;
    existing windlass_job;
BEGIN
    SELECT name::uuid INTO duplicate_id FROM jsonb_array_elements_text(item -> 'depends_on') AS name
    WHERE duplicates ? name::uuid::text LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT given.value INTO request FROM jsonb_array_elements(jobs) AS given
    WHERE (given.value ->> 'id')::uuid = duplicate_id;
    SELECT * INTO existing FROM windlass_job AS old
    WHERE old.id = (duplicates ->> duplicate_id::text)::uuid;
    RAISE EXCEPTION USING ERRCODE = 'WL003', MESSAGE = format(
        'job %s of task %L: the %s is already held by job %s, which %s; other jobs depend on the '
        'new one, so none is enqueued. Wait for that job, depend on it instead, or use another key',
        duplicate_id, request ->> 'task',
        CASE WHEN existing.request_id = request ->> 'request_id'
            THEN format('request id %L', existing.request_id)
            ELSE format('unique key %L', existing.unique_key) END,
        existing.id,
        CASE WHEN EXISTS (
            SELECT FROM jsonb_array_elements(jobs) AS given
            WHERE (given.value ->> 'id')::uuid = existing.id
        ) THEN 'is in the same call'
            WHEN existing.id = ANY (displaced) THEN 'is replaced by one of these'
            ELSE 'is ' || existing.state END
    );
END
$$;

-- `jobs` is an array of jobs, or one job. `now` is for tests. `database_id` is the expected
-- windlass_database_id(). With `atomic`, a conflict raises an error: all jobs are stored, or
-- none. Returns one row per item, in order: `id` is that of the item, `job_id` that of the stored
-- job (an existing one for a duplicate). `n` and `created_at` are set if this call stored it.
-- `error` is the reason of a conflict. `gated`: the job has limits, which admit it after the
-- commit.
CREATE FUNCTION windlass_enqueue(
    jobs jsonb, now bigint DEFAULT NULL, database_id text DEFAULT NULL,
    atomic boolean DEFAULT false
) RETURNS TABLE (
    id uuid, status text, job_id uuid, n bigint, created_at bigint, error text, gated boolean
) LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off  -- the session keeps its plans
AS $$
#variable_conflict use_column
DECLARE
    item jsonb;
    number bigint;
    job windlass_job;
    existing windlass_job;
    failed_parent windlass_job;
    failed_parent_n bigint;
    work boolean := false;
    displaced uuid[] := '{}';
    duplicates jsonb := '{}';
BEGIN
    PERFORM windlass_check_database(database_id);
    IF jsonb_typeof(jobs) = 'object' THEN
        jobs := jsonb_build_array(jobs);
    ELSIF jobs IS NULL OR jsonb_typeof(jobs) <> 'array' THEN
        PERFORM windlass_refuse('windlass_enqueue takes an array of jobs, or one job');
    END IF;
    PERFORM windlass_lock_keys(jobs);
    PERFORM windlass_lock_parents(jobs);
    now := windlass_now(now);
    FOR item, number IN
        SELECT given.value, given.ordinality
        FROM jsonb_array_elements(jobs) WITH ORDINALITY AS given ORDER BY given.ordinality
    LOOP
        BEGIN
            job := windlass_new_row(item, now);
        EXCEPTION WHEN data_exception THEN
            RAISE EXCEPTION USING ERRCODE = '22023',
                MESSAGE = format('job %s of windlass_enqueue: %s', number, SQLERRM),
                HINT = 'nothing of this call was stored';
        END;
        IF duplicates <> '{}' AND jsonb_typeof(item -> 'depends_on') = 'array' THEN
            PERFORM windlass_check_duplicate_parents(item, jobs, duplicates, displaced);
        END IF;
        windlass_enqueue.id := job.id;
        status := NULL;
        job_id := NULL;
        windlass_enqueue.n := NULL;
        windlass_enqueue.created_at := NULL;
        error := NULL;
        gated := false;
        -- Repeats if another transaction committed between the lookup and the insert.
        LOOP
            SELECT * INTO existing FROM windlass_job AS old WHERE old.id = job.id;
            IF FOUND THEN
                IF existing.owner <> job.owner OR windlass_differs(existing, job, item) THEN
                    status := 'conflict';
                    error := format('job id %s is taken; enqueue with a new id', job.id);
                ELSE
                    status := 'created';
                    job_id := job.id;
                END IF;
                EXIT;
            END IF;
            IF job.request_id IS NOT NULL THEN
                SELECT * INTO existing FROM windlass_job AS old
                WHERE old.owner = job.owner AND old.request_id = job.request_id;
                IF FOUND THEN
                    status := 'duplicate';
                    job_id := existing.id;
                    IF windlass_differs(existing, job, item) THEN
                        status := 'conflict';
                        error := format('request id %L was used for job %s with different '
                            'arguments; use a new request id for a new request', job.request_id,
                            existing.id);
                    END IF;
                    EXIT;
                END IF;
            END IF;
            IF job.unique_key IS NOT NULL THEN
                SELECT old.* INTO existing FROM windlass_unique_key AS key, windlass_job AS old
                WHERE key.owner = job.owner AND key.task = job.task
                    AND key.unique_key = job.unique_key AND old.n = key.n;
                -- Locks waiting jobs only: a running job must be extended and settled while this
                -- transaction is open. If it was claimed meanwhile, the end of the block releases
                -- the lock, and the lookup repeats.
                IF existing.state <> 'running' AND (item ->> 'debounce')::boolean THEN
                    BEGIN
                        SELECT * INTO existing FROM windlass_job AS old
                        WHERE old.n = existing.n FOR UPDATE;
                        IF existing.state IN ('created', 'queued', 'retrying') IS NOT TRUE THEN
                            RAISE EXCEPTION USING ERRCODE = 'WL004';
                        END IF;
                    EXCEPTION WHEN SQLSTATE 'WL004' THEN
                        CONTINUE;
                    END;
                    displaced := displaced || existing.id || windlass_displace(existing, now);
                    existing := NULL;
                END IF;
                IF existing.n IS NOT NULL THEN
                    status := 'duplicate';
                    job_id := existing.id;
                    EXIT;
                END IF;
            END IF;
            job.n := nextval('windlass_serial');
            IF jsonb_typeof(item -> 'depends_on') = 'array' THEN
                SELECT * INTO job.waiting_for, failed_parent_n FROM windlass_count_parents(item, job);
                IF job.waiting_for > 0 THEN
                    job.state := 'created';
                    job.queued_at := NULL;
                END IF;
            END IF;
            IF job.state = 'queued' THEN
                job.position := coalesce(CASE WHEN job.limit_key IS NOT NULL THEN
                    windlass_fair_position(job.queue, job.gates[1], job.priority, job.limit_key)
                    END, job.n);
            END IF;
            IF job.state = 'queued' AND job.gates IS NOT NULL THEN
                job.gate := job.gates[1];
                job.state := 'created';
                job.queued_at := NULL;
            END IF;
            IF job.unique_key IS NOT NULL THEN
                INSERT INTO windlass_unique_key (owner, task, unique_key, n)
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
                DELETE FROM windlass_unique_key AS key WHERE key.owner = job.owner
                    AND key.task = job.task AND key.unique_key = job.unique_key;
                CONTINUE;
            END IF;
            IF job.state = 'queued' THEN
                work := true;
                INSERT INTO windlass_queued (
                    queue, priority, position, id, queued_at, expires_at, limit_key
                ) VALUES (job.queue, job.priority, job.position, job.id, job.queued_at,
                    job.expires_at, job.limit_key);
            ELSIF job.gate IS NOT NULL THEN
                INSERT INTO windlass_gate_queue (
                    gate, priority, position, id, n, queue, state, expires_at, limit_key
                ) VALUES (job.gate, job.priority, job.position, job.id, job.n, job.queue,
                    job.state, job.expires_at, job.limit_key);
                PERFORM windlass_request_gate_check(job.gates);
            END IF;
            gated := job.gates IS NOT NULL;
            IF job.state = 'created' AND job.gate IS NULL OR job.expires_at IS NOT NULL THEN
                INSERT INTO windlass_waiting (queue, state, n, at) VALUES (job.queue, job.state,
                    job.n, least(CASE WHEN NOT job.held AND coalesce(job.waiting_for, 0) = 0
                        THEN job.due_at END, job.expires_at));
            END IF;
            IF jsonb_typeof(item -> 'depends_on') = 'array' THEN
                PERFORM windlass_insert_edges(item, job);
                IF failed_parent_n IS NOT NULL THEN
                    SELECT * INTO failed_parent FROM windlass_job AS old WHERE old.n = failed_parent_n;
                    job.updated_at := job.created_at;
                    job.logged := false;
                    PERFORM windlass_end_with_parent(job, failed_parent, now);
                END IF;
            END IF;
            status := 'created';
            job_id := job.id;
            windlass_enqueue.n := job.n;
            windlass_enqueue.created_at := now;
            EXIT;
        END LOOP;
        IF atomic AND status = 'conflict' THEN
            RAISE EXCEPTION USING ERRCODE = 'WL003', MESSAGE = error;
        ELSIF atomic AND status = 'duplicate' THEN
            duplicates := duplicates || jsonb_build_object(job.id, job_id);
        END IF;
        RETURN NEXT;
    END LOOP;
    PERFORM windlass_notify(work, displaced);
END
$$;

-- The same with `atomic`, for a transaction that continues after a conflict: rolls back the rows,
-- locks and notifications, and returns one result with the reason.
CREATE FUNCTION windlass_enqueue_atomic(jobs jsonb, now bigint, database_id text)
RETURNS SETOF json LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN QUERY SELECT to_json(result)
    FROM windlass_enqueue(jobs, now, database_id, atomic => true) AS result;
EXCEPTION WHEN SQLSTATE 'WL003' OR SQLSTATE 'WL005' OR SQLSTATE '22023' THEN
    RETURN NEXT json_build_object('code', SQLSTATE, 'refused', SQLERRM);
END
$$;

-- Whether two requests with the same id differ: by the digests of the clients, or, if neither has
-- one, by their JSON payload and task.
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

-- Settles an attempt as succeeded inside its task's own transaction. `transition` is {"id",
-- "fence", "token", "result" (base64), "children" (as for windlass_enqueue)}. Raises if the lease
-- is lost or a cancel was accepted: then the task's own writes roll back, too. The rule is core's
-- `decide`.
CREATE FUNCTION windlass_succeed(
    transition jsonb, now bigint DEFAULT NULL, database_id text DEFAULT NULL
) RETURNS text LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    children jsonb := coalesce(transition -> 'children', '[]');
    job windlass_job;
    ended bigint;
    changed uuid[];
BEGIN
    PERFORM windlass_check_database(database_id);
    PERFORM windlass_lock_keys(children);
    now := windlass_now(now);
    SELECT * INTO job FROM windlass_job AS old
    WHERE old.id = (transition ->> 'id')::uuid FOR UPDATE;
    IF job.fence IS DISTINCT FROM (transition ->> 'fence')::bigint
        OR job.token IS DISTINCT FROM (transition ->> 'token')::uuid OR job.state <> 'running'
    THEN
        IF job.fence = (transition ->> 'fence')::bigint
            AND job.token = (transition ->> 'token')::uuid AND job.state = 'succeeded'
        THEN
            RETURN job.state;  -- a repeat
        END IF;
        RAISE EXCEPTION USING ERRCODE = 'WL001', MESSAGE = format(
            'job %s is no longer held by this attempt', transition ->> 'id');
    ELSIF job.cancel_at IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'WL001', MESSAGE = format(
            'job %s: cancel requested, so it cannot succeed', transition ->> 'id');
    END IF;
    ended := greatest(now, job.updated_at);
    UPDATE windlass_job AS old SET
        state = 'succeeded', trigger = 'succeed', held = false, position = NULL, due_at = NULL,
        lease_until = NULL, ended_at = ended, updated_at = ended, percent = 100,
        result = decode(transition ->> 'result', 'base64'), error = NULL, error_body = NULL,
        seq = old.seq + 1
    WHERE old.n = job.n;
    PERFORM windlass_record_end(job, 'succeeded', ended, job.started_at - job.queued_at,
        ended - job.started_at, now);
    PERFORM FROM windlass_enqueue(children, now, atomic => true);
    SELECT windlass_update_dependents(job.n, now) INTO changed;
    PERFORM windlass_notify(changed <> '{}', ARRAY[job.id] || changed);
    RETURN 'succeeded';
END
$$;
