"""A side whose library is not installed."""

from __future__ import annotations

from tests.bench.sides.files import Files


class Absent(Files):
    library = "no_such_library"
    package = "no-such-package"


side = Absent
