"""The pytest plugin: fixtures for tests of an application's jobs.

A module beside the package, so that pytest, which loads it whenever Windlass is installed, imports
nothing else of it: that happens when a test asks for one of these fixtures.

PYTEST_DONT_REWRITE: there is no assert in here.
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
    """The app under test: what `windlass_app = module:app` names, or your own such fixture."""
    from windlass.cli.app_loader import load_app  # noqa: PLC0415 - only when it is wanted
    from windlass.config import settings  # noqa: PLC0415
    from windlass.core.errors import ConfigurationError  # noqa: PLC0415

    path = pytestconfig.getini("windlass_app") or settings()["app"].value
    if not path:
        pytest.fail(
            "no app to test: write a fixture `windlass_app` that returns it, or "
            "`windlass_app = module:app` among pytest's settings",
            pytrace=False,
        )
    try:
        return load_app(path)
    except ConfigurationError as error:
        pytest.fail(f"the app to test: {error}", pytrace=False)


@pytest.fixture
def jobs(windlass_app: Windlass) -> Iterator[Twin]:
    """The app on a memory store for this test: see `windlass.testing.Twin`."""
    from windlass.testing import twin  # noqa: PLC0415 - only when it is wanted

    with twin(windlass_app) as made:
        yield made


@pytest.fixture
def inline_jobs(jobs: Twin) -> Iterator[Twin]:
    """The same, and every job runs to its end as it is enqueued."""
    with jobs.inline():
        yield jobs
