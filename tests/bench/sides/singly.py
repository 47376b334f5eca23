"""A side without a bulk enqueue."""

from __future__ import annotations

from tests.bench.sides.files import Files


class Singly(Files):
    bulk = None


side = Singly
