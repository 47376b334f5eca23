"""A browser that somebody else uses after one: what one was shown is gone, in every tab."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.browser.page_helpers import aside, expect, looking, sign_in
from tests.server.conftest import make_app, serving

from windlass.server.auth.api_keys import Role
from windlass.server.config import Door, ServerConfig


@pytest.mark.slow
def test_a_tab_shows_nothing_more_to_the_next_who_signs_in_in_another_tab(
    browser: Any, tmp_path: Path
) -> None:
    with serving(tmp_path, ServerConfig(door=Door.KEYS), app=make_app(tmp_path)) as served:
        admin = aside(lambda: served.key(Role.ADMIN))
        own = aside(lambda: served.key(Role.PRODUCER, owner="ann"))
        with looking(browser, served.url, "keys", key=admin) as look:
            page = look.page
            expect(page.get_by_role("row")).to_have_count(3)
            look.button("Revoke").first.click()
            expect(page.get_by_role("dialog")).to_be_visible()
            sign_in(look, own)
            look.looked_at_again()  # a tab asks who it is for, then and every ten seconds
            expect(page.get_by_role("link", name="Audit")).to_have_count(0)
            expect(page.get_by_role("dialog")).to_have_count(0)
            expect(look.heading("This page is not for your key")).to_be_visible()
            expect(page.get_by_role("row")).to_have_count(0)  # the keys are for admins
