"""Number of jobs that the producers may have enqueued; a file that the driver rewrites."""

from __future__ import annotations

from pathlib import Path


def allow(directory: Path, jobs: int) -> None:
    """Set how many jobs all producers together may have enqueued by now."""
    draft = directory / "allowed.new"
    draft.write_text(str(jobs))
    draft.replace(directory / "allowed")


def allowed(directory: Path) -> int:
    return int((directory / "allowed").read_text())
