"""Retry policies and backoffs: delays, validation, encoding."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.core.errors import InvalidArgumentError
from windlass.core.job.retry_policy import (
    MAX_DELAY,
    Backoff,
    Delays,
    Exponential,
    Fixed,
    Policy,
    backoff_delay,
    custom,
    delays,
    exponential,
    fixed,
)

SECONDS = st.floats(0, MAX_DELAY)
BACKOFFS: st.SearchStrategy[Backoff] = st.one_of(
    st.builds(exponential, SECONDS, SECONDS, st.sampled_from(["full", "none"])),
    st.builds(fixed, SECONDS),
    st.builds(delays, st.lists(SECONDS, min_size=1, max_size=5), st.floats(0, 1)),
)


def constant(value: float) -> Any:
    return lambda: value


def test_the_default_policy_is_three_retries_with_full_jitter_and_a_crash_cap_of_three() -> None:
    assert Policy() == Policy(
        backoff=Exponential(base=0.5, cap=30, jitter="full"),
        max_retries=3,
        crash_cap=3,
        timeout=None,
    )
    assert exponential() == Exponential(base=0.5, cap=30, jitter="full")


@pytest.mark.parametrize(
    ("n", "bound"), [(0, 0.5), (1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 30), (7, 30), (500, 30)]
)
def test_the_default_delay_is_random_up_to_the_doubled_base_or_the_cap(
    n: int, bound: float
) -> None:
    assert backoff_delay(exponential(), n, constant(0.0)) == 0
    assert backoff_delay(exponential(), n, constant(0.5)) == bound / 2
    assert bound * 0.999 < backoff_delay(exponential(), n, constant(0.9999)) < bound


@settings(max_examples=60)
@given(SECONDS, SECONDS, st.integers(0, 10_000), st.floats(0, 1, exclude_max=True))
def test_full_jitter_stays_within_its_formula(base: float, cap: float, n: int, r: float) -> None:
    bound = min(base * 2.0 ** min(n, 62), cap)
    assert backoff_delay(exponential(base, cap), n, constant(r)) == bound * r <= bound


def test_exponential_without_jitter_is_the_bound_itself() -> None:
    backoff = exponential(1, 10, "none")
    assert [backoff_delay(backoff, n, constant(0.1)) for n in range(6)] == [1, 2, 4, 8, 10, 10]


def test_a_fixed_delay_is_the_same_for_every_retry() -> None:
    assert fixed() == fixed(1) == Fixed(seconds=1)
    assert [backoff_delay(fixed(1), n, constant(0.9)) for n in range(4)] == [1, 1, 1, 1]


@pytest.mark.parametrize(("n", "middle"), [(0, 60), (1, 300), (2, 900), (3, 900), (40, 900)])
def test_delays_are_used_in_order_and_the_last_repeats(n: int, middle: float) -> None:
    backoff = delays([60, 300, 900], jitter=0.2)
    assert backoff_delay(backoff, n, constant(0.5)) == pytest.approx(middle)
    assert backoff_delay(backoff, n, constant(0.0)) == pytest.approx(middle * 0.8)
    assert backoff_delay(backoff, n, constant(0.999999)) == pytest.approx(middle * 1.2, rel=1e-4)


def test_a_custom_function_gets_the_number_of_the_retry() -> None:
    backoff = custom(lambda n: 10.0 + n)
    assert [backoff_delay(backoff, n, constant(0.0)) for n in range(3)] == [10, 11, 12]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(-5.0, 0.0), (float("-inf"), 0.0), (float("inf"), MAX_DELAY), (1e300, MAX_DELAY)],
)
def test_the_delay_of_a_custom_function_is_clamped(answer: float, expected: float) -> None:
    assert backoff_delay(custom(lambda _: answer), 0, constant(0.0)) == expected


def test_a_custom_function_that_returns_nan_still_gives_a_valid_delay() -> None:
    assert 0 <= backoff_delay(custom(lambda _: float("nan")), 0, constant(0.0)) <= MAX_DELAY


def test_a_custom_backoff_is_stored_as_its_fallback() -> None:
    policy = Policy(backoff=custom(lambda _: 1.0, fallback=fixed(7)))
    assert Policy.decode(policy.encode()).backoff == fixed(7)
    assert Policy.decode(Policy(backoff=custom(lambda _: 1.0)).encode()).backoff == exponential()


@settings(max_examples=80)
@given(
    BACKOFFS,
    st.integers(0, 1000),
    st.integers(1, 1000),
    st.one_of(st.none(), st.floats(0.001, 1e6)),
)
def test_a_policy_round_trips(
    backoff: Backoff, retries: int, cap: int, timeout: float | None
) -> None:
    policy = Policy(backoff=backoff, max_retries=retries, crash_cap=cap, timeout=timeout)
    assert Policy.decode(policy.encode()) == policy


@settings(max_examples=60)
@given(BACKOFFS, st.integers(0, 10_000), st.floats(0, 1, exclude_max=True))
def test_no_backoff_returns_a_negative_delay(backoff: Backoff, n: int, r: float) -> None:
    assert backoff_delay(backoff, n, constant(r)) >= 0


NAN = float("nan")
INF = float("inf")


@pytest.mark.parametrize("bad", [-1, NAN, INF, MAX_DELAY * 2])
def test_a_bad_number_is_refused_with_the_name_of_its_field(bad: float) -> None:
    with pytest.raises(InvalidArgumentError, match="base"):
        exponential(base=bad)
    with pytest.raises(InvalidArgumentError, match="cap"):
        exponential(cap=bad)
    with pytest.raises(InvalidArgumentError, match="the delay"):
        fixed(bad)
    with pytest.raises(InvalidArgumentError, match="delay"):
        delays([1, bad])


def test_an_unknown_jitter_is_refused_with_the_valid_values() -> None:
    with pytest.raises(InvalidArgumentError, match=r'jitter is .some.*"full" or "none"'):
        exponential(jitter="some")  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [-0.1, 1.1, NAN, INF])
def test_the_jitter_of_delays_is_between_0_and_1(bad: float) -> None:
    with pytest.raises(InvalidArgumentError, match="jitter"):
        delays([1], jitter=bad)


def test_an_empty_list_of_delays_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="at least one delay"):
        delays([])


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("max_retries", -1),
        ("crash_cap", 0),
        ("crash_cap", -1),
        ("timeout", 0),
        ("timeout", -1.0),
        ("timeout", NAN),
        ("timeout", INF),
    ],
)
def test_a_bad_policy_is_refused_with_the_name_of_its_field(field: str, bad: float) -> None:
    with pytest.raises(InvalidArgumentError, match=field):
        Policy(**{field: bad})  # type: ignore[arg-type]


def test_a_policy_may_allow_no_retry_at_all() -> None:
    assert Policy(max_retries=0).max_retries == 0


def test_an_unknown_backoff_of_a_newer_version_is_read_as_the_default() -> None:
    text = Policy(max_retries=7).encode().replace("exponential", "fibonacci")
    assert Policy.decode(text) == Policy(max_retries=7)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Fixed(seconds=-1),
        lambda: Exponential(base=-1),
        lambda: Exponential(cap=float("nan")),
        lambda: Delays(delays=()),
        lambda: Delays(delays=(1,), jitter=2),
    ],
)
def test_an_invalid_backoff_cannot_be_created(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidArgumentError):
        make()


def test_a_stored_policy_is_plain_strict_json() -> None:
    data = json.loads(Policy(backoff=delays([60, 300, 900]), timeout=5).encode())
    assert data == {
        "backoff": {"kind": "delays", "delays": [60, 300, 900], "jitter": 0.2},
        "max_retries": 3,
        "crash_cap": 3,
        "timeout": 5,
    }
    assert Delays(delays=(60, 300, 900)).jitter == 0.2


def test_delays_may_be_durations_as_text() -> None:
    assert fixed("1m") == fixed(60) == fixed(timedelta(minutes=1))
    assert delays(["1m", 300, "15m"]) == delays([60, 300, 900])
    assert exponential("500ms", "30s") == exponential()


def test_an_invalid_delay_is_refused_with_its_name() -> None:
    with pytest.raises(InvalidArgumentError, match="base is 'soon'"):
        exponential("soon")
    with pytest.raises(InvalidArgumentError, match="a delay is -1"):
        delays([60, -1])
