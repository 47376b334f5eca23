"""The contract of `windlass.store` as a test suite, for every store and for authors of new ones.

Needs `pip install 'windlass[testing]'`, and pytest-asyncio in auto mode. The test file of a store
says how to open it, and takes the rest from here:

    import pytest

    from windlass.testing.conformance.suite import *  # noqa: F403


    @pytest.fixture
    def open_store(clock, tmp_path):
        async def open_it():
            return MyStore(tmp_path / "jobs", clock=clock)

        return open_it

The fixtures:

- `open_store` is yours: `await open_store()` opens the data of this test, ready for use and with
  the test's `clock`. Called again, it opens the same data again, as a second process would.
- `clock` is a `VirtualClock`: the store's only source of time. It moves when a test says so.
- `store` is one opened store, closed when the test is over.

There is one file for each promise, and one class in it whose tests tell it as short stories: they
read as a tour. They look at a store from outside only, and where stores may differ they ask
`store.capabilities`.

`windlass.testing.conformance.model` goes on where stories end: it makes up histories, and compares
any store with the memory store step by step.
"""

from __future__ import annotations

from pkgutil import iter_modules

import pytest

# So that a failed assertion shows its values here as it does in a test file.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in iter_modules(__path__)))
