"""Filters of queries, and cursors that are valid only for their filters."""

from __future__ import annotations

import base64
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.factories import NOW, OTHER, RETRYABLE
from tests.core.job_simulation import reach

from windlass.core.errors import InvalidArgumentError
from windlass.core.job.state import State
from windlass.core.query.job_query import (
    MAX_PAGE,
    JobQuery,
    decode_cursor,
    encode_cursor,
    fingerprint,
    matches,
)

STORED = replace(
    reach(State.RUNNING).row,
    queue="mail",
    owner="ann",
    team="red",
    tags=("a", "b"),
    error=RETRYABLE,
    request_id="r1",
    unique_key="k1",
    retry_of=OTHER,
    root_id=OTHER,
    flow_id=OTHER,
)
HITS: list[dict[str, Any]] = [
    {},
    {"states": frozenset({State.RUNNING, State.FAILED})},
    {"queues": frozenset({"mail", "other"})},
    {"tasks": frozenset({"mail.send"})},
    {"owner": "ann"},
    {"team": "red"},
    {"tags": frozenset({"a"})},
    {"tags": frozenset({"a", "b"})},
    {"error": "io"},
    {"text": "L.Send"},
    {"text": "IO"},
    {"text": "b"},
    {"worker": "w1"},
    {"request_id": "r1"},
    {"unique_key": "k1"},
    {"retry_of": OTHER},
    {"root_id": OTHER},
    {"flow_id": OTHER},
    {"created_from": NOW},
    {"created_to": NOW + 1},
]
MISSES: list[dict[str, Any]] = [
    {"states": frozenset({State.FAILED})},
    {"queues": frozenset({"default"})},
    {"tasks": frozenset({"mail"})},
    {"owner": ""},
    {"owner": "bob"},
    {"team": "blue"},
    {"tags": frozenset({"a", "c"})},
    {"error": "crashed"},
    {"text": "ann"},
    {"text": "ab"},
    {"worker": "w2"},
    {"request_id": "r2"},
    {"unique_key": "k2"},
    {"retry_of": STORED.id},
    {"root_id": STORED.id},
    {"flow_id": STORED.id},
    {"created_from": NOW + 1},
    {"created_to": NOW},
]


def name(filters: dict[str, Any]) -> str:
    return ",".join(f"{key}={_plain(value)}" for key, value in filters.items()) or "none"


def _plain(value: object) -> object:
    """Sorts sets: test ids must be equal in all test processes."""
    return "+".join(sorted(map(str, value))) if isinstance(value, frozenset) else value


@pytest.mark.parametrize("samples", [HITS, MISSES], ids=["hits", "misses"])
def test_every_filter_has_a_sample(samples: list[dict[str, Any]]) -> None:
    filters = {field.name for field in fields(JobQuery)} - {"limit", "cursor", "omit_payload"}
    assert {name for sample in samples for name in sample} == filters


@pytest.mark.parametrize("filters", HITS, ids=name)
def test_a_matching_filter_includes_the_job(filters: dict[str, Any]) -> None:
    assert matches(JobQuery(**filters), STORED)


@pytest.mark.parametrize("filters", MISSES, ids=name)
def test_a_filter_that_does_not_match_excludes_the_job(filters: dict[str, Any]) -> None:
    assert not matches(JobQuery(**filters), STORED)


@pytest.mark.parametrize("miss", MISSES, ids=name)
def test_all_filters_must_match(miss: dict[str, Any]) -> None:
    together: dict[str, Any] = {}
    for hit in HITS:
        together |= hit
    assert matches(JobQuery(**together), STORED)
    assert not matches(JobQuery(**(together | miss)), STORED)


def test_a_job_without_an_error_matches_no_error() -> None:
    assert not matches(JobQuery(error="io"), replace(STORED, error=None))


# -- cursors


def test_the_first_page_has_no_cursor() -> None:
    assert decode_cursor(JobQuery()) is None


@settings(max_examples=60)
@given(st.sampled_from(HITS + MISSES), st.integers(0, 2**63 - 1), st.integers(1, MAX_PAGE))
def test_a_cursor_is_valid_for_any_page_size(
    filters: dict[str, Any], before: int, limit: int
) -> None:
    cursor = encode_cursor(JobQuery(**filters), before)
    assert decode_cursor(JobQuery(**filters, cursor=cursor, limit=limit)) == before


def test_every_filter_counts_in_the_fingerprint() -> None:
    different = [filters for filters in HITS + MISSES if filters]
    prints = {fingerprint(JobQuery(**filters)) for filters in [{}, *different]}
    assert len(prints) == len(different) + 1


def test_neither_page_size_nor_cursor_count_in_the_fingerprint() -> None:
    assert fingerprint(JobQuery(limit=5, cursor="x")) == fingerprint(JobQuery())


def test_the_order_in_which_filters_were_given_does_not_matter() -> None:
    one, other = frozenset(["a", "b", "c"]), frozenset(["c", "b", "a"])
    assert fingerprint(JobQuery(queues=one)) == fingerprint(JobQuery(queues=other))


@pytest.mark.parametrize("filters", HITS[1:], ids=name)
def test_a_cursor_of_other_filters_is_refused(filters: dict[str, Any]) -> None:
    cursor = encode_cursor(JobQuery(**filters), 5)
    with pytest.raises(InvalidArgumentError, match="other filters"):
        decode_cursor(JobQuery(cursor=cursor))


def packed(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


PRINT = fingerprint(JobQuery())


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "!!!!",
        "ümlaut",
        "\ud800",
        "AAAA",
        packed("1:5"),
        packed(f"1:five:{PRINT}"),
        packed(f"1::{PRINT}"),
        packed(f"1:5:{PRINT}:6"),
        base64.urlsafe_b64encode(b"\xff\xfe\xfd").decode(),
        packed(f"1:{'9' * 5000}:{PRINT}"),
    ],
)
def test_an_invalid_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidArgumentError, match="not a cursor"):
        decode_cursor(JobQuery(cursor=cursor))


@pytest.mark.parametrize("number", ["-1", str(2**63), str(10**30)])
def test_a_cursor_to_a_place_that_no_store_has_is_refused(number: str) -> None:
    with pytest.raises(InvalidArgumentError):
        decode_cursor(JobQuery(cursor=packed(f"1:{number}:{PRINT}")))


def test_a_cursor_of_another_version_is_refused() -> None:
    with pytest.raises(InvalidArgumentError):
        decode_cursor(JobQuery(cursor=packed(f"2:5:{PRINT}")))


def test_a_cursor_with_a_changed_fingerprint_is_refused() -> None:
    for index in range(len(PRINT)):
        changed = "0" if PRINT[index] != "0" else "1"
        forged = PRINT[:index] + changed + PRINT[index + 1 :]
        with pytest.raises(InvalidArgumentError, match="other filters"):
            decode_cursor(JobQuery(cursor=packed(f"1:5:{forged}")))


def test_a_truncated_cursor_is_refused() -> None:
    whole = encode_cursor(JobQuery(), 12345)
    for length in range(len(whole)):
        if whole[:length].rstrip("=") == whole.rstrip("="):
            continue
        with pytest.raises(InvalidArgumentError):
            decode_cursor(JobQuery(cursor=whole[:length]))


# -- limits


@pytest.mark.parametrize("limit", [1, 2, 100, 1000])
def test_a_page_holds_1_to_1000_jobs(limit: int) -> None:
    assert JobQuery(limit=limit).limit == limit


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_another_page_size_is_refused_with_the_bounds(limit: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"limit is {limit}.*1 and 1000"):
        JobQuery(limit=limit)
