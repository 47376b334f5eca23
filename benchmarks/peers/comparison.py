"""Comparison of Windlass with its peers: every system in every round, in alternation."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.peers import load
from benchmarks.peers.machine import describe_machine
from benchmarks.peers.plan import Plan, ProgressCallback
from benchmarks.peers.queue_adapter import QueueAdapter
from benchmarks.peers.results import ComparisonResult, SystemResult
from benchmarks.peers.round import RoundSetup, run_round
from benchmarks.peers.round_result import RoundResult
from benchmarks.peers.servers import DatabaseServer
from benchmarks.peers.targets import Target

_STEPS = {
    "throughput": "runs {jobs:,} jobs",
    "pair": "runs {jobs:,} jobs with two workers",
    "idle_worker": "waits for jobs",
}


def compare(
    plan: Plan,
    directory: Path,
    progress: ProgressCallback,
    modules: Mapping[str, str],
    *,
    servers: Mapping[str, DatabaseServer] | None = None,
    targets: Sequence[Target] = (),
) -> ComparisonResult:
    """Compare these systems (names and adapter modules) in an empty directory.

    `progress` gets the next step, the number of steps done and their total. `servers` are the
    running servers by kind; systems that need another server are skipped.
    """
    servers = servers or {}
    result = ComparisonResult(plan, describe_machine(), targets)
    for name, module in modules.items():
        adapter = load(module)
        reason = adapter.missing()
        if reason is None and adapter.server is not None and adapter.server not in servers:
            reason = f"no {adapter.server} server"
        if reason is None:
            result.systems[name] = _empty_result(adapter, servers)
        else:
            result.skipped[name] = reason
    steps = list(_steps(plan, list(result.systems)))
    for done, (number, kind, name) in enumerate(steps):
        system_plan = plan.with_job_share(load(modules[name]).job_share)
        step = _STEPS[kind].format(jobs=system_plan.total)
        progress(f"round {number + 1} of {plan.rounds}: {name} {step}", done, len(steps))
        path = directory / f"{done}-{name}"
        result.systems[name].rounds.append(_round(kind, modules[name], system_plan, path, servers))
        shutil.rmtree(path)
    progress("done", len(steps), len(steps))
    return result


def _empty_result(
    adapter: type[QueueAdapter], servers: Mapping[str, DatabaseServer]
) -> SystemResult:
    result = SystemResult(adapter.version(), adapter.durability, adapter.bulk, adapter.server)
    if adapter.server is not None:
        server = servers[adapter.server]
        result.durability, result.synced = (
            f"{adapter.durability}; {server.durability}",
            server.synced,
        )
    return result


def _round(
    kind: str, module: str, plan: Plan, path: Path, servers: Mapping[str, DatabaseServer]
) -> RoundResult:
    server_kind = load(module).server
    if server_kind is None:
        return run_round(kind, RoundSetup(module, plan, path, None, ""))
    server = servers[server_kind]
    with server.new_database() as url:
        server.quiesce(url)
        return run_round(kind, RoundSetup(module, plan, path, server, url))


def _steps(plan: Plan, names: list[str]) -> list[tuple[int, str, str]]:
    """Return the steps. Systems alternate, in reverse order every other round."""
    kinds = {
        "throughput": plan.measures_throughput,
        "pair": plan.measures_pair,
        "idle_worker": plan.measures_idle_worker,
    }
    return [
        (number, kind, name)
        for kind in kinds
        if kinds[kind]
        for number in range(plan.rounds)
        for name in (reversed(names) if number % 2 else names)
    ]
