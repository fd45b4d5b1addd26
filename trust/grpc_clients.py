"""Real gRPC clients of several versions, and nghttp2's tools, against the hints' server.

    python -m trust.grpc_clients [--versions 1.50.0 1.60.2 …]

1. Each version of grpcio is installed in an environment of its own, which is thrown away, and runs the same client
   (trust/foreign/grpc_client.py): every shape of call, every status, deadlines, sizes, many calls, compression,
   keepalive.
2. h2load and nghttp (Debian's nghttp2-client) speak HTTP/2 by another library: calls with many streams and tiny
   windows, over plaintext and TLS.
3. Afterwards the server has no call, no connection and no unread byte left, and nothing unexpected was raised.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import struct
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

from terraflow.hints.http2.server import Server
from terraflow.hints.http2.tls import TlsFiles
from tests.hints.http2.authority import Authority, written
from tests.hints.http2.test_clients import Service

VERSIONS = ("1.50.0", "1.60.2", "1.70.0", "1.85.3")
CLIENT = Path(__file__).with_name("foreign") / "grpc_client.py"
HEADERS = ("-H", "content-type: application/grpc", "-H", "te: trailers")
LOADS = {
    "one connection, one stream": ("-n", "5000", "-c", "1", "-m", "1"),
    "many connections and streams": ("-n", "50000", "-c", "20", "-m", "100"),
    "tiny windows": ("-n", "5000", "-c", "4", "-m", "32", "-w", "8", "-W", "10"),
    "no header table": ("-n", "5000", "-c", "4", "-m", "32", "--header-table-size=0", "--encoder-header-table-size=0"),
}
_DONE = re.compile(r"(\d+) total, \d+ started, \d+ done, (\d+) succeeded, (\d+) failed, (\d+) errored")


async def said_by(*command: str) -> tuple[int, str]:
    """A command's exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode(errors="replace")


async def client_of(version: str, address: str, folder: Path) -> list[str]:
    """What is wrong with one version."""
    home = folder / version
    await asyncio.to_thread(venv.create, home, with_pip=True)
    python = str(home / "bin" / "python")
    code, said = await said_by(
        python, "-m", "pip", "install", "--disable-pip-version-check", "-q", "--only-binary=:all:", f"grpcio=={version}"
    )
    if code:
        return [f"grpcio {version} cannot be installed: {said[-300:]}"]
    code, said = await said_by(python, str(CLIENT), address)
    print(said.strip(), flush=True)
    return [f"grpcio {version}: {said.strip()}"] if code else []


async def tools(port: int, tls_port: int, folder: Path) -> list[str]:
    """What is wrong with h2load's and nghttp's calls."""
    if shutil.which("h2load") is None or shutil.which("nghttp") is None:
        return ["h2load or nghttp is missing: make trust-setup installs them"]
    body, wrong = folder / "body", []
    body.write_bytes(struct.pack(">BI", 0, 1000) + bytes(1000))
    for scheme, to in (("http", port), ("https", tls_port)):
        for name, options in LOADS.items():
            url = f"{scheme}://127.0.0.1:{to}/t/Echo"
            _, said = await said_by("h2load", *options, "-d", str(body), *HEADERS, url)
            done = _DONE.search(said)
            if done is None or done[1] != done[2]:
                wrong.append(f"h2load, {name}, {scheme}: {said[-400:]}")
            else:
                print(f"h2load, {name}, {scheme}: {done[1]} calls", flush=True)
        _, said = await said_by("nghttp", "-v", "-n", "-d", str(body), *HEADERS, url)
        if "grpc-status: 0" not in said or "GOAWAY" not in said:
            wrong.append(f"nghttp, {scheme}: {said[-400:]}")
    return wrong


async def prove(versions: Sequence[str]) -> list[str]:
    """Everything that is wrong."""
    service, faults = Service(), []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        certificate, key = written(folder, "server", Authority().give("localhost"))
        plain = Server(service.methods(), on_fault=lambda where, what: faults.append(f"{where}: {what!r}"))
        tls = Server(service.methods(), tls=TlsFiles(certificate=certificate, key=key))
        port, tls_port = await plain.start("127.0.0.1", 0), await tls.start("127.0.0.1", 0)
        wrong = await tools(port, tls_port, folder)
        for version in versions:
            wrong += await client_of(version, f"127.0.0.1:{port}", folder)
        for server in (plain, tls):
            await asyncio.wait_for(server.shared.emptied(), 30)
            if server.shared.assembling or server.shared.addresses:
                wrong.append(f"left over: {server.shared.assembling} bytes, {server.shared.addresses}")
            print(dict(server.shared.tally), flush=True)
            await server.stop(1)
    return wrong + faults


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the process's exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--versions", nargs="*", default=VERSIONS)
    wrong = asyncio.run(prove(parser.parse_args(arguments).versions))
    print("\n".join(wrong) or "every client was served, and nothing is left")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
