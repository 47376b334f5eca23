"""Conformance suite: the contract of `windlass.store` as tests, for every store.

Needs `pip install 'windlass[testing]'`, and pytest-asyncio in auto mode. The test file of a store
defines how to open it and imports all tests:

    import pytest

    from windlass.testing.conformance.suite import *  # noqa: F403


    @pytest.fixture
    def open_store(clock, tmp_path):
        async def open_it():
            return MyStore(tmp_path / "jobs", clock=clock)

        return open_it

The fixtures:

- You define `open_store`: `await open_store()` opens the data of this test, ready for use and with
  the test's `clock`. A second call opens the same data again, as a second process would.
- `clock` is a `VirtualClock`, the store's only source of time. It moves only when a test moves it.
- `store` is one open store, closed after the test.

Each file tests one promise, in one class. The folders group the promises: jobs, attempts, flows,
limits, reads. The tests use only the public Store interface. Where
stores may differ, the tests read `store.capabilities`.

`windlass.testing.conformance.model` generates histories at random and compares any store with the
memory store step by step.
"""

from __future__ import annotations

from pkgutil import iter_modules

import pytest

# Failed assertions show their values, as in a test file.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in iter_modules(__path__)))
