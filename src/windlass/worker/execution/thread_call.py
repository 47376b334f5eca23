"""Call of a sync task on a thread of the worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def call_on_thread(call: Callable[[], Any]) -> Any:
    """Call on a thread; convert exceptions that would break the future or end the event loop."""
    try:
        return call()
    except StopIteration as error:  # a future cannot hold it and would never be done
        raise RuntimeError("the task raised StopIteration") from error
    except (KeyboardInterrupt, GeneratorExit) as error:  # these would end the worker's loop
        raise RuntimeError(f"the task raised {type(error).__name__}") from error
