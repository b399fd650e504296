#!/usr/bin/env python3
"""An MCP client for rootsfs: offers directories as roots, and lets you change them while the view is mounted.

    python client.py MOUNTPOINT ROOT...        ROOTSFS=path/to/rootsfs if it is not in PATH

Lines on stdin, one JSON line on stdout for each:

    drop N            take root number N (from 1) off the list
    set PATH...       replace the list
    call TOOL JSON    call a tool, say: call explain_access {"path": "app/main.c", "operation": "read"}
    quit              leave; the view is unmounted (end of input does the same)
"""

import json
import os
import sys
import warnings
from pathlib import Path

import anyio
from mcp import ClientSession, MCPDeprecationWarning, MCPError, StdioServerParameters, stdio_client
from mcp.types import Implementation, ListRootsResult, Root


# Protocol 2026-07-28 has another way for roots; sessions of this client speak an older one.
warnings.filterwarnings("ignore", category=MCPDeprecationWarning)


def root(path: str) -> Root:
    # as_uri percent-encodes what has to be; "file://" + path would break on a space or a "#".
    absolute = Path(path).absolute()
    return Root(uri=absolute.as_uri(), name=absolute.name)


class Offer:
    """The roots this client offers, and the conversation in which it does."""

    def __init__(self, roots: list[Root]) -> None:
        self.roots = roots
        self.session: ClientSession

    async def list_roots(self, _context: object) -> ListRootsResult:
        """Answers `roots/list`. That the session has this callback is what declares the roots capability."""
        return ListRootsResult(roots=self.roots)

    async def change(self, roots: list[Root]) -> dict:
        self.roots = roots
        await self.session.send_roots_list_changed()
        return {"roots": [root.model_dump(mode="json", exclude_none=True) for root in roots]}

    async def call(self, tool: str, arguments: str = "") -> dict:
        result = await self.session.call_tool(tool, json.loads(arguments or "{}"))
        if result.is_error:
            return {"error": [block.model_dump(mode="json") for block in result.content]}
        return result.structured_content

    async def obey(self, line: str) -> dict:
        match line.split(maxsplit=2):
            case ["drop", number] if number.isdecimal() and 1 <= int(number) <= len(self.roots):
                return await self.change([root for n, root in enumerate(self.roots, 1) if n != int(number)])
            case ["drop", number]:
                return {"error": f"there is no root number {number}"}
            case ["set", *_]:
                return await self.change([root(path) for path in line.split()[1:]])
            case ["call", tool, *arguments]:
                return await self.call(tool, *arguments)
        return {"error": "unknown command; known: drop N, set PATH..., call TOOL JSON, quit"}


def show(answer: dict) -> None:
    print(json.dumps(answer), flush=True)


async def main(mountpoint: str, *paths: str) -> None:
    offer = Offer([root(path) for path in paths])
    server = StdioServerParameters(
        command=os.environ.get("ROOTSFS", "rootsfs"),
        args=["mcp", "--mountpoint", os.path.abspath(mountpoint)],
        # Unless told so, the SDK passes few variables on; rootsfs keeps its control socket in XDG_RUNTIME_DIR.
        env=dict(os.environ),
    )
    client = Implementation(name="rootsfs-example-python", version="0.1.0")
    # Leaving these blocks closes the server's standard input; rootsfs unmounts and exits.
    async with (
        stdio_client(server) as (read, write),
        ClientSession(read, write, list_roots_callback=offer.list_roots, client_info=client) as session,
    ):
        offer.session = session
        await session.initialize()
        # The answer waits for the list: the roots of this client stand in it.
        show(await offer.call("view_status"))
        while line := await anyio.to_thread.run_sync(sys.stdin.readline):
            if line.strip() == "quit":
                break
            if not line.strip():
                continue
            try:
                show(await offer.obey(line))
            except (MCPError, ValueError) as error:
                show({"error": str(error)})


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: client.py MOUNTPOINT ROOT...")
    anyio.run(main, *sys.argv[1:])
