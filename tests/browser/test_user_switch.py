"""A second user in the same browser sees nothing of the first one, in any tab."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.browser.page_helpers import expect, open_page, run_in_thread, sign_in
from tests.server.conftest import make_app, run_server

from windlass.server.auth.api_keys import Role
from windlass.server.config import AuthMode, ServerConfig


@pytest.mark.slow
def test_a_sign_in_in_another_tab_clears_this_tab(browser: Any, tmp_path: Path) -> None:
    with run_server(tmp_path, ServerConfig(auth=AuthMode.KEYS), app=make_app(tmp_path)) as served:
        admin = run_in_thread(lambda: served.key(Role.ADMIN))
        own = run_in_thread(lambda: served.key(Role.PRODUCER, owner="ann"))
        with open_page(browser, served.url, "keys", key=admin) as dashboard:
            page = dashboard.page
            expect(page.get_by_role("row")).to_have_count(3)
            dashboard.button("Revoke").first.click()
            expect(page.get_by_role("dialog")).to_be_visible()
            sign_in(dashboard, own)
            dashboard.switch_to_tab()  # polls the session, as every ten seconds
            expect(page.get_by_role("link", name="Audit")).to_have_count(0)
            expect(page.get_by_role("dialog")).to_have_count(0)
            expect(dashboard.heading("Access denied")).to_be_visible()
            expect(page.get_by_role("row")).to_have_count(0)  # only admins see keys
