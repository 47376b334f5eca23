"""The client of a request, with its permissions and its scope."""

from __future__ import annotations

from dataclasses import dataclass

from windlass.core.job.row import JobRow
from windlass.core.task_token import TaskToken
from windlass.server.auth.api_keys import Role
from windlass.server.auth.permissions import ROLE_PERMISSIONS, UNSCOPED_ONLY, Permission


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The client of a request. Without an owner (or team), it sees all owners' (teams') jobs."""

    name: str
    key_id: str | None = None
    roles: frozenset[Role] = frozenset()
    owner: str | None = None
    team: str | None = None
    attempt: TaskToken | None = None  # of a caller with a task token: the only attempt it acts for
    session: str | None = None  # hash of the browser session, if there is one

    @property
    def scoped(self) -> bool:
        """Whether the caller is limited to jobs of one owner or team."""
        return self.owner is not None or self.team is not None

    def role_permits(self, permission: Permission) -> bool:
        return permission is Permission.PUBLIC or any(
            permission in ROLE_PERMISSIONS[role] for role in self.roles
        )

    def has_any(self, *permissions: Permission) -> bool:
        """Return whether the caller has one of these permissions, within its scope."""
        return any(
            self.role_permits(permission) and not (self.scoped and permission in UNSCOPED_ONLY)
            for permission in permissions
        )

    def can_see(self, row: JobRow) -> bool:
        return self.owner in {None, row.owner} and self.team in {None, row.team}


PUBLIC_CALLER = Caller(name="public")
ANONYMOUS_ADMIN = Caller(name="anonymous", roles=frozenset({Role.ADMIN}))
