"""A bug that a crash of the PostgreSQL server shows; see `test_postgres`."""

from __future__ import annotations

from windlass.stores.postgres import connection


def commits_do_not_wait_for_the_disk() -> None:
    connection.SETTINGS["synchronous_commit"] = "off"
