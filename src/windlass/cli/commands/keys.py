"""`windlass keys`: manages API keys of the server."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape

from windlass.cli import terminal
from windlass.cli.common_options import AppPath, AsJson, Url
from windlass.cli.event_loop import run
from windlass.cli.store_connection import open_client, store_url
from windlass.core.clock import SystemClock
from windlass.core.duration import to_seconds
from windlass.server.auth.api_keys import ApiKey, ApiKeys, Role
from windlass.server.auth.audit import AuditLog
from windlass.server.auth.token_signer import SIGNING_RECORD, TokenSigner
from windlass.store import ServerStore
from windlass.stores.urls import public_url

commands = typer.Typer(no_args_is_help=True, help="Create, list and revoke API keys of the server.")
KeyId = Annotated[str, typer.Argument(help="Key id, as in `windlass keys list`.")]
ACTOR = "command line"


@commands.command()
def create(
    name: Annotated[str, typer.Argument(help="Name of the holder, for lists and the audit log.")],
    *,
    role: Annotated[list[Role], typer.Option("--role", "-r", help="Role; may be repeated.")],
    owner: Annotated[str | None, typer.Option(help="Restrict it to jobs of this owner.")] = None,
    team: Annotated[str | None, typer.Option(help="Restrict it to jobs of this team.")] = None,
    expires_in: Annotated[str | None, typer.Option(help='Expiry: "90d" (default: never).')] = None,
    url: Url = None,
    app: AppPath = None,
    as_json: AsJson = False,
) -> None:
    """Create a key and print it once. Only a hash of it is stored.

    Roles: viewer reads; producer also enqueues, cancels and retries; worker
    runs jobs; operator manages jobs, queues and schedules; admin can do
    everything.
    """
    length = None if expires_in is None else to_seconds(expires_in, "expires-in")

    async def work() -> tuple[ApiKey, str, str]:
        async with open_client(url, app, create=True) as client:
            await AuditLog(client.store).append(None, ACTOR, "create key", name)
            key, token = await ApiKeys(client.store).create(
                name, role, owner=owner, team=team, expires_in=length
            )
        return key, token, public_url(await store_url(url, app))

    key, token, where = run(work())
    if as_json:
        terminal.print_json(_fields(key) | {"key": token})
    else:
        terminal.info(f"API key {key.id} of {name} in {where} (shown only once):")
        terminal.out().print(token, soft_wrap=True)


@commands.command("list")
def list_keys(url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """List the keys, including revoked ones."""

    async def work() -> list[ApiKey]:
        async with open_client(url, app) as client:
            return await ApiKeys(client.store).list()

    keys = run(work())
    if as_json:
        terminal.print_json([_fields(key) for key in keys])
        return
    if not keys:
        terminal.info("No API keys")
        return
    table = terminal.table("id", "name", "roles", "scope", "state")
    for key in keys:
        scope = " ".join(
            f"{name} {value}" for name, value in (("owner", key.owner), ("team", key.team)) if value
        )
        cells = [key.id, key.name, " ".join(sorted(key.roles)), scope or "all", _state(key)]
        table.add_row(*(escape(cell) for cell in cells))
    terminal.out().print(table)


@commands.command()
def revoke(key: KeyId, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Revoke a key. Servers reject it within 5 s and close its streams."""

    async def work() -> ApiKey:
        async with open_client(url, app) as client:
            await AuditLog(client.store).append(None, ACTOR, "revoke key", key)
            return await ApiKeys(client.store).revoke(key)

    revoked = run(work())
    if as_json:
        terminal.print_json(_fields(revoked))
    else:
        terminal.out().print(f"{revoked.id} {escape(revoked.name)} revoked", soft_wrap=True)


@commands.command()
def rotate(url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Rotate the signing key of task tokens. Tokens of the previous key stay valid.

    Servers rotate it once a month. Two rotations invalidate all issued task
    tokens: their workers lose their attempts.
    """

    async def work() -> None:
        async with open_client(url, app) as client:
            if isinstance(client.store, ServerStore):
                await client.store.rotate()  # audited by the server
            else:
                await AuditLog(client.store).append(
                    None, ACTOR, "rotate signing key", SIGNING_RECORD
                )
                await TokenSigner(lambda: client.store).rotate()

    run(work())
    if as_json:
        terminal.print_json({"rotated": SIGNING_RECORD})
    else:
        terminal.info("Signing key rotated; servers use it within 30 s")


def _state(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "valid" if key.valid(SystemClock().now()) else "expired"


def _fields(key: ApiKey) -> dict[str, Any]:
    """Format a key without its hash."""
    return {
        "id": key.id,
        "name": key.name,
        "roles": sorted(key.roles),
        "owner": key.owner,
        "team": key.team,
        "state": _state(key),
        "createdAt": terminal.iso(key.created_at),
        "expiresAt": terminal.iso(key.expires_at),
        "revokedAt": terminal.iso(key.revoked_at),
    }
