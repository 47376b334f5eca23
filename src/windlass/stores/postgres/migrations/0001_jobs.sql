-- Every name starts with windlass_: the database may also hold the application's own tables.
-- Instants are microseconds since 1970, UTC. Text is compared by code point, as in every other
-- store.

-- Numbers jobs and queue positions.
CREATE SEQUENCE windlass_serial;

-- The only source of time: the server's clock, or the instant that a test gives.
CREATE FUNCTION windlass_now(given bigint) RETURNS bigint LANGUAGE sql VOLATILE
AS 'SELECT coalesce($1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)';

-- Identifies the jobs of one limit key in the order of a queue or a gate.
CREATE FUNCTION windlass_limit_key_hash(queue_or_gate text, priority integer, limit_key text)
RETURNS bigint
LANGUAGE sql IMMUTABLE AS 'SELECT hashtextextended($3, hashtextextended($1, $2))';

-- Jobs. Column order: first the indexed columns (an update compares them), then those that limits
-- read (reading a column steps over all before it), then the lifecycle in the order of core's
-- `LifecycleRow`, then the rest of the request.
--
-- No index and no index condition uses a column that a claim, an extension, a record or a settle
-- changes. So all of these are HOT updates: they write one tuple and no index entry. A search by
-- such a column uses a narrow table below, which holds rows only while they matter.
CREATE TABLE windlass_job (
    id uuid NOT NULL,
    n bigint NOT NULL,
    owner text COLLATE "C" NOT NULL,
    request_id text COLLATE "C",
    root_id uuid,
    flow_id uuid,
    limit_key text COLLATE "C",
    gates text[] COLLATE "C",
    gate text COLLATE "C",
    queue text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint,
    state text COLLATE "C" NOT NULL,
    trigger text COLLATE "C" NOT NULL,
    held boolean NOT NULL DEFAULT false,
    waiting_for bigint NOT NULL DEFAULT 0,
    position bigint,
    due_at bigint,
    attempt bigint NOT NULL DEFAULT 0,
    fence bigint NOT NULL DEFAULT 0,
    token uuid,
    worker text COLLATE "C",
    lease_until bigint,
    queued_at bigint,
    started_at bigint,
    first_started_at bigint,
    ended_at bigint,
    updated_at bigint NOT NULL,
    seq bigint NOT NULL,
    queued_seq bigint NOT NULL DEFAULT 0,
    started_seq bigint NOT NULL DEFAULT 0,
    last_record bigint NOT NULL DEFAULT 0,
    percent smallint NOT NULL DEFAULT 0,
    stage text COLLATE "C",
    phase text COLLATE "C",
    base_percent smallint NOT NULL DEFAULT 0,
    base_stage text COLLATE "C",
    base_phase text COLLATE "C",
    retry_count bigint NOT NULL DEFAULT 0,
    crash_count bigint NOT NULL DEFAULT 0,
    cancel_at bigint,
    cancel_by text COLLATE "C",
    cancel_reason text COLLATE "C",
    error text COLLATE "C",
    error_body bytea,
    result bytea,
    last_step text COLLATE "C",
    payload bytea NOT NULL,
    priority integer NOT NULL,
    policy text COLLATE "C",
    lease bigint,
    team text COLLATE "C",
    tags text[] COLLATE "C",
    headers text COLLATE "C",
    digest bytea,
    unique_key text COLLATE "C",
    retry_of uuid,
    retried_as uuid,
    log_floor bigint NOT NULL DEFAULT 0,
    logged boolean NOT NULL DEFAULT false,
    on_parent text COLLATE "C" NOT NULL DEFAULT 'cancel',
    awaited boolean NOT NULL DEFAULT false,
    signals bigint NOT NULL DEFAULT 0,
    CONSTRAINT windlass_job_n PRIMARY KEY (n),
    CONSTRAINT windlass_job_id UNIQUE (id)
) WITH (
    fillfactor = 50,  -- space for a claim and a settle of every row on the page: 9 in 10 are HOT
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.05
);

CREATE UNIQUE INDEX windlass_job_request ON windlass_job (owner, request_id)
    WHERE request_id IS NOT NULL;

-- The retries of a first job; at most one is active.
CREATE INDEX windlass_job_lineage ON windlass_job (root_id, n) WHERE root_id IS NOT NULL;

-- The jobs of a flow.
CREATE INDEX windlass_job_flow ON windlass_job (flow_id, n) WHERE flow_id IS NOT NULL;

-- Dependencies between jobs. The child's `waiting_for` counts its open rows; a transaction that
-- closes a row decrements it. Rows are inserted and closed under the parent's lock. `parent_id`
-- stays when the parent is deleted.
CREATE TABLE windlass_edge (
    child bigint NOT NULL,
    parent bigint NOT NULL,
    ordinal bigint NOT NULL,
    child_id uuid NOT NULL,
    parent_id uuid NOT NULL,
    open boolean NOT NULL,
    CONSTRAINT windlass_edge_key PRIMARY KEY (child, parent)
) WITH (fillfactor = 70);

CREATE INDEX windlass_edge_parent ON windlass_edge (parent, child);

-- Queued jobs, in the order of claims: one range per queue, with claimable jobs only. Claims delete
-- rows, so its size is that of the backlog, not of the history. Autovacuum runs early: claims step
-- over dead rows.
CREATE TABLE windlass_queued (
    queue text COLLATE "C" NOT NULL,
    priority integer NOT NULL,
    position bigint NOT NULL,
    id uuid NOT NULL,
    queued_at bigint NOT NULL,
    expires_at bigint,
    limit_key text COLLATE "C"
) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- Jobs with limit keys may share a position.
CREATE UNIQUE INDEX windlass_queued_order ON windlass_queued (queue, priority DESC, position, id);

-- Finds the last job of each limit key. Indexes a hash: comparing texts takes several times as
-- long. Queries also compare the texts, with IS NOT DISTINCT FROM: otherwise a plan could use the
-- index of the queue order instead, and read the jobs of all other keys.
CREATE INDEX windlass_queued_by_key
    ON windlass_queued (windlass_limit_key_hash(queue, priority, limit_key), position)
    WHERE limit_key IS NOT NULL;

CREATE INDEX windlass_queued_expiry ON windlass_queued (expires_at) WHERE expires_at IS NOT NULL;

-- Jobs that wait at a gate, in order: a limit keeps them out of `windlass_queued`.
CREATE TABLE windlass_gate_queue (
    gate text COLLATE "C" NOT NULL,
    priority integer NOT NULL,
    position bigint NOT NULL,
    id uuid NOT NULL,
    n bigint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    expires_at bigint,
    limit_key text COLLATE "C"
) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE UNIQUE INDEX windlass_gate_queue_order
    ON windlass_gate_queue (gate, priority DESC, position, id);

CREATE INDEX windlass_gate_queue_by_key
    ON windlass_gate_queue (windlass_limit_key_hash(gate, priority, limit_key), position)
    WHERE limit_key IS NOT NULL;

-- For counts. Jobs with an expiry also have a row in `windlass_waiting`, and are counted there.
CREATE INDEX windlass_gate_queue_unexpiring ON windlass_gate_queue (queue, state)
    WHERE expires_at IS NULL;

-- Gates. A transaction that admits jobs locks the row.
-- next_check_at: when a waiting job may be admitted without any job ending
-- idle_at: when the gate can be deleted, because no job waits
-- holding: number of jobs that hold a slot
-- rate_limited: whether the limit has a rate; claims then record starts
-- pending: of the holders, those whose start is not counted yet (with a rate)
-- started: counted starts (with a rate)
-- recounted_at: when all permits were last compared with their jobs
CREATE TABLE windlass_gate (
    gate text COLLATE "C" NOT NULL,
    next_check_at bigint,
    idle_at bigint,
    holding bigint NOT NULL DEFAULT 0,
    pending bigint NOT NULL DEFAULT 0,
    started bigint NOT NULL DEFAULT 0,
    rate_limited boolean NOT NULL DEFAULT false,
    recounted_at bigint NOT NULL DEFAULT 0,
    CONSTRAINT windlass_gate_key PRIMARY KEY (gate)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX windlass_gate_next_check ON windlass_gate (next_check_at)
    WHERE next_check_at IS NOT NULL;
CREATE INDEX windlass_gate_idle ON windlass_gate (idle_at) WHERE idle_at IS NOT NULL;
CREATE INDEX windlass_gate_rate_limited ON windlass_gate (gate) WHERE rate_limited;

-- Permits: jobs that a gate admitted, for the attempt with this fence; one row per gate, fence and
-- admission. The jobs' rows decide whether a permit still holds a slot. A recount removes the jobs
-- that left. Only a transaction that has locked the gate writes here.
CREATE TABLE windlass_permit (
    gate text COLLATE "C" NOT NULL,
    fence bigint NOT NULL,
    at bigint NOT NULL,
    jobs bigint[] NOT NULL
) WITH (
    toast_tuple_target = 8160,  -- lists of up to a page stay uncompressed
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- Compressing the numbers of 500 jobs takes 0.26 ms (2026-11); storing them plain costs nearly
-- nothing.
ALTER TABLE windlass_permit ALTER COLUMN jobs SET STORAGE EXTERNAL;

CREATE INDEX windlass_permit_gate ON windlass_permit (gate);

-- Starts that count in a rate: one row per claim and gate. Claims lock no gate, they only insert.
-- `counted` is set once the gate's `started` includes them.
CREATE TABLE windlass_start (
    gate text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    jobs bigint[] NOT NULL,
    counted boolean NOT NULL DEFAULT false
) WITH (
    toast_tuple_target = 8160,  -- lists of up to a page stay uncompressed
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

ALTER TABLE windlass_start ALTER COLUMN jobs SET STORAGE EXTERNAL;

CREATE INDEX windlass_start_order ON windlass_start (gate, at);
CREATE INDEX windlass_start_uncounted ON windlass_start (gate) WHERE NOT counted;

-- Requested checks of gates, by transactions of callers, which lock no gate.
CREATE TABLE windlass_gate_check (gate text COLLATE "C" NOT NULL);

CREATE INDEX windlass_gate_check_gate ON windlass_gate_check (gate);

-- Running jobs, one row per claim call: for repeated claims, and to find lost leases. `active`
-- counts down as jobs end. It may be too high (a success inside a caller's transaction does not
-- update it), never too low. The lease's end is in the job's row, so that an extension changes no
-- index.
CREATE TABLE windlass_lease (
    token uuid NOT NULL,
    active bigint NOT NULL,
    jobs bigint[] NOT NULL,
    CONSTRAINT windlass_lease_key PRIMARY KEY (token)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

ALTER TABLE windlass_lease ALTER COLUMN jobs SET STORAGE EXTERNAL;

-- One call per token at a time: a repeat of a claim that is still running waits at the key of the
-- lease row, then fails with this error, and the store retries it.
CREATE FUNCTION windlass_raise_claim_conflict() RETURNS bigint[] LANGUAGE plpgsql
AS $$ BEGIN
    RAISE unique_violation USING MESSAGE = 'another call with the same claim token is running';
END $$;

-- Jobs that are neither queued, running nor at a gate (for counts), and all jobs with a time for
-- the sweeper: when they become due, or expire.
CREATE TABLE windlass_waiting (
    queue text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    n bigint NOT NULL,
    at bigint,
    CONSTRAINT windlass_waiting_key PRIMARY KEY (queue, state, n)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE INDEX windlass_waiting_at ON windlass_waiting (at, n) WHERE at IS NOT NULL;

-- This constraint guarantees unique keys, not a lookup. The row is deleted when its job ends.
CREATE TABLE windlass_unique_key (
    owner text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    unique_key text COLLATE "C" NOT NULL,
    n bigint NOT NULL,
    CONSTRAINT windlass_unique_key_key PRIMARY KEY (owner, task, unique_key)
);

-- Finished jobs in the order of their ends, for retention: one row for jobs that ended together.
-- `kind` is their final state; rows of kind 'log' list the jobs that have log rows.
CREATE TABLE windlass_ended (
    kind text COLLATE "C" NOT NULL,
    ended_at bigint NOT NULL,
    jobs bigint[] NOT NULL
);

ALTER TABLE windlass_ended ALTER COLUMN jobs SET STORAGE EXTERNAL;

CREATE INDEX windlass_ended_order ON windlass_ended (kind, ended_at, (jobs[1]));

-- Failed and canceled jobs: searched most often, and rare among millions of successes.
CREATE TABLE windlass_unsuccessful (
    n bigint NOT NULL,
    CONSTRAINT windlass_unsuccessful_n PRIMARY KEY (n)
);

CREATE TABLE windlass_log (
    n bigint NOT NULL,
    seq bigint NOT NULL,
    at bigint NOT NULL,
    type text COLLATE "C" NOT NULL,
    attempt bigint NOT NULL,
    fence bigint NOT NULL,
    record_n bigint NOT NULL,
    data text COLLATE "C",
    body bytea,
    CONSTRAINT windlass_log_key PRIMARY KEY (n, seq)
);

-- Finds past attempts among any number of log rows of their tasks.
CREATE INDEX windlass_log_attempt ON windlass_log (n, fence) WHERE type = 'attempt';

CREATE TABLE windlass_step (
    n bigint NOT NULL,
    step text COLLATE "C" NOT NULL,
    value bytea NOT NULL,
    attempt bigint NOT NULL,
    at bigint NOT NULL,
    CONSTRAINT windlass_step_key PRIMARY KEY (n, step)
);

-- Counts per minute. Each handle writes to its own shard, so that workers do not wait for each
-- other's commits. Readers sum the shards.
CREATE TABLE windlass_rollup (
    minute bigint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    outcome text COLLATE "C" NOT NULL,
    shard smallint NOT NULL,
    count bigint NOT NULL,
    wait bigint NOT NULL,
    run bigint NOT NULL,
    CONSTRAINT windlass_rollup_key PRIMARY KEY (minute, queue, task, outcome, shard)
) WITH (fillfactor = 50);

CREATE TABLE windlass_record (
    kind text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    value bytea NOT NULL,
    version bigint NOT NULL,
    expires_at bigint,
    CONSTRAINT windlass_record_key PRIMARY KEY (kind, key)
) WITH (fillfactor = 70);
