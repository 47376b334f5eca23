-- Every name starts with windlass_: the file may also contain tables of the application.
--
-- Jobs. Columns of the request come first, then the state, then large values, so that the columns
-- that a claim reads precede any overflow page. `n` is the order of arrival. Instants are
-- microseconds since 1970, UTC.
CREATE TABLE windlass_job (
    n INTEGER PRIMARY KEY,
    id BLOB NOT NULL,
    queue TEXT NOT NULL,
    task TEXT NOT NULL,
    priority INTEGER NOT NULL,
    owner TEXT NOT NULL,
    team TEXT,
    tags TEXT,
    headers TEXT,
    policy TEXT,
    lease INTEGER,
    request_id TEXT,
    digest BLOB,
    unique_key TEXT,
    retry_of BLOB,
    retried_as BLOB,
    root_id BLOB,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    log_floor INTEGER NOT NULL DEFAULT 0,
    logged INTEGER NOT NULL DEFAULT 0,
    state TEXT NOT NULL,
    trigger TEXT NOT NULL,
    held INTEGER NOT NULL DEFAULT 0,
    waiting_for INTEGER NOT NULL DEFAULT 0,
    position INTEGER,
    due_at INTEGER,
    attempt INTEGER NOT NULL DEFAULT 0,
    fence INTEGER NOT NULL DEFAULT 0,
    token BLOB,
    worker TEXT,
    lease_until INTEGER,
    queued_at INTEGER,
    started_at INTEGER,
    first_started_at INTEGER,
    ended_at INTEGER,
    updated_at INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    queued_seq INTEGER NOT NULL DEFAULT 0,
    started_seq INTEGER NOT NULL DEFAULT 0,
    last_record INTEGER NOT NULL DEFAULT 0,
    percent INTEGER NOT NULL DEFAULT 0,
    stage TEXT,
    phase TEXT,
    base_percent INTEGER NOT NULL DEFAULT 0,
    base_stage TEXT,
    base_phase TEXT,
    retry_count INTEGER NOT NULL DEFAULT 0,
    crash_count INTEGER NOT NULL DEFAULT 0,
    cancel_at INTEGER,
    cancel_by TEXT,
    cancel_reason TEXT,
    last_step TEXT,
    error TEXT,
    error_body BLOB,
    result BLOB,
    payload BLOB,
    on_parent TEXT NOT NULL DEFAULT 'cancel',
    awaited INTEGER NOT NULL DEFAULT 0,
    signals INTEGER NOT NULL DEFAULT 0,
    flow_id BLOB,
    limit_key TEXT,
    gates TEXT,
    gate TEXT
) STRICT;

CREATE UNIQUE INDEX windlass_job_id ON windlass_job (id);

-- Queued jobs in the order of claims: one range per queue, with claimable jobs only. Jobs of
-- different limit keys may have the same position; then the id decides.
CREATE INDEX windlass_job_queued ON windlass_job (queue, priority DESC, position, id)
    WHERE state = 'queued';

-- The same order for jobs that wait at a gate.
CREATE INDEX windlass_job_gate ON windlass_job (gate, priority DESC, position, id)
    WHERE gate IS NOT NULL;

-- The last position of a limit key, in a queue and at a gate: the next job of the key is placed
-- behind it. The gate of a key has only jobs of that key, so it needs no such index.
CREATE INDEX windlass_job_queued_by_key ON windlass_job (queue, priority, limit_key, position)
    WHERE limit_key IS NOT NULL AND state = 'queued';
CREATE INDEX windlass_job_gate_by_key ON windlass_job (gate, priority, limit_key, position)
    WHERE limit_key IS NOT NULL AND gate IS NOT NULL AND gate NOT GLOB 'key:*';

-- Running jobs by the token of their claim, for repeated claims and expired leases. Not by
-- lease_until, so that extending a lease updates no index.
CREATE INDEX windlass_job_running ON windlass_job (token) WHERE state = 'running';

-- Waiting jobs, by due time, and by queue for counts.
CREATE INDEX windlass_job_due ON windlass_job (due_at)
    WHERE due_at IS NOT NULL AND state IN ('created', 'retrying');
CREATE INDEX windlass_job_waiting ON windlass_job (queue, state) WHERE state IN ('created', 'retrying');

CREATE INDEX windlass_job_expiry ON windlass_job (expires_at)
    WHERE expires_at IS NOT NULL AND first_started_at IS NULL AND state IN ('created', 'queued');

CREATE UNIQUE INDEX windlass_job_request ON windlass_job (owner, request_id) WHERE request_id IS NOT NULL;

-- This index, not a lookup, guarantees unique keys.
CREATE UNIQUE INDEX windlass_job_unique ON windlass_job (owner, task, unique_key)
    WHERE unique_key IS NOT NULL AND state IN ('created', 'queued', 'running', 'retrying');

CREATE INDEX windlass_job_ended ON windlass_job (state, ended_at) WHERE ended_at IS NOT NULL;

-- Finished jobs that still have log rows, for pruning.
CREATE INDEX windlass_job_logged ON windlass_job (ended_at) WHERE logged = 1 AND ended_at IS NOT NULL;

-- Failed and canceled jobs are searched most, and are rare among successful ones.
CREATE INDEX windlass_job_unsuccessful ON windlass_job (n) WHERE state IN ('failed', 'canceled');

-- The retries of a job, of which one may be active.
CREATE INDEX windlass_job_lineage ON windlass_job (root_id) WHERE root_id IS NOT NULL;

-- The jobs of a flow.
CREATE INDEX windlass_job_flow ON windlass_job (flow_id, n) WHERE flow_id IS NOT NULL;

-- Large payloads, kept apart so that updates of the job do not rewrite them.
CREATE TABLE windlass_payload (
    n INTEGER PRIMARY KEY,
    data BLOB NOT NULL
) STRICT;

CREATE TABLE windlass_log (
    n INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    type TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    record_n INTEGER NOT NULL,
    data TEXT,
    body BLOB,
    PRIMARY KEY (n, seq)
) STRICT, WITHOUT ROWID;

-- Past attempts, among any number of log rows.
CREATE INDEX windlass_log_attempt ON windlass_log (n, fence) WHERE type = 'attempt';

CREATE TABLE windlass_step (
    n INTEGER NOT NULL,
    step TEXT NOT NULL,
    value BLOB NOT NULL,
    attempt INTEGER NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (n, step)
) STRICT, WITHOUT ROWID;

-- Dependencies. An open row is counted in the child's `waiting_for`; the transaction that closes it
-- decrements that count. The parent's id remains when the parent is deleted.
CREATE TABLE windlass_edge (
    child INTEGER NOT NULL,
    parent INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    parent_id BLOB NOT NULL,
    open INTEGER NOT NULL,
    PRIMARY KEY (child, parent)
) STRICT, WITHOUT ROWID;

CREATE INDEX windlass_edge_parent ON windlass_edge (parent, child);

-- Permits: a job was admitted at a gate, for the attempt with this fence. `held` is whether it
-- holds a slot there. It follows from the job's row and is updated with it, so counting reads no
-- jobs. The key starts with the job: jobs that are written together share a page, whatever their
-- gates.
CREATE TABLE windlass_permit (
    n INTEGER NOT NULL,
    gate TEXT NOT NULL,
    fence INTEGER NOT NULL,
    at INTEGER NOT NULL,
    started_at INTEGER,
    held INTEGER NOT NULL,
    PRIMARY KEY (n, gate, fence)
) STRICT, WITHOUT ROWID;

-- Starts in order of time, for rate limits.
CREATE INDEX windlass_permit_start ON windlass_permit (gate, started_at) WHERE started_at IS NOT NULL;

-- Gates: the number of permits, the number of held slots, and the time of the next check. A check
-- is set if jobs wait and the gate may open by time alone or by a changed limit. Idle gates have no
-- row.
CREATE TABLE windlass_gate (
    gate TEXT PRIMARY KEY,
    permits INTEGER NOT NULL DEFAULT 0,
    holding INTEGER NOT NULL DEFAULT 0,
    next_check_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX windlass_gate_next_check ON windlass_gate (next_check_at) WHERE next_check_at IS NOT NULL;

CREATE TRIGGER windlass_gate_idle AFTER UPDATE ON windlass_gate
WHEN new.permits = 0 AND new.next_check_at IS NULL BEGIN
    DELETE FROM windlass_gate WHERE gate = new.gate;
END;

CREATE TABLE windlass_rollup (
    minute INTEGER NOT NULL,
    queue TEXT NOT NULL,
    task TEXT NOT NULL,
    outcome TEXT NOT NULL,
    count INTEGER NOT NULL,
    wait INTEGER NOT NULL,
    run INTEGER NOT NULL,
    PRIMARY KEY (minute, queue, task, outcome)
) STRICT, WITHOUT ROWID;

CREATE TABLE windlass_record (
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    version INTEGER NOT NULL,
    expires_at INTEGER,
    PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX windlass_record_expiry ON windlass_record (expires_at) WHERE expires_at IS NOT NULL;

-- The last serial, if no row contains it: arrivals and positions share one sequence.
CREATE TABLE windlass_serial (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    last INTEGER NOT NULL
) STRICT;

INSERT INTO windlass_serial (one, last) VALUES (1, 0);
