"""`terraflow hints token`: tokens that bind a producer or a reader to tenants and replicas."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from terraflow.cli.ending import end

DAY_S = 86_400


def command(
    key: Annotated[Path, typer.Option(help="The Ed25519 private key (PEM) that signs; see --new-key.")],
    name: Annotated[str, typer.Option(help="Who it is for, as it shows in nothing but the token.")],
    tenant: Annotated[list[str], typer.Option(help="A tenant; again for another; * for all.")],
    replica: Annotated[
        list[str] | None,
        typer.Option(help="A replica that it may report for, or a beginning of ids and *; none makes a reader."),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=3650, help="For how long it is good.")] = 90,
    new_key: Annotated[bool, typer.Option("--new-key", help="Make the key file first, and its public half.")] = False,
) -> None:
    """Print a token. The service takes it when the key's public half is among its `token_keys`."""
    import time

    from terraflow.app.keys import KeyUnusable, public_path, read_private_key
    from terraflow.app.keys import new_key as make_key
    from terraflow.hints.service.identity import Binding, sign_token

    if "" in tenant or "" in (replica or ()):
        end("hints token", "a tenant or a replica is empty", 2)
    try:
        signing = make_key(key) if new_key else read_private_key(key)
    except FileExistsError:
        end("hints token", f"{key} is there already, or its public half: leave --new-key out to sign with it", 1)
    except OSError as error:
        end("hints token", f"cannot write the key {key}: {error.strerror}", 1)
    except KeyUnusable as trouble:
        end("hints token", str(trouble), 1)
    binding = Binding(name=name, tenants=tuple(tenant), replicas=tuple(replica or ()))
    print(sign_token(binding, int(time.time()) + days * DAY_S, signing))
    if new_key:
        print(f'the service trusts it with token_keys = ["{public_path(key)}"]', file=sys.stderr)
