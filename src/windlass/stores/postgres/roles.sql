-- Least-privilege roles for Windlass on PostgreSQL.
--
-- Run this after `windlass migrate`, as a superuser, in the database of the jobs and with the
-- search_path that finds them; run it again after every later migration. Repeating it is harmless.
-- Then give your own users one of the roles: GRANT windlass_worker TO ann;
--
--   windlass_viewer    reads jobs, logs and counts: dashboards, `windlass jobs list`
--   windlass_producer  and enqueues, cancels, submits, retries: what a web application does
--   windlass_worker    and claims, runs, settles, prunes, deletes, pauses: what a worker does
--   windlass_owner     owns the tables and runs `windlass migrate`; no program needs it day by day
--
-- Nobody but the owner can alter, truncate or drop a table, and none of these roles reaches the
-- tables of your own application. They keep programs to their part; they are no wall between
-- tenants: whoever may cancel a job may write its row.

BEGIN;

DO $$
DECLARE
    wanted text;
    made regclass;
    function regprocedure;
BEGIN
    FOREACH wanted IN ARRAY ARRAY[
        'windlass_viewer', 'windlass_producer', 'windlass_worker', 'windlass_owner'
    ] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
        END IF;
    END LOOP;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO windlass_viewer, windlass_owner', current_schema());
    EXECUTE format('GRANT CREATE ON SCHEMA %I TO windlass_owner', current_schema());
    -- Later migrations alter these tables, and only an owner may.
    FOR made IN
        SELECT oid FROM pg_class WHERE relname LIKE 'windlass\_%' AND relkind IN ('r', 'S')
            AND relnamespace = current_schema()::regnamespace
    LOOP
        EXECUTE format('ALTER TABLE %s OWNER TO windlass_owner', made);
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

-- Each role may do what the one before it may.
GRANT windlass_viewer TO windlass_producer;
GRANT windlass_producer TO windlass_worker;

GRANT SELECT ON windlass_schema, windlass_job, windlass_line, windlass_parked, windlass_gate,
    windlass_pass, windlass_start, windlass_knock, windlass_lease, windlass_waiting,
    windlass_trouble, windlass_log, windlass_step, windlass_edge, windlass_rollup, windlass_record
    TO windlass_viewer;

-- A job, its place in line or aside of it, its keys and whom it depends on; a signal; and a cancel,
-- which ends a job that waits.
GRANT USAGE ON SEQUENCE windlass_serial TO windlass_producer;
GRANT SELECT ON windlass_key TO windlass_producer;
GRANT INSERT, UPDATE ON windlass_job, windlass_line, windlass_parked, windlass_gate, windlass_pass,
    windlass_start, windlass_waiting, windlass_rollup, windlass_step, windlass_edge TO windlass_producer;
GRANT INSERT ON windlass_knock TO windlass_producer;
GRANT UPDATE ON windlass_lease TO windlass_producer;
GRANT INSERT ON windlass_key, windlass_ended, windlass_trouble, windlass_log TO windlass_producer;
GRANT DELETE ON windlass_line, windlass_parked, windlass_pass, windlass_start, windlass_knock,
    windlass_waiting, windlass_key TO windlass_producer;

-- A claim makes leases, a running job records steps, retention deletes what is past keeping.
GRANT SELECT ON windlass_ended TO windlass_worker;
GRANT INSERT ON windlass_lease, windlass_record TO windlass_worker;
GRANT UPDATE ON windlass_record, windlass_ended TO windlass_worker;
GRANT DELETE ON windlass_gate, windlass_job, windlass_lease, windlass_ended, windlass_trouble, windlass_log,
    windlass_step, windlass_edge, windlass_rollup, windlass_record TO windlass_worker;

COMMIT;
