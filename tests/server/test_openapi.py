"""The OpenAPI document is true: schemathesis asks all that it promises, and much that it does not.

Its checks: no fault of the server's own, no answer, content type, header or body that is not in the
document, no method and no data beyond it that are taken, nobody let in without a key. One is left
out: that all data of the right form are taken. A form cannot say which tasks there are, or that two
fields exclude each other; such are refused with 422, and the document promises that.

`GET /api/events` is not asked: its answers have no end. Its tests are test_stream and test_many.
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
ENDLESS = "/api/events"
BEYOND_FORM = [positive_data_acceptance]
QUIETLY: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "derandomize": EFFORT == 1,
    "suppress_health_check": list(HealthCheck),
    "phases": [Phase.generate],  # what it finds is small enough
}
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    config = ServerConfig(auth=AuthMode.KEYS, rate=0, auth_failure_burst=1e9)
    with run_server(tmp_path_factory.mktemp("schema"), config) as one:
        yield one


def document(server: LiveServer, key: str) -> Any:
    headers = {"Authorization": f"Bearer {key}"}
    schema = schemathesis.openapi.from_url(f"{server.url}/api/openapi.json", headers=headers)
    return schema.exclude(path=ENDLESS)


# All of what each may do, and most of what it may not.
WHO = [(Role.ADMIN, None, 3), (Role.OPERATOR, "alice", 1), (Role.WORKER, None, 1)]


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize(("role", "owner", "examples"), WHO)
def test_every_route_responds_as_documented(
    server: LiveServer, role: Role, owner: str | None, examples: int, mode: GenerationMode
) -> None:
    key = server.key(role, owner=owner)
    headers = {"Authorization": f"Bearer {key}"}
    with requests.Session() as session:
        for found in document(server, key).get_all_operations():
            operation = found.ok()

            @settings(max_examples=examples * EFFORT, **QUIETLY)
            @given(case=operation.as_strategy(generation_mode=mode))
            def check(case: schemathesis.Case[Any]) -> None:
                case.call_and_validate(
                    session=session, headers=headers, excluded_checks=BEYOND_FORM
                )

            try:
                check()
            except Unsatisfiable:  # nothing can be wrong about what takes nothing
                assert mode is GenerationMode.NEGATIVE, operation.label


LINKED = {  # by their beginnings: what must have been done well in the end
    "jobs": {"POST /api/jobs", "GET /api/jobs/{id}", "POST /api/jobs/{id}/cancel"},
    "schedules": {"POST /api/schedules", "GET /api/schedules/{name}"},
    "keys": {"POST /api/keys", "DELETE /api/keys/{id}"},
}
MAKING: dict[str, dict[str, Any]] = {
    "POST /api/jobs": {},
    "POST /api/schedules": {"every": "1h"},
}


@pytest.mark.parametrize("noun", list(LINKED))
def test_created_resources_can_be_read_through_their_links(tmp_path: Path, noun: str) -> None:
    """From an empty store each time, and open, so that the same requests have the same answers."""
    app = make_app(tmp_path, "memory:")
    with run_server(tmp_path, ServerConfig(auth=AuthMode.OPEN, rate=0), app=app) as server:
        schema = schemathesis.openapi.from_url(f"{server.url}/api/openapi.json")
        schema.config.generation.update(modes=[GenerationMode.POSITIVE])
        schema.config.phases.stateful.inference.algorithms = []  # by the links that it tells of
        linked = schema.include(path_regex=rf"^/api/{noun}(/\{{.*)?$")
        machine = following(app, linked.as_state_machine())
        machine.run(settings=settings(max_examples=30 * EFFORT, stateful_step_count=8, **QUIETLY))
    good = {label for label, status in machine.seen if status < 300}
    assert good >= LINKED[noun], sorted(machine.seen)


def following(app: Windlass, machine: type[APIStateMachine]) -> Any:
    class Following(machine):  # type: ignore[misc, valid-type]
        seen: ClassVar[set[tuple[str, int]]] = set()

        def setup(self) -> None:
            data = app._root._data  # type: ignore[attr-defined]
            vars(data).update(vars(MemoryData(data.clock)))

        def before_call(self, case: schemathesis.Case[Any]) -> None:
            """Of a hundred random names none is a task's, and no word is a length of time."""
            label, body = case.operation.label, case.body
            case.headers.pop("Authorization", None)  # which are nonsense, and not asked for
            case.cookies.clear()
            if label in MAKING and isinstance(body, dict) and "task" in body:
                kept = {name: body[name] for name in body if name in {"hold", "name"}}
                case.body = kept | {"task": "add", "arguments": {"a": 1}} | MAKING[label]

        def after_call(self, response: Any, case: schemathesis.Case[Any]) -> None:
            self.seen.add((case.operation.label, response.status_code))

        def validate_response(self, response: Any, case: schemathesis.Case[Any], **_: Any) -> None:
            case.validate_response(response, excluded_checks=[*BEYOND_FORM, ignored_auth])

    return Following
