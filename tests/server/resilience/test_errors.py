"""Error events: of a failed job, and of a stream whose store fails."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
from tests.server.conftest import enqueue, make_app, run_server, wait_for
from tests.server.resilience.conftest import read

from windlass.core.errors import StoreUnavailableError
from windlass.stores.memory import MemoryStore
from windlass.testing.wrapped_store import WrappedStore


def test_a_failure_event_has_stage_errors_and_last_log_lines(web: httpx.Client) -> None:
    job = wait_for(web, enqueue(web, "refused")["id"], "failed")
    last = read(web, job["id"])[-1]
    assert last.type == "job-failed"
    assert last.data["status"] == "failed"
    assert last.data["stage"] == "voice"
    assert last.data["errorMessage"] == "there is no text"
    assert last.data["errors"] == ["there is no text"]
    assert last.data["logs"] == ["looking for the text"]
    assert job["lastError"]["errorType"] == "TERMINAL"


class UnavailableStore(WrappedStore):
    """A store whose event reads fail while `away` is set."""

    away: Any = None

    def wrap(self, store: Any) -> UnavailableStore:
        created = UnavailableStore(store)
        created.away = self.away
        return created

    async def around(self, verb: str, call: Any) -> Any:
        if verb in {"events", "tail"} and self.away.is_set():
            raise StoreUnavailableError("the disk is on fire")
        return await call()


def test_a_store_failure_ends_the_stream_with_an_error_event(tmp_path: Path) -> None:
    """The error event has no id, so that a client resumes after the last stored event."""
    app = make_app(tmp_path)
    store = UnavailableStore(MemoryStore())
    store.away = asyncio.Event()
    store.away.set()
    with (
        app.replace_store(store, tmp_path / "data"),
        run_server(tmp_path, app=app) as server,
        server.client() as web,
    ):
        job = enqueue(web, "add", a=1)
        [result] = read(web, job["id"])
        assert (result.type, result.id) == ("error", None)
        assert result.data["message"] == "the disk is on fire"
        assert result.data["correlationId"] == job["correlationId"]
        store.away.clear()
        web.post(f"/api/jobs/{job['id']}/cancel")
        assert [item.seq for item in read(web, job["id"])] == [1, 2, 3]
