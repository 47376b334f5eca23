"""Claims and extension results: validation and properties."""

from __future__ import annotations

import pytest
from tests.core.factories import NOW, TOKEN

from windlass.core.errors import InvalidArgumentError
from windlass.core.job.lease import DEFAULT_LEASE, Claim, ExtendResult


def test_a_lease_lasts_30_seconds_by_default() -> None:
    assert DEFAULT_LEASE == 30


def test_a_claim_may_have_any_limit_from_zero() -> None:
    claim = Claim(token=TOKEN, worker="w", queues=[("a", 0), ("b", 10_000)], lease=0.001)
    assert claim.lease == 0.001


@pytest.mark.parametrize("lease", [0.0, -1.0, float("nan"), float("inf"), 1e30])
def test_a_lease_that_is_no_length_of_time_is_refused(lease: float) -> None:
    with pytest.raises(InvalidArgumentError, match="lease"):
        Claim(token=TOKEN, worker="w", queues=[("a", 1)], lease=lease)


def test_a_negative_limit_is_refused_with_its_queue() -> None:
    with pytest.raises(InvalidArgumentError, match="'mail' is -1"):
        Claim(token=TOKEN, worker="w", queues=[("a", 1), ("mail", -1)])


def test_an_extension_without_an_instant_is_stale() -> None:
    assert ExtendResult(lease_until=None).stale
    assert not ExtendResult(lease_until=NOW, cancel_requested=True).stale
