"""The roles that operators may give: a script for them, and what each needs."""

from __future__ import annotations

import re
from importlib.resources import files

from windlass.stores.postgres.connection import Connection

_GRANT = re.compile(
    r"^GRANT ([A-Z, ]+) ON (SEQUENCE )?([\w\s,]+?)\s+TO (windlass_\w+);", re.MULTILINE
)
ROLES = ("windlass_viewer", "windlass_producer", "windlass_worker")  # each may what the last may
_HELD = """
SELECT wanted.role, wanted.privilege, wanted.name
FROM unnest($1::text[], $2::text[], $3::text[]) AS wanted (role, privilege, name)
WHERE CASE wanted.privilege
    WHEN 'USAGE' THEN NOT has_sequence_privilege(to_regclass(wanted.name), 'USAGE')
    ELSE NOT has_table_privilege(to_regclass(wanted.name), wanted.privilege)
END
"""


def script() -> str:
    """The SQL that makes the roles, for an operator to read and run."""
    return files("windlass.stores.postgres").joinpath("roles.sql").read_text("utf-8")


def grants() -> list[tuple[str, str, str]]:
    """(role, privilege, table) as the script has them: it is the one place that says so."""
    return [
        (role, privilege.strip(), name.strip())
        for privileges, _, names, role in _GRANT.findall(script())
        for privilege in privileges.split(",")
        for name in names.split(",")
    ]


async def missing(connection: Connection) -> dict[str, list[str]]:
    """What the present user lacks for each role, as "INSERT on windlass_job".

    A table that is not there is not missed: that is for the schema to say.
    """
    roles, privileges, names = zip(*grants(), strict=True)
    lacks: dict[str, list[str]] = {role: [] for role in ROLES}
    for role, privilege, name in await connection.fetch(_HELD, roles, privileges, names):
        lacks[role].append(f"{privilege} on {name}")
    return lacks
