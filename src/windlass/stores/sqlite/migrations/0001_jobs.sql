-- Every name begins with windlass_: the file may hold the application's own tables, too.
--
-- Jobs: what was asked for first, then where it stands, then the bulky parts, so that the columns
-- a claim looks at come before any overflow page. `n` is the order of arrival; instants are
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
    said INTEGER NOT NULL DEFAULT 0,
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

-- The line that claims read: one ordered range per queue, and nothing in it that may not run.
-- Keys that take turns may have one place: then the ids decide.
CREATE INDEX windlass_job_line ON windlass_job (queue, priority DESC, position, id)
    WHERE state = 'queued';

-- The same order before each gate, outside of the line.
CREATE INDEX windlass_job_gate ON windlass_job (gate, priority DESC, position, id)
    WHERE gate IS NOT NULL;

-- The last of a key, in line and before a gate: its next one stands behind it. At the gate of a key
-- there is no other, and the last of all is its last.
CREATE INDEX windlass_job_turn ON windlass_job (queue, priority, limit_key, position)
    WHERE limit_key IS NOT NULL AND state = 'queued';
CREATE INDEX windlass_job_gate_turn ON windlass_job (gate, priority, limit_key, position)
    WHERE limit_key IS NOT NULL AND gate IS NOT NULL AND gate NOT GLOB 'key:*';

-- Running jobs, by the claim call that took them: repeats of a claim, and the search for lost
-- leases. Not by lease_until, so that extending a lease moves no index entry.
CREATE INDEX windlass_job_running ON windlass_job (token) WHERE state = 'running';

-- Waiting jobs by the time they become due, and by queue to be counted.
CREATE INDEX windlass_job_due ON windlass_job (due_at)
    WHERE due_at IS NOT NULL AND state IN ('created', 'retrying');
CREATE INDEX windlass_job_waiting ON windlass_job (queue, state) WHERE state IN ('created', 'retrying');

CREATE INDEX windlass_job_expiry ON windlass_job (expires_at)
    WHERE expires_at IS NOT NULL AND first_started_at IS NULL AND state IN ('created', 'queued');

CREATE UNIQUE INDEX windlass_job_request ON windlass_job (owner, request_id) WHERE request_id IS NOT NULL;

-- The promise of unique keys is the index, not a look-up.
CREATE UNIQUE INDEX windlass_job_unique ON windlass_job (owner, task, unique_key)
    WHERE unique_key IS NOT NULL AND state IN ('created', 'queued', 'running', 'retrying');

CREATE INDEX windlass_job_ended ON windlass_job (state, ended_at) WHERE ended_at IS NOT NULL;

-- Finished jobs that still have log rows, for pruning those.
CREATE INDEX windlass_job_logged ON windlass_job (ended_at) WHERE logged = 1 AND ended_at IS NOT NULL;

-- What people look for first is rare among millions that went well.
CREATE INDEX windlass_job_trouble ON windlass_job (n) WHERE state IN ('failed', 'canceled');

-- The retries of a first job, of which one may be active.
CREATE INDEX windlass_job_lineage ON windlass_job (root_id) WHERE root_id IS NOT NULL;

-- The jobs of a flow.
CREATE INDEX windlass_job_flow ON windlass_job (flow_id, n) WHERE flow_id IS NOT NULL;

-- Payloads too large to be rewritten with every change of the row.
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
    said INTEGER NOT NULL,
    facts TEXT,
    body BLOB,
    PRIMARY KEY (n, seq)
) STRICT, WITHOUT ROWID;

-- Past attempts are found among any number of lines that their tasks said.
CREATE INDEX windlass_log_attempt ON windlass_log (n, fence) WHERE type = 'attempt';

CREATE TABLE windlass_step (
    n INTEGER NOT NULL,
    step TEXT NOT NULL,
    value BLOB NOT NULL,
    attempt INTEGER NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (n, step)
) STRICT, WITHOUT ROWID;

-- Who waits, or waited, for whom. A row that is open is counted in the child's `waiting_for`; to
-- close it is the right to count that down. The parent's id stays when the parent is deleted.
CREATE TABLE windlass_edge (
    child INTEGER NOT NULL,
    parent INTEGER NOT NULL,
    place INTEGER NOT NULL,
    parent_id BLOB NOT NULL,
    open INTEGER NOT NULL,
    PRIMARY KEY (child, parent)
) STRICT, WITHOUT ROWID;

CREATE INDEX windlass_edge_parent ON windlass_edge (parent, child);

-- Who passed which gate, for the attempt with this fence, and whether it holds a slot there. The
-- job's row says so, and is asked whenever it changes; so to count them, no job is read. By the job:
-- those who come and go together share a page, whatever their gates.
CREATE TABLE windlass_pass (
    n INTEGER NOT NULL,
    gate TEXT NOT NULL,
    fence INTEGER NOT NULL,
    at INTEGER NOT NULL,
    started_at INTEGER,
    held INTEGER NOT NULL,
    PRIMARY KEY (n, gate, fence)
) STRICT, WITHOUT ROWID;

-- The starts that a rate counts, in order.
CREATE INDEX windlass_pass_start ON windlass_pass (gate, started_at) WHERE started_at IS NOT NULL;

-- How many passes a gate has given, how many of them hold a slot, and when it is to be looked at, if
-- somebody waits there and time alone, or a new limit, may open it. Gates without any have no row.
CREATE TABLE windlass_gate (
    gate TEXT PRIMARY KEY,
    passes INTEGER NOT NULL DEFAULT 0,
    held INTEGER NOT NULL DEFAULT 0,
    look_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX windlass_gate_look ON windlass_gate (look_at) WHERE look_at IS NOT NULL;

CREATE TRIGGER windlass_gate_idle AFTER UPDATE ON windlass_gate
WHEN new.passes = 0 AND new.look_at IS NULL BEGIN
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

-- The last number given where no row shows it: arrivals and positions come from one sequence.
CREATE TABLE windlass_serial (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    last INTEGER NOT NULL
) STRICT;

INSERT INTO windlass_serial (one, last) VALUES (1, 0);
