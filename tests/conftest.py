"""The files that take longest go first: no process is left alone with one of them at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

LONGEST = (
    "teeth/test_teeth.py",
    "stores/postgres/test_model.py",
    "stores/sqlite/test_processes.py",
    "server/test_schema.py",
    "server/test_remote_workers.py",
    "crash/test_postgres.py",
    "stores/postgres/test_gapless.py",
    "crash/test_storms.py",
    "stores/sqlite/test_power_cut.py",
    "stores/test_model.py",
    "bench/test_cli.py",
    "test_tutorial.py",
    "browser/test_job.py",
    "browser/test_pages.py",
    "browser/test_jobs.py",
    "browser/test_hurry.py",
    "browser/test_one_stream.py",
    "cli/test_worker.py",
    "worker/test_month.py",
    "crash/test_disk.py",
    "bench/test_serving.py",
    "stores/postgres/test_month.py",
    "stores/test_fairness.py",
    "stores/test_http.py",
    "stores/postgres/test_faulty.py",
    "stores/test_sqlite.py",
    "stores/test_postgres.py",
)
_PLACE = {str(Path(__file__).parent / name): place for place, name in enumerate(LONGEST)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _PLACE.get(str(item.path), len(_PLACE)))
