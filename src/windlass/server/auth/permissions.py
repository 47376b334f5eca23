"""Permissions of routes, and the permissions of each role."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from windlass.server.auth.api_keys import Role


class Permission(StrEnum):
    """The permission that a route needs."""

    PUBLIC = "public"  # none: health checks, sign-in
    READ = "read"  # read visible jobs
    MONITOR = "monitor"  # read data about all jobs: queues, workers, statistics
    PRODUCE = "produce"  # enqueue jobs, and act on visible jobs
    WORK = "work"  # claim jobs, and act for their attempts
    DELETE = "delete"  # delete visible jobs
    OPERATE = "operate"  # pause queues, change schedules
    ADMIN = "admin"  # manage keys, read the audit log


ROLE_PERMISSIONS: Mapping[Role, frozenset[Permission]] = {
    Role.VIEWER: frozenset({Permission.READ, Permission.MONITOR}),
    Role.PRODUCER: frozenset({Permission.READ, Permission.MONITOR, Permission.PRODUCE}),
    Role.WORKER: frozenset({Permission.READ, Permission.MONITOR, Permission.WORK}),
    Role.OPERATOR: frozenset(Permission) - {Permission.ADMIN, Permission.WORK},
    Role.ADMIN: frozenset(Permission),
}
# Permissions that concern all jobs: a key of one owner or team never has them.
UNSCOPED_ONLY = frozenset(
    {Permission.MONITOR, Permission.WORK, Permission.OPERATE, Permission.ADMIN}
)
