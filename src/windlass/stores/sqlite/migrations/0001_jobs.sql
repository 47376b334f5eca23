-- Jobs: what was asked for first, then where it stands, then the bulky parts, so that the columns
-- a claim looks at come before any overflow page. `n` is the order of arrival; instants are
-- microseconds since 1970, UTC.
CREATE TABLE job (
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
    payload BLOB
) STRICT;

CREATE UNIQUE INDEX job_id ON job (id);

-- The line that claims read: one ordered range per queue, and nothing in it that may not run.
CREATE INDEX job_line ON job (queue, priority DESC, position) WHERE state = 'queued';

-- Running jobs, by the claim call that took them: repeats of a claim, and the search for lost
-- leases. Not by lease_until, so that extending a lease moves no index entry.
CREATE INDEX job_running ON job (token) WHERE state = 'running';

-- Waiting jobs by the time they become due, and by queue to be counted.
CREATE INDEX job_due ON job (due_at) WHERE state IN ('created', 'retrying');
CREATE INDEX job_waiting ON job (queue, state) WHERE state IN ('created', 'retrying');

CREATE INDEX job_expiry ON job (expires_at)
    WHERE expires_at IS NOT NULL AND first_started_at IS NULL AND state IN ('created', 'queued');

CREATE UNIQUE INDEX job_request ON job (owner, request_id) WHERE request_id IS NOT NULL;

-- The promise of unique keys is the index, not a look-up.
CREATE UNIQUE INDEX job_unique ON job (owner, task, unique_key)
    WHERE unique_key IS NOT NULL AND state IN ('created', 'queued', 'running', 'retrying');

CREATE INDEX job_ended ON job (state, ended_at) WHERE ended_at IS NOT NULL;

-- Finished jobs that still have log rows, for pruning those.
CREATE INDEX job_logged ON job (ended_at) WHERE logged = 1 AND ended_at IS NOT NULL;

-- What people look for first is rare among millions that went well.
CREATE INDEX job_trouble ON job (n) WHERE state IN ('failed', 'canceled');

-- The retries of a first job, of which one may be active.
CREATE INDEX job_lineage ON job (root_id) WHERE root_id IS NOT NULL;

-- Payloads too large to be rewritten with every change of the row.
CREATE TABLE payload (
    n INTEGER PRIMARY KEY,
    data BLOB NOT NULL
) STRICT;

CREATE TABLE log (
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
CREATE INDEX log_attempt ON log (n, fence) WHERE type = 'attempt';

CREATE TABLE step (
    n INTEGER NOT NULL,
    step TEXT NOT NULL,
    value BLOB NOT NULL,
    attempt INTEGER NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (n, step)
) STRICT, WITHOUT ROWID;

CREATE TABLE rollup (
    minute INTEGER NOT NULL,
    queue TEXT NOT NULL,
    task TEXT NOT NULL,
    outcome TEXT NOT NULL,
    count INTEGER NOT NULL,
    wait INTEGER NOT NULL,
    run INTEGER NOT NULL,
    PRIMARY KEY (minute, queue, task, outcome)
) STRICT, WITHOUT ROWID;

CREATE TABLE record (
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    version INTEGER NOT NULL,
    expires_at INTEGER,
    PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX record_expiry ON record (expires_at) WHERE expires_at IS NOT NULL;

-- The last number given where no row shows it: arrivals and positions come from one sequence.
CREATE TABLE serial (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    last INTEGER NOT NULL
) STRICT;

INSERT INTO serial (one, last) VALUES (1, 0);
