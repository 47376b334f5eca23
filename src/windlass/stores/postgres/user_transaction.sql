-- Statements for a caller's connection. Each takes one text parameter (:argument) and returns texts:
-- so the type conversions of the caller's driver do not matter.

-- name: enqueue
SELECT CAST(to_json(result) AS text)
FROM (SELECT CAST(CAST(:argument AS text) AS jsonb) AS body) AS given,
    windlass_enqueue(
        given.body -> 'jobs', CAST(given.body ->> 'now' AS bigint), given.body ->> 'database_id'
    ) AS result

-- name: enqueue_atomic
-- Stores all jobs, or none and returns one result with the reason.
SELECT CAST(result AS text)
FROM (SELECT CAST(CAST(:argument AS text) AS jsonb) AS body) AS given,
    windlass_enqueue_atomic(
        given.body -> 'jobs', CAST(given.body ->> 'now' AS bigint), given.body ->> 'database_id'
    ) AS result

-- name: job_rows
-- The rows of existing jobs, by id. A statement of its own: the enqueue would not see the rows that
-- it inserted.
SELECT windlass_job_rows(CAST(CAST(:argument AS text) AS jsonb))

-- name: succeed
SELECT windlass_succeed(
    given.body -> 'transition', CAST(given.body ->> 'now' AS bigint), given.body ->> 'database_id'
)
FROM (SELECT CAST(CAST(:argument AS text) AS jsonb) AS body) AS given

-- name: database_id
SELECT windlass_database_id()
