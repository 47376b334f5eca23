"""The browser of the tests, and the folder of the pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from windlass.server import javascript_client

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
PAGES = Path(javascript_client.__file__).parent / "pages"
FLAGS = (
    "--no-sandbox",  # Chromium's sandbox does not run as root, as in containers
    "--disable-gpu",  # else machines without a GPU emulate one
    "--process-per-site",  # tabs of a server share a process
)


@pytest.fixture(scope="module")  # a longer scope would keep its event loop running in other tests
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="there is no playwright: pip install playwright"
    )
    if CHROMIUM is None:
        pytest.skip("there is no Chromium; on Debian: apt-get install chromium")
    with playwright.sync_playwright() as play:
        found = play.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        found.new_context()  # shared by all tests
        yield found
        found.close()
