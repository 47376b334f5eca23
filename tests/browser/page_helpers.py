"""Helpers to open dashboard pages and check the browser console."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

expect = pytest.importorskip(
    "playwright.sync_api", reason="there is no playwright: pip install playwright"
).expect
expect.set_options(timeout=40_000)  # milliseconds; a slow machine fails no test
T = TypeVar("T")
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
CONNECTION_ERROR = "net::ERR_"  # console message for an unreachable server

# Records policy violations and layout shifts.
_RECORDER = """
window.seen = { refused: [], shifts: [] };
document.addEventListener("securitypolicyviolation", (event) =>
  window.seen.refused.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`));
new PerformanceObserver((list) => {
  for (const { value, hadRecentInput, sources } of list.getEntries()) {
    const nodes = sources.map(({ node }) => node?.outerHTML?.slice(0, 200) ?? String(node));
    window.seen.shifts.push({ value, input: hadRecentInput, nodes });
  }
}).observe({ type: "layout-shift", buffered: true });
"""

_NAVIGATE = """(address) => {
  history.pushState(null, "", address);
  dispatchEvent(new PopStateEvent("popstate"));
}"""


_REFRESH = """async (path) => {
  const app = document.querySelector("script[src$='/app.js']").src;
  const { live } = await import(new URL("live/live.js", app));
  live.refresh(path);
}"""


@dataclass
class DashboardPage:
    page: Any
    url: str
    console: list[str] = field(default_factory=list)

    def go(self, path: str) -> None:
        self.page.goto(f"{self.url}/{path}")

    def navigate(self, path: str) -> None:
        """Navigate without a page load, as a link or the back button does."""
        self.page.evaluate(_NAVIGATE, f"{self.url}/{path}")

    def switch_to_tab(self) -> None:
        """Simulate a switch back to this tab."""
        self.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")

    def refresh(self, path: str) -> None:
        """Poll this path now, as after an action in another tab."""
        self.page.evaluate(_REFRESH, path)

    def button(self, name: str) -> Any:
        return self.page.get_by_role("button", name=name)

    def heading(self, name: str) -> Any:
        return self.page.get_by_role("heading", name=name)

    @property
    def shifts(self) -> list[dict[str, Any]]:
        """Layout shifts, with and without recent user input."""
        found: list[dict[str, Any]] = self.page.evaluate("window.seen.shifts")
        return found

    @property
    def layout_shift(self) -> float:
        """Sum of layout shifts without user input."""
        return sum(float(shift["value"]) for shift in self.shifts if not shift["input"])

    @property
    def scrolls_horizontally(self) -> bool:
        """Whether the page scrolls horizontally."""
        root = "document.documentElement"
        return bool(self.page.evaluate(f"{root}.scrollWidth > {root}.clientWidth"))

    def ignore_console(self, text: str) -> None:
        """Drop expected messages of the browser, such as an error status."""
        self.console = [entry for entry in self.console if text not in entry]

    def check(self, expected: Sequence[str] = ()) -> None:
        """Assert that there are no policy violations and no unexpected console messages."""
        assert self.page.evaluate("window.seen.refused") == []
        known = ("verbose:", *expected)
        assert [entry for entry in self.console if not any(part in entry for part in known)] == []


def run_in_thread(call: Callable[[], T]) -> T:
    """Run a blocking call in another thread: the browser's event loop runs in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


@contextmanager
def open_page(
    browser: Any,
    url: str,
    path: str = "",
    *,
    key: str | None = None,
    own_profile: bool = False,
    expected: Sequence[str] = (),
    **how: Any,
) -> Iterator[DashboardPage]:
    """Open a dashboard page; at the end, check for unexpected console messages.

    Tests share one browser profile, which caches the scripts of a server. A test with `key` (signed
    in) or `own_profile` has its own profile. The last tab of the shared profile stays open until
    the next one has loaded, so that the shared worker keeps running.
    """
    media = {name: how.pop(name) for name in ("color_scheme", "reduced_motion") if name in how}
    viewport = how.pop("viewport", DESKTOP)
    own = own_profile or key is not None or bool(how)
    context = browser.new_context(**how) if own else browser.contexts[0]
    before = list(context.pages)
    dashboard = DashboardPage(context.new_page(), url)
    dashboard.page.set_viewport_size(viewport)
    dashboard.page.emulate_media(**media)
    dashboard.page.add_init_script(_RECORDER)
    dashboard.page.set_default_timeout(40_000)
    dashboard.page.on(
        "console", lambda entry: dashboard.console.append(f"{entry.type}: {entry.text}")
    )
    dashboard.page.on("pageerror", lambda error: dashboard.console.append(f"uncaught: {error}"))
    try:
        if key is not None:
            sign_in(dashboard, key)
        dashboard.go(path)
        for page in before:
            page.close()
        yield dashboard
        dashboard.check(expected)
    finally:
        if own:
            context.close()


def sign_in(opened: DashboardPage, key: str) -> None:
    """Sign in as another tab of the same browser would."""
    origin = {"Origin": opened.url}
    request = opened.page.context.request
    response = request.post(f"{opened.url}/api/session", data={"key": key}, headers=origin)
    assert response.status == 201
