"""Health checks: liveness and readiness."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.server.conftest import LiveServer, run_server, until

from windlass.core.worker_presence import LiveWorker


def test_a_server_with_a_claiming_worker_is_ready(server_with_worker: LiveServer) -> None:
    with server_with_worker.client() as web:
        until(lambda: web.get("/readyz").status_code == 200, "the server is ready")
        assert web.get("/healthz").json()["status"] == "ok"
        assert [worker["unresponsive"] for worker in web.get("/api/workers").json()["workers"]] == [
            False
        ]


def test_a_server_whose_worker_has_no_presence_record_is_not_ready(tmp_path: Path) -> None:
    with run_server(tmp_path, worker=True) as server, server.client() as web:
        until(lambda: web.get("/readyz").status_code == 200, "the server is ready")
        with server.app._worker_context(server.loop):  # a second worker without a presence record
            response = web.get("/readyz")
        assert (response.status_code, response.json()["status"]) == (503, "not ready")


def test_a_server_with_an_unresponsive_worker_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run_server(tmp_path, worker=True) as server, server.client() as web:
        until(lambda: web.get("/readyz").status_code == 200, "the server is ready")
        monkeypatch.setattr(LiveWorker, "unresponsive", True)
        response = web.get("/readyz")
        assert (response.status_code, response.json()["status"]) == (503, "not ready")


def test_a_server_without_its_store_is_alive_and_not_ready(tmp_path: Path) -> None:
    with run_server(tmp_path) as server, server.client() as web:
        assert web.get("/readyz").status_code == 200
        server.app._closed = True
        response = web.get("/api/jobs")
        assert (response.status_code, response.json()["code"]) == (503, "store_unavailable")
        assert response.headers["retry-after"] == "1"
        assert web.get("/readyz").status_code == 503
        assert web.get("/healthz").status_code == 200
        server.app._closed = False
