"""The pytest plugin: fixtures for tests of an application's jobs.

pytest loads this module whenever Windlass is installed. It is outside the package, so that pytest
imports the package only when a test uses one of these fixtures.

PYTEST_DONT_REWRITE: this module has no assert.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from windlass import Windlass
    from windlass.testing import Twin


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("windlass_app", "the Windlass app under test, as module:app", default="")


@pytest.fixture(scope="session")
def windlass_app(pytestconfig: pytest.Config) -> Windlass:
    """The app under test: set `windlass_app = module:app`, or override this fixture."""
    from windlass.cli.app_loader import load_app  # noqa: PLC0415 - only when it is used
    from windlass.core.errors import ConfigurationError  # noqa: PLC0415
    from windlass.settings import load_settings  # noqa: PLC0415

    path = pytestconfig.getini("windlass_app") or load_settings()["app"].value
    if not path:
        pytest.fail(
            "no app to test: define a fixture `windlass_app` that returns it, or set "
            "`windlass_app = module:app` in the pytest configuration",
            pytrace=False,
        )
    try:
        return load_app(path)
    except ConfigurationError as error:
        pytest.fail(f"the app to test: {error}", pytrace=False)


@pytest.fixture
def jobs(windlass_app: Windlass) -> Iterator[Twin]:
    """The app on a memory store for this test: see `windlass.testing.Twin`."""
    from windlass.testing import twin  # noqa: PLC0415 - only when it is used

    with twin(windlass_app) as new_twin:
        yield new_twin


@pytest.fixture
def inline_jobs(jobs: Twin) -> Iterator[Twin]:
    """Like `jobs`, but every enqueue runs its job to the end."""
    with jobs.inline():
        yield jobs
