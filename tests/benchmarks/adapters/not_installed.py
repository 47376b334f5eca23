"""An adapter whose library is not installed."""

from __future__ import annotations

from tests.benchmarks.adapters.file_queue import FileQueueAdapter


class NotInstalledAdapter(FileQueueAdapter):
    library = "no_such_library"
    package = "no-such-package"


adapter = NotInstalledAdapter
