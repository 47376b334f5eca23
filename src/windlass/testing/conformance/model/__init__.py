"""Any store against the memory store, step by step: the same calls, the same answers, no exception.

One Hypothesis state machine makes up a history: jobs of every kind, workers that settle, lie, die
and come back late, sweepers that act on what they saw long ago, a clock that jumps and slips. Both
stores live through it under one clock. After each step every job is looked at, and what must never
happen is looked for.

    def test_my_store_is_the_model(tmp_path):
        def make(clock):
            path = tmp_path / str(uuid4())
            return lambda: MyStore(path, clock=clock)

        run_model(make, steps=50, examples=100)
"""

from __future__ import annotations

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from windlass.testing.conformance.model.limit_machine import CrowdModel
from windlass.testing.conformance.model.store_pair import MakeStore

__all__ = ["CrowdModel", "MakeStore", "run_model"]


def run_model(
    make_store: MakeStore,
    *,
    steps: int = 50,
    examples: int = 100,
    seed: int | None = None,
    shrink: bool = True,
) -> None:
    """Raise what the model finds, with the shortest history that shows it."""

    class Model(CrowdModel):
        def __init__(self) -> None:
            super().__init__(make_store)

    if seed is not None:
        hypothesis.seed(seed)(Model)
    run_state_machine_as_test(
        Model,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
