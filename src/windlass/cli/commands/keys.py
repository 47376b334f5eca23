"""`windlass keys`: who may use the HTTP API, and for what."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape

from windlass.cli import terminal
from windlass.cli.store_options import AppPath, AsJson, Url, opened, run
from windlass.core.clock import SystemClock
from windlass.core.duration import seconds
from windlass.server.auth.api_keys import Key, Keys, Role
from windlass.server.auth.audit import Audit
from windlass.server.auth.task_tokens import NAME, Signing
from windlass.store import Served

commands = typer.Typer(
    no_args_is_help=True, help="Make, list and revoke the API keys of the server."
)
KeyId = Annotated[str, typer.Argument(help="The key's id, as `windlass keys list` shows it.")]
BY = "command line"


@commands.command()
def create(
    name: Annotated[str, typer.Argument(help="Who holds it, for lists and the audit.")],
    *,
    role: Annotated[
        list[Role], typer.Option("--role", "-r", help="What it may do; may be repeated.")
    ],
    owner: Annotated[
        str | None, typer.Option(help="It sees and makes only jobs of this owner.")
    ] = None,
    team: Annotated[
        str | None, typer.Option(help="It sees and makes only jobs of this team.")
    ] = None,
    expires_in: Annotated[
        str | None, typer.Option(help='It is valid for so long: "90d". Else for good.')
    ] = None,
    url: Url = None,
    app: AppPath = None,
    as_json: AsJson = False,
) -> None:
    """Make a key, and show it: this once. Only a hash of it is kept.

    Roles: viewer looks; producer also enqueues, cancels and retries; worker
    runs jobs; operator does all that concerns jobs, queues and schedules;
    admin everything.
    """
    length = None if expires_in is None else seconds(expires_in, "expires-in")

    async def work() -> tuple[Key, str]:
        async with opened(url, app, make=True) as client:
            await Audit(client.store).note(None, BY, "create key", name)
            return await Keys(client.store).create(
                name, role, owner=owner, team=team, expires_in=length
            )

    key, token = run(work())
    if as_json:
        terminal.print_json(_facts(key) | {"key": token})
    else:
        terminal.say(f"key {key.id} of {name}; it is shown only now:")
        terminal.out().print(token, soft_wrap=True)


@commands.command("list")
def list_keys(url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """List the keys, also those that were revoked."""

    async def work() -> list[Key]:
        async with opened(url, app) as client:
            return await Keys(client.store).list()

    keys = run(work())
    if as_json:
        terminal.print_json([_facts(key) for key in keys])
        return
    if not keys:
        terminal.say("there are no keys")
        return
    table = terminal.table("id", "name", "roles", "for", "state")
    for key in keys:
        owns = " ".join(
            f"{what} {value}" for what, value in (("owner", key.owner), ("team", key.team)) if value
        )
        cells = [key.id, key.name, " ".join(sorted(key.roles)), owns or "all", _state(key)]
        table.add_row(*(escape(cell) for cell in cells))
    terminal.out().print(table)


@commands.command()
def revoke(key: KeyId, url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Let its holder in no more. Servers follow within 5 s, and end the streams that it opened."""

    async def work() -> Key:
        async with opened(url, app) as client:
            await Audit(client.store).note(None, BY, "revoke key", key)
            return await Keys(client.store).revoke(key)

    revoked = run(work())
    if as_json:
        terminal.print_json(_facts(revoked))
    else:
        terminal.out().print(f"{revoked.id} {escape(revoked.name)} revoked", soft_wrap=True)


@commands.command()
def rotate(url: Url = None, app: AppPath = None, as_json: AsJson = False) -> None:
    """Sign task tokens with a new key. Tokens of the key before it stay good; older ones end.

    Servers do it by themselves once a month. Done twice, it ends all task
    tokens that were given out: their workers lose their attempts.
    """

    async def work() -> None:
        async with opened(url, app) as client:
            if isinstance(client.store, Served):
                await client.store.rotate()  # which the server notes down
            else:
                await Audit(client.store).note(None, BY, "rotate signing key", NAME)
                await Signing(lambda: client.store).rotate()

    run(work())
    if as_json:
        terminal.print_json({"rotated": NAME})
    else:
        terminal.say("task tokens are signed with a new key; servers follow within 30 s")


def _state(key: Key) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "valid" if key.valid(SystemClock().now()) else "expired"


def _facts(key: Key) -> dict[str, Any]:
    """All of it but the hash."""
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
