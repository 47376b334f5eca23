"""Least-privilege roles: their script, and the privileges that a user lacks."""

from __future__ import annotations

import re
from importlib.resources import files

from windlass.stores.postgres.connection import Connection

_GRANT = re.compile(
    r"^GRANT ([A-Z, ]+) ON (SEQUENCE )?([\w\s,]+?)\s+TO (windlass_\w+);", re.MULTILINE
)
ROLES = ("windlass_viewer", "windlass_producer", "windlass_worker")  # each includes the one before
_MISSING = """
SELECT required.role, required.privilege, required.name
FROM unnest($1::text[], $2::text[], $3::text[]) AS required (role, privilege, name)
WHERE CASE required.privilege
    WHEN 'USAGE' THEN NOT has_sequence_privilege(to_regclass(required.name), 'USAGE')
    ELSE NOT has_table_privilege(to_regclass(required.name), required.privilege)
END
"""


def script() -> str:
    """Return the SQL that creates the roles, for an operator to review and run."""
    return files("windlass.stores.postgres.admin").joinpath("roles.sql").read_text("utf-8")


def grants() -> list[tuple[str, str, str]]:
    """Return (role, privilege, table), parsed from the script, the only definition of them."""
    return [
        (role, privilege.strip(), name.strip())
        for privileges, _, names, role in _GRANT.findall(script())
        for privilege in privileges.split(",")
        for name in names.split(",")
    ]


async def missing(connection: Connection) -> dict[str, list[str]]:
    """Return the privileges that the current user lacks for each role ("INSERT on windlass_job").

    Ignores tables that do not exist: the schema check reports those.
    """
    roles, privileges, names = zip(*grants(), strict=True)
    missing_by_role: dict[str, list[str]] = {role: [] for role in ROLES}
    for role, privilege, name in await connection.fetch(_MISSING, roles, privileges, names):
        missing_by_role[role].append(f"{privilege} on {name}")
    return missing_by_role
