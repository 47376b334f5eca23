-- Every name begins with windlass_: the database may be the application's own, too. Instants are
-- microseconds since 1970, UTC; text is compared by code point, as every other store does.

-- Arrivals and places in line are numbered from here.
CREATE SEQUENCE windlass_serial;

-- The one door of time: the server's clock, or the instant that a test gives.
CREATE FUNCTION windlass_now(given bigint) RETURNS bigint LANGUAGE sql VOLATILE
AS 'SELECT coalesce($1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)';

-- Where those of one key stand, in the line of a queue or before a gate.
CREATE FUNCTION windlass_turn_number(line text, priority integer, limit_key text) RETURNS bigint
LANGUAGE sql IMMUTABLE AS 'SELECT hashtextextended($3, hashtextextended($1, $2))';

-- Jobs: first what indexes hold (an update compares these, and finds them at once), then what limits
-- look at (to read a column is to step over all before it), then where each stands, in the order of
-- the core's own values, then what else was asked for.
--
-- No index, and no index's condition, names a column that a claim, an extension, a record or a
-- settle changes: all of these are HOT updates, which write one tuple and no index entry. What is
-- looked for by such a column has a narrow table of its own below, with rows only while they count.
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
    said bigint NOT NULL DEFAULT 0,
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
    fillfactor = 50,  -- room for a claim and a settle of every row on the page: 9 in 10 are HOT
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.05
);

CREATE UNIQUE INDEX windlass_job_request ON windlass_job (owner, request_id)
    WHERE request_id IS NOT NULL;

-- The retries of a first job, of which one may be active.
CREATE INDEX windlass_job_lineage ON windlass_job (root_id, n) WHERE root_id IS NOT NULL;

-- The jobs of a flow.
CREATE INDEX windlass_job_flow ON windlass_job (flow_id, n) WHERE flow_id IS NOT NULL;

-- Who waits, or waited, for whom. A row that is open is counted in the child's `waiting_for`; to
-- close it is the right to count that down. Rows are made and closed under the parent's lock. The
-- parent's id stays when the parent is deleted.
CREATE TABLE windlass_edge (
    child bigint NOT NULL,
    parent bigint NOT NULL,
    place bigint NOT NULL,
    child_id uuid NOT NULL,
    parent_id uuid NOT NULL,
    open boolean NOT NULL,
    CONSTRAINT windlass_edge_key PRIMARY KEY (child, parent)
) WITH (fillfactor = 70);

CREATE INDEX windlass_edge_parent ON windlass_edge (parent, child);

-- The line that claims read: one ordered range per queue, and nothing in it that may not run.
-- Claims delete from it, so it is as long as the line is, however many jobs there were. Its dead
-- rows are swept early: a claim steps over them.
CREATE TABLE windlass_line (
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

-- Jobs whose keys take turns may share a position.
CREATE UNIQUE INDEX windlass_line_order ON windlass_line (queue, priority DESC, position, id);

-- The last one of each key. By a number, for to compare texts takes several times as long. Whoever
-- looks there compares the texts, too, with IS NOT DISTINCT FROM: for that no plan takes the order of
-- the line instead, and walks over those of all other keys.
CREATE INDEX windlass_line_turn
    ON windlass_line (windlass_turn_number(queue, priority, limit_key), position)
    WHERE limit_key IS NOT NULL;

CREATE INDEX windlass_line_expiry ON windlass_line (expires_at) WHERE expires_at IS NOT NULL;

-- The lines before gates: who may not come into the line of its queue, because a limit is reached.
CREATE TABLE windlass_parked (
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

CREATE UNIQUE INDEX windlass_parked_order ON windlass_parked (gate, priority DESC, position, id);

CREATE INDEX windlass_parked_turn
    ON windlass_parked (windlass_turn_number(gate, priority, limit_key), position)
    WHERE limit_key IS NOT NULL;

-- To be counted: whoever expires is in `windlass_waiting`, too, and is counted there.
CREATE INDEX windlass_parked_lasting ON windlass_parked (queue, state) WHERE expires_at IS NULL;

-- Gates, to be locked by whoever lets somebody in. `look_at`: when somebody who waits may pass,
-- though nobody's end brings it up. `idle_at`: when nothing will be left of it, for nobody waits.
-- `holding`: how many hold a slot. Where there is a rate, which `rated` tells claims: `coming`, how
-- many of those have not started, as far as is known here, and `started`, how many starts are known.
-- `checked_at`: when all passes were last compared with their jobs, and counted.
CREATE TABLE windlass_gate (
    gate text COLLATE "C" NOT NULL,
    look_at bigint,
    idle_at bigint,
    holding bigint NOT NULL DEFAULT 0,
    coming bigint NOT NULL DEFAULT 0,
    started bigint NOT NULL DEFAULT 0,
    rated boolean NOT NULL DEFAULT false,
    checked_at bigint NOT NULL DEFAULT 0,
    CONSTRAINT windlass_gate_key PRIMARY KEY (gate)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX windlass_gate_look ON windlass_gate (look_at) WHERE look_at IS NOT NULL;
CREATE INDEX windlass_gate_idle ON windlass_gate (idle_at) WHERE idle_at IS NOT NULL;
CREATE INDEX windlass_gate_rated ON windlass_gate (gate) WHERE rated;

-- Who has passed, for which attempt: one row for all that did so together. What that is worth, the
-- jobs' rows say; whoever left is taken out when all passes are compared with those. Only whoever
-- has locked the gate writes here.
CREATE TABLE windlass_pass (
    gate text COLLATE "C" NOT NULL,
    fence bigint NOT NULL,
    at bigint NOT NULL,
    jobs bigint[] NOT NULL
) WITH (
    toast_tuple_target = 8160,  -- up to a page, a list is kept as it is
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- To squeeze the numbers of five hundred jobs takes 0.26 ms (2026-11); as they are, nothing to speak of.
ALTER TABLE windlass_pass ALTER COLUMN jobs SET STORAGE EXTERNAL;

CREATE INDEX windlass_pass_gate ON windlass_pass (gate);

-- Starts that count in a rate: one row for all of a claim. Claims lock no gate, and only add; they
-- are `seen` once a gate counts them.
CREATE TABLE windlass_start (
    gate text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    jobs bigint[] NOT NULL,
    seen boolean NOT NULL DEFAULT false
) WITH (
    toast_tuple_target = 8160,  -- up to a page, a list is kept as it is
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

ALTER TABLE windlass_start ALTER COLUMN jobs SET STORAGE EXTERNAL;

CREATE INDEX windlass_start_order ON windlass_start (gate, at);
CREATE INDEX windlass_start_news ON windlass_start (gate) WHERE NOT seen;

-- Gates that a transaction of somebody's own left to be looked at.
CREATE TABLE windlass_knock (gate text COLLATE "C" NOT NULL);

CREATE INDEX windlass_knock_gate ON windlass_knock (gate);

-- Running jobs, by the claim call that took them, which is one row: repeats of a claim, and the
-- search for lost leases. `active` counts down as they end; it may be too high (a success inside a
-- caller's own transaction holds no lock here), never too low. How long a lease lasts is in the
-- job's row, so that extending it touches no index.
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

-- One call of each token at a time: whoever repeats a claim that is still under way meets it at the
-- key of the row, and has to be made again.
CREATE FUNCTION windlass_meet() RETURNS bigint[] LANGUAGE plpgsql
AS $$ BEGIN
    RAISE unique_violation USING MESSAGE = 'this claim is being made by another call';
END $$;

-- Jobs that wait outside of the line and at no gate (to be counted), and whoever has a time to be
-- looked at: when it becomes due, or when it is too late to start.
CREATE TABLE windlass_waiting (
    queue text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    n bigint NOT NULL,
    at bigint,
    CONSTRAINT windlass_waiting_key PRIMARY KEY (queue, state, n)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE INDEX windlass_waiting_at ON windlass_waiting (at, n) WHERE at IS NOT NULL;

-- The promise of unique keys is this constraint, not a look-up. A row goes with its job's end.
CREATE TABLE windlass_key (
    owner text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    unique_key text COLLATE "C" NOT NULL,
    n bigint NOT NULL,
    CONSTRAINT windlass_key_key PRIMARY KEY (owner, task, unique_key)
);

-- Finished jobs in the order of their ends, for retention: one row for all that ended together.
-- The kind is the state they ended in; 'log' names once more those that have log rows.
CREATE TABLE windlass_ended (
    kind text COLLATE "C" NOT NULL,
    ended_at bigint NOT NULL,
    jobs bigint[] NOT NULL
);

ALTER TABLE windlass_ended ALTER COLUMN jobs SET STORAGE EXTERNAL;

CREATE INDEX windlass_ended_order ON windlass_ended (kind, ended_at, (jobs[1]));

-- What people look for first is rare among millions that went well: failed and canceled jobs.
CREATE TABLE windlass_trouble (
    n bigint NOT NULL,
    CONSTRAINT windlass_trouble_n PRIMARY KEY (n)
);

CREATE TABLE windlass_log (
    n bigint NOT NULL,
    seq bigint NOT NULL,
    at bigint NOT NULL,
    type text COLLATE "C" NOT NULL,
    attempt bigint NOT NULL,
    fence bigint NOT NULL,
    said bigint NOT NULL,
    facts text COLLATE "C",
    body bytea,
    CONSTRAINT windlass_log_key PRIMARY KEY (n, seq)
);

-- Past attempts are found among any number of lines that their tasks said.
CREATE INDEX windlass_log_attempt ON windlass_log (n, fence) WHERE type = 'attempt';

CREATE TABLE windlass_step (
    n bigint NOT NULL,
    step text COLLATE "C" NOT NULL,
    value bytea NOT NULL,
    attempt bigint NOT NULL,
    at bigint NOT NULL,
    CONSTRAINT windlass_step_key PRIMARY KEY (n, step)
);

-- Counts per minute. Each handle adds to a shard of its own, so that workers do not wait for one
-- another's commits; readers sum.
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
