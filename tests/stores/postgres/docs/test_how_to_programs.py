"""The code blocks of the how-to pages that need a PostgreSQL server: one program per page."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest
from tests.stores.postgres.server import migrate

PAGES = sorted((Path(__file__).parents[4] / "docs/how-to").glob("*.md"))
BLOCK = re.compile(r"```python postgresql\n(.*?)```", re.DOTALL)
CODE = {page.stem: code for page in PAGES if (code := "\n".join(BLOCK.findall(page.read_text())))}


@pytest.mark.slow
@pytest.mark.parametrize("page", CODE)
async def test_the_code_of_a_page_runs(page: str, new_database: str, tmp_path: Path) -> None:
    await migrate(new_database)
    program = tmp_path / "page.py"
    program.write_text(CODE[page])
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        str(program),
        cwd=tmp_path,
        env=os.environ | {"WINDLASS_URL": new_database},
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await running.communicate()
    assert running.returncode == 0, errors.decode()


def test_there_is_a_page_to_run() -> None:
    assert "transactions" in CODE
