"""Looking at the dashboard as somebody does, and hearing what the browser says of it."""

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
expect.set_options(timeout=40_000)  # when to give up; how long it takes decides nothing
T = TypeVar("T")
DESK = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
LOST = "net::ERR_"  # what a browser says of a server that is away

# Reports of what the policy of the page refused, and of what has moved.
_WATCH = """
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

_MOVE = """(address) => {
  history.pushState(null, "", address);
  dispatchEvent(new PopStateEvent("popstate"));
}"""


_REFRESH = """async (path) => {
  const app = document.querySelector("script[src$='/app.js']").src;
  const { live } = await import(new URL("live/tab.js", app));
  live.refresh(path);
}"""


@dataclass
class Look:
    page: Any
    url: str
    said: list[str] = field(default_factory=list)

    def go(self, path: str) -> None:
        self.page.goto(f"{self.url}/{path}")

    def move(self, path: str) -> None:
        """The same without loading the page anew, as a link or the way back does."""
        self.page.evaluate(_MOVE, f"{self.url}/{path}")

    def looked_at_again(self) -> None:
        """Somebody comes back to the tab from another one."""
        self.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")

    def refresh(self, path: str) -> None:
        """The pages poll this address before its time, as after an action in another tab."""
        self.page.evaluate(_REFRESH, path)

    def button(self, name: str) -> Any:
        return self.page.get_by_role("button", name=name)

    def heading(self, name: str) -> Any:
        return self.page.get_by_role("heading", name=name)

    @property
    def shifts(self) -> list[dict[str, Any]]:
        """What moved, by how much, and whether somebody had just done something."""
        found: list[dict[str, Any]] = self.page.evaluate("window.seen.shifts")
        return found

    @property
    def shifted(self) -> float:
        """How much the layout moved without anybody's doing; 0 is nothing."""
        return sum(float(one["value"]) for one in self.shifts if not one["input"])

    @property
    def too_wide(self) -> bool:
        """Whether one would have to scroll sideways."""
        root = "document.documentElement"
        return bool(self.page.evaluate(f"{root}.scrollWidth > {root}.clientWidth"))

    def check(self, expected: Sequence[str] = ()) -> None:
        """Nothing was refused by the page's own policy, and the browser found nothing wrong."""
        assert self.page.evaluate("window.seen.refused") == []
        known = ("verbose:", *expected)
        assert [one for one in self.said if not any(part in one for part in known)] == []


def aside(call: Callable[[], T]) -> T:
    """What blocks, in a thread of its own: the one of a browser's tests has a loop that runs."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


@contextmanager
def looking(
    browser: Any,
    url: str,
    path: str = "",
    *,
    key: str | None = None,
    apart: bool = False,
    expected: Sequence[str] = (),
    **how: Any,
) -> Iterator[Look]:
    """A page of the dashboard; at the end it must have said nothing but what is expected.

    All tests share one profile of the browser, which knows the scripts of a server after their
    first page; with `key`, signed in, or if they ask for it, they are `apart` in one of their own.
    The last tab of the shared profile stays open until the next one has loaded, so that the shared
    worker of the pages goes on running.
    """
    media = {name: how.pop(name) for name in ("color_scheme", "reduced_motion") if name in how}
    viewport = how.pop("viewport", DESK)
    own = apart or key is not None or bool(how)
    context = browser.new_context(**how) if own else browser.contexts[0]
    before = list(context.pages)
    one = Look(context.new_page(), url)
    one.page.set_viewport_size(viewport)
    one.page.emulate_media(**media)
    one.page.add_init_script(_WATCH)
    one.page.set_default_timeout(40_000)
    one.page.on("console", lambda said: one.said.append(f"{said.type}: {said.text}"))
    one.page.on("pageerror", lambda error: one.said.append(f"uncaught: {error}"))
    try:
        if key is not None:
            sign_in(one, key)
        one.go(path)
        for page in before:
            page.close()
        yield one
        one.check(expected)
    finally:
        if own:
            context.close()


def sign_in(look: Look, key: str) -> None:
    """As another tab of the same browser would."""
    origin = {"Origin": look.url}
    asked = look.page.context.request
    assert asked.post(f"{look.url}/api/session", data={"key": key}, headers=origin).status == 201
