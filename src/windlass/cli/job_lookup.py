"""Lookup of a job by its id or a part of it."""

from __future__ import annotations

from uuid import UUID

from windlass.client import Client
from windlass.core.errors import InvalidArgumentError, NotFoundError
from windlass.core.query.job_query import MAX_PAGE, JobQuery

MIN_ID_PART = 4  # characters


async def find_job(client: Client, text: str) -> UUID:
    """Return the id of a job, given whole or as a part that only one recent job has."""
    try:
        return UUID(text)
    except ValueError:
        pass
    part = text.lower()
    if len(part) < MIN_ID_PART or not set(part) <= set("0123456789abcdef-"):
        raise InvalidArgumentError(
            f"{text!r} is not a job id; give the whole id, or at least {MIN_ID_PART} of its first "
            "or last characters"
        )
    page = await client.store.find(JobQuery(limit=MAX_PAGE))
    ids = [row.id for row in page.rows]
    found = [job for job in ids if str(job).startswith(part) or str(job).endswith(part)]
    if not found:
        raise NotFoundError(f"none of the {len(ids)} most recent jobs starts or ends with {text!r}")
    if len(found) > 1:
        raise InvalidArgumentError(
            f"{len(found)} recent jobs start or end with {text!r}, such as {found[0]} and "
            f"{found[1]}; give more of the id (the end differs most)"
        )
    return found[0]
