"""`windlass keys`: manages API keys of the server."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from windlass.cli import terminal
from windlass.cli.common_options import AppPath, AsJson, Url
from windlass.cli.event_loop import run
from windlass.cli.store_connection import open_client, store_url
from windlass.core.duration import to_seconds
from windlass.server.auth.api_keys import ApiKeys, Role
from windlass.server.auth.audit import AuditLog
from windlass.server.auth.token_signer import SIGNING_RECORD, TokenSigner
from windlass.server.schemas.api_keys import KeyList, KeyView, NewKeyView
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

    async def work() -> tuple[NewKeyView, str]:
        async with open_client(url, app, create=True) as client:
            await AuditLog(client.store).append(None, ACTOR, "create key", name)
            key, token = await ApiKeys(client.store).create(
                name, role, owner=owner, team=team, expires_in=length
            )
            view = NewKeyView.of(key, await client.store.ping(), key=token)
        return view, public_url(await store_url(url, app))

    new, where = run(work())
    if as_json:
        terminal.print_json(new.to_json())
    else:
        terminal.info(f"API key {new.id} of {name} in {where} (shown only once):")
        terminal.out().print(new.key, soft_wrap=True)


@commands.command("list")
def list_keys(url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """List the keys, including revoked ones."""

    async def work() -> KeyList:
        async with open_client(url, app) as client:
            return KeyList.of(await ApiKeys(client.store).list(), await client.store.ping())

    found = run(work())
    keys = found.keys
    if as_json:
        terminal.print_json(found.to_json())
        return
    if not keys:
        terminal.info("No API keys")
        return
    table = terminal.table("id", "name", "roles", "scope", "state")
    for key in keys:
        scope = " ".join(
            f"{name} {value}" for name, value in (("owner", key.owner), ("team", key.team)) if value
        )
        cells = [key.id, key.name, " ".join(key.roles), scope or "all", key.state]
        table.add_row(*(escape(cell) for cell in cells))
    terminal.out().print(table)


@commands.command()
def revoke(key: KeyId, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Revoke a key. Servers reject it within 5 s and close its streams."""

    async def work() -> KeyView:
        async with open_client(url, app) as client:
            await AuditLog(client.store).append(None, ACTOR, "revoke key", key)
            found = await ApiKeys(client.store).revoke(key)
            return KeyView.of(found, await client.store.ping())

    revoked = run(work())
    if as_json:
        terminal.print_json(revoked.to_json())
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
