"""js/src/api-types.d.ts has the types of the OpenAPI document; the client declares no copies."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.js.node import JS

from windlass.core.job.state import State
from windlass.schemas.jobs import JobSummary, JobView
from windlass.server.schemas.job_requests import ListJobsRequest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def api_types() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)
        yield importlib.import_module("api_types")


@pytest.fixture(scope="module")
def text(api_types: Any) -> str:
    found: str = api_types.api_types()
    return found


def fields(text: str, interface: str) -> list[str]:
    found = re.search(
        rf"^export interface {interface}\b[^{{]*\{{\n(.*?)^\}}", text, re.MULTILINE | re.DOTALL
    )
    assert found is not None, interface
    return re.findall(r"^  (\w+)\??:", found[1], re.MULTILINE)


def test_the_file_matches_the_document(api_types: Any, text: str) -> None:
    assert (JS / "src/api-types.d.ts").read_text("utf-8") == text, "run `make docs`"


def test_a_type_has_the_fields_of_its_schema(text: str) -> None:
    summary = [field.alias for field in JobSummary.model_fields.values()]
    assert fields(text, "JobSummary") == summary
    assert "export interface Job extends JobSummary {" in text
    more = [field.alias for name, field in JobView.model_fields.items()]
    assert fields(text, "Job") == [name for name in more if name not in summary]
    query = [field.alias for field in ListJobsRequest.model_fields.values()]
    assert sorted(fields(text, "Filter")) == sorted(name or "" for name in query)


def test_each_kind_of_value_has_its_type(text: str) -> None:
    for line in (
        "  percent: number;",
        "  held: boolean;",
        "  gate: string | null;",
        "  tags: string[];",
        "  lastError: JobError | null;",
        "  arguments: any;",
        "  headers: Record<string, string>;",
        "  counts: Partial<Record<State, number>>;",
        '  status: "requested" | "canceled" | "succeeded" | "failed";',
        "  runAt?: string | Date | null;",  # of a request
        "  createdAt: string;",
        "  state?: State | State[];",  # a parameter that may be repeated
        "export interface CreatedKey extends ApiKey {",
    ):
        assert f"\n{line}\n" in text, line
    states = re.search(r"^export type State =\n(.*?);", text, re.MULTILINE | re.DOTALL)
    assert states is not None
    assert re.findall(r'"(\w+)"', states[1]) == [state.value for state in State]


def test_every_type_has_a_comment_and_a_name_of_its_own(text: str) -> None:
    names = re.findall(r"^export (?:interface|type) (\w+)", text, re.MULTILINE)
    assert len(set(names)) == len(names)
    uncommented = re.findall(r"(?<!\*/\n)^export (?:interface|type) (\w+)", text, re.MULTILINE)
    assert uncommented == []
    declared = (JS / "windlass.d.ts").read_text("utf-8")
    own = set(re.findall(r"^export (?:interface|type|declare class) (\w+)", declared, re.MULTILINE))
    assert not own & set(names), "the type is generated"


def test_a_schema_that_the_generator_does_not_know_is_an_error(api_types: Any) -> None:
    with pytest.raises(NotImplementedError, match="'file'"):
        api_types.type_text({"type": "file"}, is_request=False)
