"""Schemas of limits."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.core.admission.limit import Limit
from windlass.records.limit_records import LimitInfo
from windlass.schemas.base import JsonModel, shared_fields
from windlass.store import COUNT_CAP

_SETTINGS = ("limit", "declared", "override")


class LimitSettings(JsonModel):
    """Maximum number of running jobs, and of starts within any `period` seconds."""

    concurrency: int | None
    starts: int | None
    period: float | None

    @staticmethod
    def of(limit: Limit | None) -> LimitSettings | None:
        return None if limit is None else LimitSettings(**shared_fields(LimitSettings, limit))


class LimitView(JsonModel):
    """A limit; `limit` is in effect: the override, or else the declared one.

    `inUse` counts queued and running jobs, `waiting` jobs that wait for a slot; a lower bound if
    `capped`. Both are null for limits per key (`key:…`), which have many gates.
    """

    name: str
    limit: LimitSettings
    declared: LimitSettings | None
    override: LimitSettings | None
    in_use: int | None
    waiting: int | None
    capped: bool

    @staticmethod
    def of(info: LimitInfo) -> LimitView:
        values = {name: LimitSettings.of(getattr(info, name)) for name in _SETTINGS}
        capped = (info.waiting or 0) >= COUNT_CAP
        return LimitView(**shared_fields(LimitView, info) | values | {"capped": capped})


class LimitList(JsonModel):
    """Limits by name."""

    limits: Sequence[LimitView]

    @staticmethod
    def of(infos: Sequence[LimitInfo]) -> LimitList:
        return LimitList(limits=[LimitView.of(info) for info in infos])
