"""Actions on one job: submit, cancel, retry, resume, delete."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from tests.server.conftest import LiveServer, enqueue, wait_for


def test_a_held_job_can_be_submitted(server: LiveServer) -> None:
    with server.client() as web:
        job = enqueue(web, "add", {"hold": True}, a=1)
        response = web.post(f"/api/jobs/{job['id']}/submit")
        assert (response.status_code, response.json()["state"]) == (200, "queued")


def test_a_queued_job_is_canceled_at_once(server: LiveServer) -> None:
    with server.client() as web:
        job = enqueue(web, "add", a=1)
        response = web.post(f"/api/jobs/{job['id']}/cancel", json={"reason": "no need"})
        assert response.json() == {"id": job["id"], "status": "canceled", "cleanupScheduled": False}
        result = web.get(f"/api/jobs/{job['id']}").json()
        assert (result["cancelReason"], result["canceledAt"]) == ("no need", result["endedAt"])


def test_a_running_job_gets_a_cancel_request_and_ends_as_canceled(
    server_with_worker: LiveServer, tmp_path: Path
) -> None:
    with server_with_worker.client() as web:
        job = enqueue(web, "film", gate=str(tmp_path / "never"))
        wait_for(web, job["id"], "running")
        response = web.post(f"/api/jobs/{job['id']}/cancel")
        assert response.json() == {"id": job["id"], "status": "requested", "cleanupScheduled": True}
        result = wait_for(web, job["id"], "canceled")
        assert result["canceledAt"] == result["endedAt"]


def test_canceling_a_finished_job_returns_its_final_state(server_with_worker: LiveServer) -> None:
    with server_with_worker.client() as web:
        job = wait_for(web, enqueue(web, "add", a=1)["id"], "succeeded")
        response = web.post(f"/api/jobs/{job['id']}/cancel")
        assert response.status_code == 200
        assert response.json()["status"] == "succeeded"
        assert job["result"] == 1


def test_a_finished_job_is_retried_once_as_a_new_job(server: LiveServer) -> None:
    with server.client() as web:
        job = enqueue(web, "add", a=1)
        assert web.post(f"/api/jobs/{job['id']}/retry").status_code == 409
        web.post(f"/api/jobs/{job['id']}/cancel")
        first = web.post(f"/api/jobs/{job['id']}/retry")
        assert first.status_code == 201
        assert first.json()["retryOf"] == job["id"]
        second = web.post(f"/api/jobs/{job['id']}/retry")
        assert (second.status_code, second.json()["duplicate"]) == (200, True)
        assert first.json()["id"] == second.json()["id"]


def test_a_failed_job_is_resumed_after_its_last_step(
    server_with_worker: LiveServer, tmp_path: Path
) -> None:
    success_file = tmp_path / "success_file"
    with server_with_worker.client() as web:
        job = wait_for(web, enqueue(web, "stepped", success_file=str(success_file))["id"], "failed")
        assert (job["canResume"], job["lastCompletedStep"]) == (True, "first")
        success_file.touch()
        response = web.post(f"/api/jobs/{job['id']}/resume")
        assert response.status_code == 201
        assert wait_for(web, response.json()["id"], "succeeded")["result"] == "done"
        done = enqueue(web, "add", a=1)["id"]
        wait_for(web, done, "succeeded")
        assert web.post(f"/api/jobs/{done}/resume").status_code == 409


def test_only_finished_jobs_can_be_deleted(server: LiveServer) -> None:
    with server.client() as web:
        job = enqueue(web, "add", a=1)
        refused = web.delete(f"/api/jobs/{job['id']}")
        assert refused.status_code == 409
        assert "cancel it" in refused.json()["detail"]
        web.post(f"/api/jobs/{job['id']}/cancel")
        assert web.delete(f"/api/jobs/{job['id']}").status_code == 204
        assert web.get(f"/api/jobs/{job['id']}").status_code == 404


@pytest.mark.parametrize("verb", ["submit", "cancel", "retry", "resume"])
def test_actions_on_a_missing_job_are_not_found(server: LiveServer, verb: str) -> None:
    with server.client() as web:
        assert web.post(f"/api/jobs/{uuid4()}/{verb}").status_code == 404
        assert web.post(f"/api/jobs/none/{verb}").status_code == 422


def test_a_reason_that_is_not_text_is_reported(server: LiveServer) -> None:
    with server.client() as web:
        job = enqueue(web, "add", a=1)
        response = web.post(f"/api/jobs/{job['id']}/cancel", json={"reason": 5})
        assert response.status_code == 422
        assert response.json()["errors"][0]["field"] == "reason"
        assert web.get(f"/api/jobs/{job['id']}").json()["state"] == "queued"
