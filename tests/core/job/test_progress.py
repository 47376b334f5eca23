"""Percent, stages and phases."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.core.errors import InvalidArgumentError
from windlass.core.job.progress import (
    COMPLETE,
    DEFAULT_STAGES,
    PROCESSING,
    StageMap,
    advance,
    clamp,
    eta,
)

AURA = [
    (stage, phase, low, high)
    for stages, phase, low, high in [
        ("Initialization Queued Script Planning Brief", "plan", 0, 15),
        ("TTS Audio Voice", "tts", 15, 35),
        ("Visuals Images Assets", "visuals", 35, 65),
        ("Composition Timeline Compose", "compose", 65, 85),
        ("Rendering Render Encode", "render", 85, 100),
        ("Complete Done", "complete", 100, 100),
    ]
    for stage in stages.split()
]


def test_the_default_stages_are_complete() -> None:
    assert len(AURA) == 19


@pytest.mark.parametrize(("stage", "phase", "low", "high"), AURA)
@pytest.mark.parametrize("spell", [str, str.lower, str.upper, str.title])
def test_each_stage_has_its_phase_and_range_in_any_case(
    stage: str, phase: str, low: int, high: int, spell: type[str]
) -> None:
    found = DEFAULT_STAGES.phase(spell(stage))
    assert found.name == phase
    assert found.span == (low, high)
    assert DEFAULT_STAGES.percent(spell(stage), 0) == low
    assert DEFAULT_STAGES.percent(spell(stage), 100) == high


@pytest.mark.parametrize("stage", ["", "Unknown", "unboxing", " render", "processing"])
def test_an_unknown_stage_is_processing_and_has_no_range(stage: str) -> None:
    assert DEFAULT_STAGES.phase(stage) == PROCESSING
    assert PROCESSING.name == "processing"
    assert DEFAULT_STAGES.percent(stage, 50) is None


@pytest.mark.parametrize(
    ("stage", "within", "percent"),
    [
        ("script", 50, 7),
        ("voice", 50, 25),
        ("visuals", 10, 38),
        ("compose", 100, 85),
        ("render", 60, 94),
        ("render", 99, 99),
        ("render", 1000, 100),
        ("voice", -20, 15),
        ("done", 0, 100),
    ],
)
def test_progress_within_a_stage_maps_into_its_range(
    stage: str, within: float, percent: int
) -> None:
    assert DEFAULT_STAGES.percent(stage, within) == percent


@settings(max_examples=60)
@given(st.sampled_from(AURA), st.floats(-1e3, 1e3), st.floats(-1e3, 1e3))
def test_more_of_a_stage_is_never_less_of_the_job(
    line: tuple[str, str, int, int], one: float, other: float
) -> None:
    stage, _, low, high = line
    less = DEFAULT_STAGES.percent(stage, min(one, other))
    more = DEFAULT_STAGES.percent(stage, max(one, other))
    assert less is not None
    assert more is not None
    assert low <= less <= more <= high


def test_an_application_declares_its_own_stages() -> None:
    stages = StageMap.of({"Scan": ("reading", (0, 40)), "ocr": ("reading", None)})
    assert stages.percent("SCAN", 50) == 20
    assert stages.phase("Ocr").name == "reading"
    assert stages.percent("ocr", 50) is None
    assert stages.phase("render") == PROCESSING


def test_an_empty_stage_map_has_only_the_phase_processing() -> None:
    assert StageMap().phase("render") == PROCESSING


@pytest.mark.parametrize("span", [(-1, 10), (10, 5), (0, 101)])
def test_a_range_outside_0_to_100_or_backward_is_refused_by_its_stage(
    span: tuple[int, int],
) -> None:
    with pytest.raises(InvalidArgumentError, match="'scan'"):
        StageMap.of({"scan": ("reading", span)})


@pytest.mark.parametrize(
    ("given_", "kept"),
    [
        (-1, 0),
        (0, 0),
        (0.99, 0),
        (50.5, 50),
        (99.999, 99),
        (100, 100),
        (101, 100),
        (float("inf"), 100),
        (float("-inf"), 0),
    ],
)
def test_a_percent_is_a_whole_number_from_0_to_100(given_: float, kept: int) -> None:
    assert clamp(given_) == kept
    assert type(clamp(given_)) is int


@settings(max_examples=60)
@given(st.integers(0, 100), st.one_of(st.none(), st.floats(allow_nan=False)))
def test_a_percent_never_falls(current: int, reported: float | None) -> None:
    assert current <= advance(current, reported) <= COMPLETE


def test_a_report_of_nan_keeps_the_percent() -> None:
    # Progress is best effort and never fails a job, so it cannot be allowed to raise in a store.
    assert advance(40, float("nan")) == 40
    assert advance(40, None) == 40


def test_an_eta_uses_the_speed_of_this_attempt() -> None:
    assert eta(elapsed=30, start_percent=0, percent=25) == 90
    assert eta(elapsed=30, start_percent=50, percent=75) == 30
    assert eta(elapsed=30, start_percent=0, percent=100) == 0


@pytest.mark.parametrize(
    ("elapsed", "start_percent", "percent"), [(10, 20, 20), (10, 30, 20), (0, 0, 50), (-5, 0, 50)]
)
def test_without_progress_there_is_no_eta(elapsed: int, start_percent: int, percent: int) -> None:
    assert eta(elapsed, start_percent, percent) is None
