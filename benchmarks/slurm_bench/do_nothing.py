"""A daemon that does nothing: answers each line with ``pong``. ``do_nothing.py SOCKET``."""

from __future__ import annotations

import asyncio
import sys
from typing import cast


class DoNothing(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep where to answer."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Answer what ends a line."""
        if data.endswith(b"\n"):
            self._transport.write(b"pong\n")


async def serve(path: str) -> None:
    """Answer until the process is ended."""
    server = await asyncio.get_running_loop().create_unix_server(DoNothing, path)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
