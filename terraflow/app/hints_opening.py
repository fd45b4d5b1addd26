"""What the hint service's settings name, opened: policies, tokenizers, keys, certificates, the internal token.

Whatever is wrong with one of them is one line that names the setting and the file: CannotStart, or KeyUnusable.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from pathlib import Path

from terraflow import __version__
from terraflow.app.hints_settings import HintsSettings
from terraflow.app.keys import KeyUnusable, read_public_key
from terraflow.app.opening import CannotStart, check_tls, naming, read_token, warn_if_open
from terraflow.hints.deciding.assigned import Assigned
from terraflow.hints.deciding.look import Grounds
from terraflow.hints.feed.feeds import Feeds
from terraflow.hints.feed.sink import Sink
from terraflow.hints.http2.tls import TlsFiles, context
from terraflow.hints.index.index import Index
from terraflow.hints.live import LiveHints
from terraflow.hints.policy.folder import FolderUnreadable, PolicyFolder
from terraflow.hints.policy.policies import Policies
from terraflow.hints.policy.problems import PoliciesRefused
from terraflow.hints.service.identity import Identities
from terraflow.hints.snapshot import restore_snapshot
from terraflow.hints.tokens.loaded import LoadedTokenizers, TokenizerFault, TokenizerFiles
from terraflow.ports.runtime import Clock

NAMESPACE_KEY_BYTES_MIN = 32


def lock_data_folder(settings: HintsSettings) -> int:
    """Make the folder if need be, and hold it; closing the descriptor lets go. Raises CannotStart."""
    folder = Path(settings.data_dir)
    with naming("data_dir", folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        held = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        raise CannotStart(f"data_dir: another hint service runs on {folder}; give each a folder of its own") from None
    return held


def open_policies(folder: PolicyFolder) -> Policies:
    """What is in force when the service starts. Raises CannotStart."""
    try:
        return folder.load()
    except (PoliciesRefused, FolderUnreadable) as trouble:
        raise CannotStart(f"policy_dir: {trouble}") from None


def open_tokenizers(settings: HintsSettings) -> LoadedTokenizers | None:
    """The tokenizers by model, None without any. Raises CannotStart."""
    if not settings.tokenizers:
        return None
    try:
        return LoadedTokenizers({model: TokenizerFiles(path) for model, path in settings.tokenizers.items()})
    except TokenizerFault as trouble:
        raise CannotStart(f"tokenizers: {trouble}") from None


def open_grounds(settings: HintsSettings, assigned: Assigned | None = None) -> Grounds:
    """What lookups are decided on, with an empty index and without policies. Raises CannotStart."""
    try:
        index = Index(
            entries_max=settings.entries_max,
            ttl_s=settings.ttl_s,
            keys_per_tenant_max=settings.keys_per_tenant_max,
        )
    except (OverflowError, OSError, MemoryError, ValueError):
        raise CannotStart(
            f"entries_max: there is no memory for {settings.entries_max} entries; give a smaller"
        ) from None
    return Grounds(
        index=index,
        ranker=settings.ranker(),
        tokenizers=open_tokenizers(settings),
        assigned=assigned,
        share_min=settings.minimum_matched_share or 0.0,
        block_tokens=settings.block_tokens,
    )


async def open_stored(settings: HintsSettings, snapshot: Path, clock: Clock) -> LiveHints | None:
    """The hints as a snapshot has them, beside a service or without one; None where there is no snapshot.

    Raises CannotStart, SnapshotDamaged, OSError.
    """
    live = LiveHints(open_grounds(settings), clock)
    if settings.policy_dir is not None:
        live.adopt(open_policies(PolicyFolder(Path(settings.policy_dir), live.adopt)))
    return None if await restore_snapshot(snapshot, live.index, clock) is None else live


def open_feeds(settings: HintsSettings, sink: Sink) -> Feeds:
    """The feeds, not begun. Raises CannotStart."""
    try:
        return Feeds(settings.feeds, sink, client_version=f"terraflow/{__version__}")
    except ValueError as trouble:
        raise CannotStart(f"feeds: {trouble}") from None


def open_identities(settings: HintsSettings) -> Identities:
    """Who is who. Raises KeyUnusable."""
    paths = [Path(name) for name in settings.token_keys]
    with naming("token_keys", paths[0] if paths else Path()):
        keys = [read_public_key(path) for path in paths]
    return Identities(
        bindings=settings.identities,
        keys=keys,
        anonymous_readers=settings.anonymous_readers,
        insecure_producers=settings.insecure_producers,
    )


def open_tls(settings: HintsSettings) -> TlsFiles | None:
    """The files that the port serves TLS with, tried; None for plaintext. Raises CannotStart."""
    if settings.tls_cert_file is None or settings.tls_key_file is None:
        return None
    check_tls(settings)
    files = TlsFiles(
        certificate=Path(settings.tls_cert_file),
        key=Path(settings.tls_key_file),
        client_ca=None if settings.client_ca_file is None else Path(settings.client_ca_file),
        required=settings.client_cert_required,
    )
    try:
        context(files)
    except OSError as trouble:
        raise CannotStart(f"client_ca_file: {settings.client_ca_file} cannot be used: {trouble}") from None
    return files


def read_namespace_key(settings: HintsSettings) -> bytes | None:
    """The key of tenant namespaces. Raises CannotStart, KeyUnusable."""
    if settings.namespace_key_file is None:
        return None
    path = Path(settings.namespace_key_file)
    with naming("namespace_key_file", path):
        key = path.read_bytes()
        warn_if_open("namespace_key_file", path)
    if len(key) < NAMESPACE_KEY_BYTES_MIN:
        raise KeyUnusable(f"namespace_key_file: {path} must hold {NAMESPACE_KEY_BYTES_MIN} bytes or more")
    return key


def open_internal_token(settings: HintsSettings) -> bytes:
    """The bearer token of the internal listener; one in the data folder is made when it is not there.

    Raises CannotStart, KeyUnusable.
    """
    path = settings.token_path()
    if settings.internal_token_file is None:
        with naming("internal_token_file", path), contextlib.suppress(FileExistsError):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_urlsafe(32) + "\n")
    return read_token("internal_token_file", path)
