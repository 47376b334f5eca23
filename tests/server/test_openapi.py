"""The server conforms to its OpenAPI document: schemathesis sends valid and invalid requests.

It checks that there is no internal error, no undocumented status, content type, header or body, no
accepted undocumented method or data, and no access without a key. One check is excluded: that all
data of a valid schema are accepted. A schema cannot express which tasks exist, or that two fields
exclude each other. Such requests get 422, as documented.

`GET /api/events` is excluded, because its streams never end: see streaming/test_feeds.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import ignored_auth, positive_data_acceptance
from schemathesis.generation.stateful.state_machine import APIStateMachine
from tests.server.conftest import LiveServer, make_app, run_server

from windlass import Windlass
from windlass.server.auth.api_keys import Role
from windlass.server.config import AuthMode, ServerConfig
from windlass.stores.memory.data import MemoryData

EFFORT = int(os.environ.get("WINDLASS_EFFORT", "1"))
STREAM_PATH = "/api/events"
EXCLUDED_CHECKS = [positive_data_acceptance]
SETTINGS: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "derandomize": EFFORT == 1,
    "suppress_health_check": list(HealthCheck),
    "phases": [Phase.generate],  # failures are small without shrinking
}
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    config = ServerConfig(auth=AuthMode.KEYS, rate=0, auth_failure_burst=1e9)
    with run_server(tmp_path_factory.mktemp("schema"), config) as live_server:
        yield live_server


def document(server: LiveServer, key: str) -> Any:
    headers = {"Authorization": f"Bearer {key}"}
    schema = schemathesis.openapi.from_url(f"{server.url}/api/openapi.json", headers=headers)
    return schema.exclude(path=STREAM_PATH)


# Role, owner, and number of examples.
CALLERS = [(Role.ADMIN, None, 3), (Role.OPERATOR, "alice", 1), (Role.WORKER, None, 1)]


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize(("role", "owner", "examples"), CALLERS)
def test_every_route_responds_as_documented(
    server: LiveServer, role: Role, owner: str | None, examples: int, mode: GenerationMode
) -> None:
    key = server.key(role, owner=owner)
    headers = {"Authorization": f"Bearer {key}"}
    with requests.Session() as session:
        for found in document(server, key).get_all_operations():
            operation = found.ok()

            @settings(max_examples=examples * EFFORT, **SETTINGS)
            @given(case=operation.as_strategy(generation_mode=mode))
            def check(case: schemathesis.Case[Any]) -> None:
                case.call_and_validate(
                    session=session, headers=headers, excluded_checks=EXCLUDED_CHECKS
                )

            try:
                check()
            except Unsatisfiable:  # an operation without input has no invalid input
                assert mode is GenerationMode.NEGATIVE, operation.label


LINKED = {  # operations that must succeed, by resource
    "jobs": {"POST /api/jobs", "GET /api/jobs/{id}", "POST /api/jobs/{id}/cancel"},
    "schedules": {"POST /api/schedules", "GET /api/schedules/{name}"},
    "keys": {"POST /api/keys", "DELETE /api/keys/{id}"},
}
CREATE_BODIES: dict[str, dict[str, Any]] = {
    "POST /api/jobs": {},
    "POST /api/schedules": {"every": "1h"},
}


@pytest.mark.parametrize("noun", list(LINKED))
def test_created_resources_can_be_read_through_their_links(tmp_path: Path, noun: str) -> None:
    """Each run starts with an empty store and needs no key, so that it is deterministic."""
    app = make_app(tmp_path, "memory:")
    with run_server(tmp_path, ServerConfig(auth=AuthMode.OPEN, rate=0), app=app) as server:
        schema = schemathesis.openapi.from_url(f"{server.url}/api/openapi.json")
        schema.config.generation.update(modes=[GenerationMode.POSITIVE])
        schema.config.phases.stateful.inference.algorithms = []  # use only the documented links
        linked = schema.include(path_regex=rf"^/api/{noun}(/\{{.*)?$")
        machine = stateful_machine(app, linked.as_state_machine())
        # With 30 examples, a derandomized run can miss a link (2026-11-18).
        machine.run(settings=settings(max_examples=60 * EFFORT, stateful_step_count=8, **SETTINGS))
    succeeded = {label for label, status in machine.seen if status < 300}
    assert succeeded >= LINKED[noun], sorted(machine.seen)


def stateful_machine(app: Windlass, machine: type[APIStateMachine]) -> Any:
    class StatefulMachine(machine):  # type: ignore[misc, valid-type]
        seen: ClassVar[set[tuple[str, int]]] = set()

        def setup(self) -> None:
            data = app._root._data  # type: ignore[attr-defined]
            vars(data).update(vars(MemoryData(data.clock)))

        def before_call(self, case: schemathesis.Case[Any]) -> None:
            """Use an existing task and a valid interval: random values would never match."""
            label, body = case.operation.label, case.body
            case.headers.pop("Authorization", None)  # random, and not required
            case.cookies.clear()
            if label in CREATE_BODIES and isinstance(body, dict) and "task" in body:
                kept = {name: body[name] for name in body if name in {"hold", "name"}}
                case.body = kept | {"task": "add", "arguments": {"a": 1}} | CREATE_BODIES[label]

        def after_call(self, response: Any, case: schemathesis.Case[Any]) -> None:
            self.seen.add((case.operation.label, response.status_code))

        def validate_response(self, response: Any, case: schemathesis.Case[Any], **_: Any) -> None:
            case.validate_response(response, excluded_checks=[*EXCLUDED_CHECKS, ignored_auth])

    return StatefulMachine
