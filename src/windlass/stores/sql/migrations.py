"""Numbered, forward-only, checksummed migrations.

A file is `NNNN_name.sql`. If its first line is `-- breaking`, an older Windlass must not use the
schema. Otherwise older versions keep working with newer ones (rolling deploys). Such a migration
may add columns, tables and indexes; a new state, trigger or event type is breaking.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files

from windlass.core.errors import SchemaError

_FILE = re.compile(r"^(\d{4})_(\w+)\.sql$")
_BREAKING = "-- breaking"


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    sql: str

    @property
    def breaking(self) -> bool:
        return self.sql.startswith(_BREAKING)

    @property
    def checksum(self) -> str:
        return sha256(self.sql.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Applied:
    """Row of the schema table."""

    version: int
    name: str
    checksum: str
    breaking: bool


def read(package: str) -> Sequence[Migration]:
    migrations = [
        Migration(int(match[1]), match[2], item.read_text("utf-8"))
        for item in files(package).iterdir()
        if (match := _FILE.match(item.name))
    ]
    migrations.sort(key=lambda migration: migration.version)
    if [migration.version for migration in migrations] != list(range(1, len(migrations) + 1)):
        raise SchemaError(f"the migrations in {package} are not numbered 1, 2, 3 …")
    return migrations


def plan(known: Sequence[Migration], applied: Iterable[Applied], where: str) -> list[Migration]:
    """Return the pending migrations; raise SchemaError if this version must not use the schema."""
    done: Mapping[int, Applied] = {row.version: row for row in applied}
    for migration in known:
        row = done.get(migration.version)
        if row is not None and row.checksum != migration.checksum:
            raise SchemaError(
                f"migration {migration.version:04d}_{migration.name} in {where} differs from the "
                "one in this Windlass: the schema was created by another build or edited by hand; "
                "use the version that created it, or start with a new database"
            )
    newest = known[-1].version
    ahead = [row for row in done.values() if row.version > newest]
    if any(row.breaking for row in ahead):
        latest = max(row.version for row in ahead)
        raise SchemaError(
            f"{where} has schema version {latest}, but this Windlass supports up to {newest}, and "
            "a newer migration is incompatible: upgrade Windlass (pip install -U windlass)"
        )
    return [migration for migration in known if migration.version not in done]


def script(pending: Sequence[Migration], schema: str, now: str, *, begin: str) -> str:
    """Return the migrations as one script to run by hand; `migrate` then has nothing to do.

    schema: statement that creates the table of applied migrations
    now: SQL expression for the current time
    begin: statement that starts a transaction
    """
    if not pending:
        return ""
    parts = [f"{begin};", f"{schema};"]
    for migration in pending:
        name = f"{migration.version:04d}_{migration.name}"
        insert = (
            f"INSERT INTO windlass_schema (version, name, checksum, breaking, applied_at)\n"
            f"VALUES ({migration.version}, '{migration.name}', '{migration.checksum}', "
            f"{int(migration.breaking)}, {now});"
        )
        parts += [f"-- {name}", migration.sql.strip(), insert]
    return "\n\n".join([*parts, "COMMIT;"]) + "\n"
