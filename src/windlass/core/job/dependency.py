"""Dependencies between jobs."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from windlass.core.fast_dataclass import positional_value
from windlass.core.job.state import FINAL, State


class OnParent(StrEnum):
    """What happens to a job when a job that it depends on ends without success."""

    CANCEL = "cancel"  # it is canceled, and so are the jobs that depend on it
    FAIL = "fail"  # it fails with the code `parent_failed`
    RUN = "run"  # it runs anyway, once all its parents have ended


@positional_value
class Parent:
    """The fields of a parent that the enqueue of a dependent job needs."""

    id: UUID
    owner: str
    state: State

    @property
    def open(self) -> bool:
        """Whether it has not ended."""
        return self.state not in FINAL


@positional_value
class Edges:
    """Dependencies of a job: its parents, in the order of `depends_on`, and its children."""

    parents: tuple[UUID, ...] = ()
    children: tuple[UUID, ...] = ()
