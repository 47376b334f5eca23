-- Least-privilege roles for Windlass on PostgreSQL.
--
-- Run this script after `windlass migrate`, as a superuser, in the database of the jobs and with a
-- search_path that contains their schema. Run it again after every later migration; it is
-- idempotent. Then grant one of the roles to your users: GRANT windlass_worker TO ann;
--
--   windlass_viewer    reads jobs, logs and counts: dashboards, `windlass jobs list`
--   windlass_producer  also enqueues, cancels, submits, retries: web applications
--   windlass_worker    also claims, runs, settles, prunes, deletes, pauses: workers
--   windlass_owner     owns the tables and runs `windlass migrate`; not needed at run time
--
-- Only the owner can alter, truncate or drop a table. None of these roles can access the tables of
-- your own application. The roles limit what a program does; they do not isolate tenants: a role
-- that can cancel a job can write its row.

BEGIN;

DO $$
DECLARE
    role_name text;
    relation regclass;
    function regprocedure;
BEGIN
    FOREACH role_name IN ARRAY ARRAY[
        'windlass_viewer', 'windlass_producer', 'windlass_worker', 'windlass_owner'
    ] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role_name) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
        END IF;
    END LOOP;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO windlass_viewer, windlass_owner', current_schema());
    EXECUTE format('GRANT CREATE ON SCHEMA %I TO windlass_owner', current_schema());
    -- Later migrations alter these tables, which only their owner may do.
    FOR relation IN
        SELECT oid FROM pg_class WHERE relname LIKE 'windlass\_%' AND relkind IN ('r', 'S')
            AND relnamespace = current_schema()::regnamespace
    LOOP
        EXECUTE format('ALTER TABLE %s OWNER TO windlass_owner', relation);
    END LOOP;
    FOR function IN
        SELECT oid FROM pg_proc WHERE proname LIKE 'windlass\_%'
            AND pronamespace = current_schema()::regnamespace
    LOOP
        EXECUTE format('ALTER FUNCTION %s OWNER TO windlass_owner', function);
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', function, CASE
            WHEN (SELECT prosecdef FROM pg_proc WHERE oid = function) THEN 'windlass_producer'
            ELSE 'windlass_viewer' END);
    END LOOP;
END $$;

-- Each role includes the one before it.
GRANT windlass_viewer TO windlass_producer;
GRANT windlass_producer TO windlass_worker;

GRANT SELECT ON windlass_schema, windlass_job, windlass_queued, windlass_gate_queue, windlass_gate,
    windlass_permit, windlass_start, windlass_gate_check, windlass_lease, windlass_waiting,
    windlass_unsuccessful, windlass_log, windlass_step, windlass_edge, windlass_rollup,
    windlass_record TO windlass_viewer;

-- Enqueue writes a job, its position, its unique key and its dependencies. Signal and cancel update
-- jobs; a cancel ends a waiting job.
GRANT USAGE ON SEQUENCE windlass_serial TO windlass_producer;
GRANT SELECT ON windlass_unique_key TO windlass_producer;
GRANT INSERT, UPDATE ON windlass_job, windlass_queued, windlass_gate_queue, windlass_gate,
    windlass_permit, windlass_start, windlass_waiting, windlass_rollup, windlass_step, windlass_edge
    TO windlass_producer;
GRANT INSERT ON windlass_gate_check TO windlass_producer;
GRANT UPDATE ON windlass_lease TO windlass_producer;
GRANT INSERT ON windlass_unique_key, windlass_ended, windlass_unsuccessful, windlass_log
    TO windlass_producer;
GRANT DELETE ON windlass_queued, windlass_gate_queue, windlass_permit, windlass_start,
    windlass_gate_check, windlass_waiting, windlass_unique_key TO windlass_producer;

-- A claim inserts leases, a running job stores checkpoints, retention deletes expired data.
GRANT SELECT ON windlass_ended TO windlass_worker;
GRANT INSERT ON windlass_lease, windlass_record TO windlass_worker;
GRANT UPDATE ON windlass_record, windlass_ended TO windlass_worker;
GRANT DELETE ON windlass_gate, windlass_job, windlass_lease, windlass_ended, windlass_unsuccessful,
    windlass_log, windlass_step, windlass_edge, windlass_rollup, windlass_record TO windlass_worker;

COMMIT;
