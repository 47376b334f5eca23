-- Statements for a connection of the caller's own. Each takes one text, at :given, and answers with
-- texts: whatever the caller's driver makes of other types, it is not in the way.

-- name: enqueue
SELECT CAST(to_json(answer) AS text)
FROM (SELECT CAST(CAST(:given AS text) AS jsonb) AS it) AS given,
    windlass_enqueue(
        given.it -> 'jobs', CAST(given.it ->> 'now' AS bigint), given.it ->> 'place'
    ) AS answer

-- name: together
-- All of them, or one answer that says why none.
SELECT CAST(answer AS text)
FROM (SELECT CAST(CAST(:given AS text) AS jsonb) AS it) AS given,
    windlass_enqueue_together(
        given.it -> 'jobs', CAST(given.it ->> 'now' AS bigint), given.it ->> 'place'
    ) AS answer

-- name: standing
-- The rows of jobs that stand for others, by their ids. Not in one statement with the enqueue, which
-- would not see what it stored itself.
SELECT windlass_standing(CAST(CAST(:given AS text) AS jsonb))

-- name: succeed
SELECT windlass_succeed(
    given.it -> 'wish', CAST(given.it ->> 'now' AS bigint), given.it ->> 'place'
)
FROM (SELECT CAST(CAST(:given AS text) AS jsonb) AS it) AS given

-- name: place
SELECT windlass_place()
