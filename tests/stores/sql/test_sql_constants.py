"""Numbers and names in the SQL files are those of the core: a change of one must not miss another.

`tests/stores/postgres/transactions/test_sql_constants.py` checks what the SQL functions do with
them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import windlass.stores
from windlass.core import size_limits
from windlass.core.admission import gates, limit, permits
from windlass.core.clock import MAX_INSTANT, MINUTE, SECOND
from windlass.core.event import ATTEMPT
from windlass.core.job import state as states
from windlass.core.job.dependency import OnParent
from windlass.core.job.new_job import DEFAULT_POLICY, DEFAULT_QUEUE, NewJob
from windlass.core.job.retry_policy import MAX_DELAY
from windlass.core.job.state import State, Trigger
from windlass.stores.borrowed_connection import sqlstate_error
from windlass.stores.postgres import notify

STORES = Path(windlass.stores.__file__).parent
FILES = sorted(STORES.rglob("*.sql"))
TEXTS = {path.relative_to(STORES).as_posix(): path.read_text() for path in FILES}
BACKOFFS = {"exponential", "fixed", "delays"}
PERCENT = {100: "percent of a job that succeeded"}
SECONDS = {SECOND: "microseconds of a second"}
MINUTES = {MINUTE: "microseconds of a minute"}
LONGEST = {MAX_DELAY: "seconds of the longest delay, lease and period"}
PAGES = {8160: "bytes of a page"}
VACUUMS = {1000: "dead rows before a vacuum"}
NUMBERS: dict[str, Mapping[Any, str]] = {  # of each file, all that are not small
    "postgres/admin/database_checkup.sql": SECONDS,
    "postgres/migrations/0001_jobs.sql": SECONDS | VACUUMS | PAGES,
    "postgres/migrations/0002_transactions.sql": SECONDS | MINUTES | LONGEST | PERCENT | {
        MAX_INSTANT: "the last instant", 1970: "its first year", 9999: "its last year",
        size_limits.MAX_BLOB: "bytes of a payload",
        size_limits.MAX_HEADERS: "characters of headers",
        size_limits.MAX_KEY: "characters of a key, an owner, a tag",
        size_limits.MAX_NAME: "characters of a task and a queue",
        size_limits.MAX_PARENTS: "parents of a job",
        size_limits.MAX_PRIORITY: "the highest priority",
        size_limits.MAX_PRIORITY + 1: "beyond the lowest priority",
        notify.MAX_NAMED_JOBS: "job ids in one notification",
        1000: "milliseconds of a second", 22023: "SQLSTATE of an invalid item",
        32000: "shards of rollups",
    },
    "postgres/migrations/0003_uncompressed_lists.sql": PAGES,
    "postgres/migrations/0004_limits.sql": SECONDS | MINUTES | LONGEST | {
        size_limits.MAX_KEY: "characters of the name of a limit",
        limit.MAX_LIMIT: "the highest limit",
        gates.BATCH: "jobs that a gate admits in one write",
        permits.UNLIMITED: "the capacity of a gate without a limit",
    },
    "postgres/queries.sql": MINUTES | PERCENT | {
        250: "milliseconds of the lock timeout", 256: "values of a byte",
        1_000_000: "dependents of a job, so that no plan expects few",
    },
    "sqlite/queries.sql": SECONDS | PERCENT,
}  # fmt: skip
SMALLEST = 100  # smaller numbers are checked by behavior
NUMBER = re.compile(r"(?<![\w.$?:,])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
STATE = r"\b(?:state|outcome)\b(?: |\n)*"
STATE_LISTS = {
    states.ACTIVE, states.WAITING, states.FINAL, frozenset({State.CREATED, State.QUEUED}),
    frozenset({State.FAILED, State.CANCELED}), frozenset({State.CREATED, State.RETRYING}),
}  # fmt: skip


def statements(name: str) -> str:
    """Return the text of a file without comments."""
    return re.sub(r"--.*", "", TEXTS[name])


def numbers(name: str) -> set[float]:
    texts = [text.replace(",", "") for text in NUMBER.findall(statements(name))]
    found = (float(text) if "." in text else int(text) for text in texts)
    return {number for number in found if number >= SMALLEST}


def newest(pattern: str) -> str:
    """Return the match in the newest migration: a later one may replace a function."""
    found = [
        text
        for name in TEXTS
        if name.startswith("postgres/migrations")
        for text in re.findall(pattern, statements(name))
    ]
    return str(found[-1])


def literals(pattern: str) -> Iterator[tuple[str, str]]:
    """Yield the quoted names in all matches, with their file."""
    for name in TEXTS:
        for match in re.finditer(pattern, statements(name)):
            yield from ((name, literal) for literal in re.findall(r"'([a-z-]+)'", match[0]))


def test_both_stores_are_checked() -> None:
    assert {name.partition("/")[0] for name in TEXTS} == {"sqlite", "postgres"}


@pytest.mark.parametrize("name", TEXTS)
def test_every_number_is_that_of_the_core(name: str) -> None:
    assert numbers(name) == NUMBERS.get(name, {}).keys()


def test_the_smallest_period_of_a_limit() -> None:
    assert float(newest(r"period::numeric NOT BETWEEN ([\d.]+) AND")) == limit.MIN_PERIOD


@pytest.mark.parametrize(
    ("pattern", "known", "least"),
    [
        (STATE + r"(?:=|<>) *'[a-z]+'", State, 40),
        (STATE + r"(?:NOT )?IN \([^)]*\)", State, 30),
        (r"\btrigger = (?:CASE [^,]*?)?'[a-z-]+'(?: ELSE '[a-z-]+')?", Trigger, 10),
        (r"'queued', 'enqueue'|END, 'enqueue'|\?, 'enqueue'", {State.QUEUED, Trigger.ENQUEUE}, 3),
        (r"\bon_parent\b[^,;)]*?(?:=|<>|DEFAULT) *'[a-z]+'", OnParent, 4),
        (r"on_parent NOT IN \([^)]*\)", OnParent, 3),
        (r"\btype(?: =| <>) *'[a-z]+'", {ATTEMPT}, 6),
    ],
)
def test_names_are_those_of_the_core(pattern: str, known: Any, least: int) -> None:
    found = list(literals(pattern))
    assert {(name, literal) for name, literal in found if literal not in set(known)} == set()
    assert len(found) >= least, "the pattern no longer finds the names in the statements"


def test_lists_of_states_are_those_of_the_core() -> None:
    for name in TEXTS:
        for match in re.finditer(STATE + r"(?:NOT )?IN \(('[^)]*)\)", statements(name)):
            assert frozenset(re.findall(r"'(\w+)'", match[1])) in STATE_LISTS, (name, match[0])


def test_gates_are_named_as_in_the_core() -> None:
    assert chr(31) == gates._SEPARATOR
    for name in TEXTS:
        codes = set(re.findall(r"\b(?:chr|char)\((\d+)\)", statements(name)))
        assert codes <= {"31", "32"}, name  # the separator, and the character after it
        prefixes = set(re.findall(r"'(\w+:)'", statements(name)))
        assert prefixes <= {limit.QUEUE, limit.TASK, limit.KEY}, name
        kinds = set(re.findall(r"\bkind = '(\w+)'", statements(name)))
        assert kinds <= {limit.LIMIT, *states.FINAL, "log", *BACKOFFS}, name


def test_items_of_sql_have_the_fields_of_a_request() -> None:
    kinds = newest(r"kinds CONSTANT jsonb := '(\{[^']*\})'")
    accepted = set(re.findall(r'"(\w+)":', kinds))
    unsupported = {"retry_of", "resume"}  # retries are no items: they need the other job
    assert accepted - {"payload_base64"} == {item.name for item in fields(NewJob)} - unsupported
    assert newest(r"job\.queue := coalesce\(item ->> 'queue', '(\w+)'\)") == DEFAULT_QUEUE


def test_the_default_policy_is_that_of_the_core() -> None:
    defaults = newest(r"defaults CONSTANT jsonb := '(\{[^']*\})'")
    assert json.loads(defaults) == json.loads(DEFAULT_POLICY.encode())


def test_every_sqlstate_is_translated() -> None:
    raised = {code for text in TEXTS.values() for code in re.findall(r"ERRCODE = '(WL\d+)'", text)}
    internal = {"WL004"}  # caught where it is raised
    assert raised >= internal
    assert [code for code in raised - internal if sqlstate_error(code, "") is None] == []
