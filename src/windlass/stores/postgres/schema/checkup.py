"""What `windlass check` looks at on a server: facts are read first, and judged apart from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from windlass.core.clock import SECOND, Clock, Instant, SystemClock
from windlass.core.errors import SchemaError
from windlass.stores.checkup import Finding, Verdict
from windlass.stores.postgres.connection import Connection, PostgresConfig, connect
from windlass.stores.postgres.errors import FOREIGN, translate
from windlass.stores.postgres.schema import migrator, privileges
from windlass.stores.sql import query_file

DRIFT = 1.0  # seconds
LONG = 600.0  # seconds that a transaction may be open
DEAD = 50_000  # rows; fewer cost nothing, however many they are of all
FEW = 10  # connections
HANDLES = 2  # of a worker: its own, and its lease keeper's


@dataclass(frozen=True, slots=True)
class Checks:
    who: str
    newest_migration: str
    server: str
    settings: str
    newest_job: str
    dead_rows: str
    unswept: str
    long_transactions: str


CHECKS = query_file.load("windlass.stores.postgres", Checks, "checks.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """As the server told them. Times in seconds, `drift` of its clock ahead of ours."""

    where: str
    user: str
    version: str
    pooled: bool
    read_only: bool
    drift: float
    ahead: float  # of the newest job's time before the server's
    settings: Mapping[str, str]
    free: int  # connections
    most: int
    pool: int
    listen: str
    lacks: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by role
    dead: Sequence[tuple[str, int, int]] = ()  # table, dead rows, live rows
    unswept: Sequence[str] = ()  # tables with autovacuum off
    long: Sequence[tuple[int, str, float]] = ()  # pid, who, seconds
    schema: Finding = field(default=Finding("schema", Verdict.FINE, "up to date"))


async def checkup(config: PostgresConfig, clock: Clock | None = None) -> list[Finding]:
    """All that can be said of it without writing anything. Raises if it cannot be reached."""
    connection = await connect(config)
    try:
        reached = Finding("store", Verdict.FINE, f"{config.where} can be reached")
        lacks = await privileges.missing(connection)
        if lacks["windlass_viewer"]:
            user = await connection.fetchval(CHECKS.who)
            return [reached, _privileges(user, lacks)]
        stored = await _schema(connection, config.where)
        if stored.verdict is Verdict.WRONG:
            return [reached, stored]
        facts = await _facts(connection, config, clock or SystemClock())
        return list(judge(replace(facts, schema=stored, lacks=lacks)))
    except FOREIGN as error:
        raise translate(error, config.where) from error
    finally:
        connection.terminate()


async def _schema(connection: Connection, where: str) -> Finding:
    try:
        await migrator.check(connection, where)
    except SchemaError as error:
        return Finding("schema", Verdict.WRONG, str(error))
    known = migrator.MIGRATIONS[-1].version
    stored = await connection.fetchval(CHECKS.newest_migration)
    if stored > known:
        found = f"it is {stored}, newer than the {known} of this Windlass, which may still use it"
        return Finding("schema", Verdict.WARNING, found, "pip install -U windlass, when you can")
    return Finding("schema", Verdict.FINE, f"up to date ({stored})")


async def _facts(connection: Connection, config: PostgresConfig, clock: Clock) -> Facts:
    before = clock.now()
    told = await connection.fetchrow(CHECKS.server)
    assert told is not None
    between: Instant = (before + clock.now()) // 2
    user, version, pid, read_only, now, most, free = told
    newest: Instant = await connection.fetchval(CHECKS.newest_job) or now
    return Facts(
        where=config.where,
        user=user,
        version=version,
        pooled=pid != connection.get_server_pid(),
        read_only=read_only,
        drift=(now - between) / SECOND,
        ahead=(newest - now) / SECOND,
        settings=dict(map(tuple, await connection.fetch(CHECKS.settings))),
        free=free,
        most=most,
        pool=config.pool,
        listen=config.listen,
        dead=[(name, dead, live) for name, dead, live in await connection.fetch(CHECKS.dead_rows)],
        unswept=[name for [name] in await connection.fetch(CHECKS.unswept)],
        long=[
            (number, who, float(seconds))
            for number, who, seconds in await connection.fetch(CHECKS.long_transactions, LONG)
        ],
    )


def judge(facts: Facts) -> Iterator[Finding]:
    """What the facts mean, and what to do."""
    if facts.read_only:
        mend = "name the primary in the URL, or turn default_transaction_read_only off"
        found = f"{facts.where} takes no writes: it is a standby, or set to read-only"
        yield Finding("store", Verdict.WRONG, found, mend)
    else:
        found = f"{facts.where} takes writes (PostgreSQL {facts.version})"
        yield Finding("store", Verdict.FINE, found)
    yield facts.schema
    yield _privileges(facts.user, facts.lacks)
    yield from _durability(facts.settings)
    yield _clock(facts)
    yield _connections(facts)
    yield from _pooler(facts)
    yield from _tables(facts)


def _privileges(user: str, lacks: Mapping[str, Sequence[str]]) -> Finding:
    viewer, producer, worker = (lacks[role] for role in privileges.ROLES)
    roles = "windlass migrate --roles has the roles"
    if viewer:
        mend = f"GRANT windlass_viewer TO {user}, or more ({roles})"
        found = f"{user} may not even read jobs: no {', '.join(viewer)}"
        return Finding("privileges", Verdict.WRONG, found, mend)
    if not producer and not worker:
        return Finding("privileges", Verdict.FINE, f"{user} may do all that a worker does")
    may = "only read" if producer else "read and enqueue, but not work"
    mend = f"GRANT windlass_producer or windlass_worker TO {user}, if it needs more ({roles})"
    found = f"{user} may {may}: no {', '.join([*producer, *worker])}"
    return Finding("privileges", Verdict.WARNING, found, mend)


def _durability(settings: Mapping[str, str]) -> Iterator[Finding]:
    if settings["fsync"] == "off" or settings["full_page_writes"] == "off":
        name = "fsync" if settings["fsync"] == "off" else "full_page_writes"
        mend = f"ALTER SYSTEM SET {name} = on, and restart the server"
        found = f"{name} is off: a power cut may destroy the database"
        yield Finding("durability", Verdict.WRONG, found, mend)
    elif settings["synchronous_commit"] == "off":
        mend = (
            "SET synchronous_commit = on for the server, the database and the role, if it matters"
        )
        found = "synchronous_commit is off: a crash may lose the last moments"
        yield Finding("durability", Verdict.WARNING, found, mend)
    else:
        yield Finding("durability", Verdict.FINE, "accepted jobs survive a power cut")


def _clock(facts: Facts) -> Finding:
    if facts.ahead > DRIFT:
        found = f"the newest job is {facts.ahead:.0f} s in the future: the clock was set back"
        mend = "set the server's clock by NTP: waiting jobs and leases go by it"
        return Finding("clock", Verdict.WRONG, found, mend)
    if abs(facts.drift) > DRIFT:
        way = "ahead of" if facts.drift > 0 else "behind"
        found = f"the server's clock is {abs(facts.drift):.1f} s {way} this machine's"
        mend = "set both by NTP: leases go by the server's, a run_at that you compute by yours"
        return Finding("clock", Verdict.WARNING, found, mend)
    return Finding(
        "clock", Verdict.FINE, f"agrees with the server's ({facts.drift * 1000:+.0f} ms)"
    )


def _connections(facts: Facts) -> Finding:
    found = f"{facts.free} of {facts.most} are free; one worker may use {_most(facts)}"
    if facts.free < max(FEW, _most(facts)):
        mend = "raise max_connections, put less into pool= of the URL, or put pgbouncer before it"
        return Finding("connections", Verdict.WARNING, found, mend)
    return Finding("connections", Verdict.FINE, found)


def _most(facts: Facts) -> int:
    """Of one worker: two pools, and one that listens."""
    return HANDLES * facts.pool + (facts.listen != "off")


def _pooler(facts: Facts) -> Iterator[Finding]:
    if not facts.pooled:
        return
    if facts.listen:
        news = "nobody listens" if facts.listen == "off" else f"news is heard at {facts.listen}"
        yield Finding("pooler", Verdict.FINE, f"connected through one; {news}")
        return
    mend = "put listen=host:port of the server itself into the URL, or listen=off"
    found = "connected through one: in transaction mode no news is heard, and workers poll"
    yield Finding("pooler", Verdict.WARNING, found, mend)


def _tables(facts: Facts) -> Iterator[Finding]:
    off = [*facts.unswept, *(["every table"] if facts.settings["autovacuum"] == "off" else [])]
    if off:
        mend = "ALTER SYSTEM SET autovacuum = on, or ALTER TABLE … RESET (autovacuum_enabled)"
        found = f"autovacuum is off for {', '.join(off)}: dead rows pile up, and claims slow down"
        yield Finding("autovacuum", Verdict.WARNING, found, mend)
    else:
        yield Finding("autovacuum", Verdict.FINE, "on")
    bloated = [(name, dead) for name, dead, live in facts.dead if dead > max(DEAD, live)]
    for name, dead in bloated:
        mend = f"VACUUM {name}; if that helps for a while only, look for long transactions"
        found = f"{name} holds {dead:,} dead rows, more than live ones"
        yield Finding("bloat", Verdict.WARNING, found, mend)
    if not bloated:
        yield Finding("bloat", Verdict.FINE, "few dead rows")
    for pid, who, seconds in facts.long:
        mend = f"end it (SELECT pg_terminate_backend({pid})), and see why it was left open"
        found = f"{who} has had one open for {seconds / 60:.0f} min: no dead row goes meanwhile"
        yield Finding("transaction", Verdict.WARNING, found, mend)
