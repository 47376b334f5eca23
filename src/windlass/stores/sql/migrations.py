"""Numbered, forward-only, checksummed migrations, and what to make of those already applied.

A file is `NNNN_name.sql`. Its first line may be `-- breaking`: then an older Windlass must not use
the schema. Without that mark, older versions go on working beside newer ones (rolling deploys): it
may append columns, tables and indexes, but a new state, trigger or event type is breaking.
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
    """One line of the schema table."""

    version: int
    name: str
    checksum: str
    breaking: bool


def read(package: str) -> Sequence[Migration]:
    found = [
        Migration(int(match[1]), match[2], item.read_text("utf-8"))
        for item in files(package).iterdir()
        if (match := _FILE.match(item.name))
    ]
    found.sort(key=lambda migration: migration.version)
    if [migration.version for migration in found] != list(range(1, len(found) + 1)):
        raise SchemaError(f"the migrations in {package} are not numbered 1, 2, 3 …")
    return found


def plan(known: Sequence[Migration], applied: Iterable[Applied], where: str) -> list[Migration]:
    """The migrations still to run; raises when this version must keep its hands off."""
    done: Mapping[int, Applied] = {line.version: line for line in applied}
    for migration in known:
        line = done.get(migration.version)
        if line is not None and line.checksum != migration.checksum:
            raise SchemaError(
                f"migration {migration.version:04d}_{migration.name} in {where} is not the one "
                "this Windlass knows: the file belongs to another build, or was altered by hand; "
                "use the version that made it, or start with a new file"
            )
    newest = known[-1].version
    ahead = [line for line in done.values() if line.version > newest]
    if any(line.breaking for line in ahead):
        versions = max(line.version for line in ahead)
        raise SchemaError(
            f"{where} has schema {versions}, this Windlass understands up to {newest} and a newer "
            "one says that it must not go on: upgrade Windlass here (pip install -U windlass)"
        )
    return [migration for migration in known if migration.version not in done]


def script(todo: Sequence[Migration], schema: str, now: str, *, begin: str) -> str:
    """The migrations as one script that may be run by hand: `migrate` then finds nothing to do.

    `schema` makes the table of what was applied; `now` is the store's own word for this instant,
    and `begin` for the start of a transaction.
    """
    if not todo:
        return ""
    parts = [f"{begin};", f"{schema};"]
    for migration in todo:
        name = f"{migration.version:04d}_{migration.name}"
        line = (
            f"INSERT INTO windlass_schema (version, name, checksum, breaking, applied_at)\n"
            f"VALUES ({migration.version}, '{migration.name}', '{migration.checksum}', "
            f"{int(migration.breaking)}, {now});"
        )
        parts += [f"-- {name}", migration.sql.strip(), line]
    return "\n\n".join([*parts, "COMMIT;"]) + "\n"
