"""Model-based test: any store must return the same results as the memory store.

A Hypothesis state machine generates histories of calls: all kinds of jobs, workers that settle,
crash, forge leases or return late, sweepers that act on stale rows, a clock that jumps forward and
back. Both stores run the same calls with one clock. After each step the model compares all jobs
and checks the invariants.

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

from windlass.testing.conformance.model.limit_model import LimitModel
from windlass.testing.conformance.model.store_pair import MakeStore

__all__ = ["LimitModel", "MakeStore", "run_model"]


def run_model(
    make_store: MakeStore,
    *,
    steps: int = 50,
    examples: int = 100,
    seed: int | None = None,
    shrink: bool = True,
) -> None:
    """Run the model; raise the first difference with the shortest history that shows it."""

    class Model(LimitModel):
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
