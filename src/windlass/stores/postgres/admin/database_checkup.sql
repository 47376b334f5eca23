-- name: current_user
SELECT current_user::text

-- name: newest_migration
SELECT max(version) FROM windlass_schema

-- name: server
-- The server, and the number of free connections: the least of server, user and database limits.
SELECT current_user::text, current_setting('server_version'), pg_backend_pid(),
    pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on',
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
    current_setting('max_connections')::bigint,
    least(
        current_setting('max_connections')::bigint
            - current_setting('superuser_reserved_connections')::bigint
            - (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
        (
            SELECT rolconnlimit - (SELECT count(*) FROM pg_stat_activity WHERE usename = rolname)
            FROM pg_roles WHERE rolname = current_user AND rolconnlimit >= 0
        ),
        (
            SELECT datconnlimit - (
                SELECT count(*) FROM pg_stat_activity AS other WHERE other.datname = db.datname
            )
            FROM pg_database AS db WHERE datname = current_database() AND datconnlimit >= 0
        )
    )

-- name: settings
SELECT name, setting FROM pg_settings
WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum')

-- name: newest_job
SELECT updated_at FROM windlass_job ORDER BY n DESC LIMIT 1

-- name: dead_rows
SELECT relname::text, n_dead_tup, n_live_tup FROM pg_stat_user_tables
WHERE relname LIKE 'windlass\_%' AND pg_table_is_visible(relid)
ORDER BY n_dead_tup DESC

-- name: without_autovacuum
SELECT relname::text FROM pg_class
WHERE relname LIKE 'windlass\_%' AND pg_table_is_visible(oid)
    AND reloptions && ARRAY['autovacuum_enabled=false', 'autovacuum_enabled=off']
ORDER BY relname

-- name: long_transactions
-- In all databases: the oldest transaction of any of them holds back vacuum here. A user without
-- pg_monitor sees only its own.
SELECT pid, format('%s (%s)', usename, coalesce(nullif(application_name, ''), 'pid ' || pid)),
    extract(epoch FROM clock_timestamp() - xact_start)::float8
FROM pg_stat_activity
WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
    AND xact_start < clock_timestamp() - make_interval(secs => $1)
ORDER BY xact_start LIMIT 5
