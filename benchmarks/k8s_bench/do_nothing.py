"""An extender that does nothing: every name passes, no scores. ``do_nothing.py [CERT KEY]``.

It answers what kube-scheduler accepts, so it reads the request; ``/prioritize`` is answered
with an empty list, ``/zeros`` with a score of 0 for each name.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import uvicorn

Send = Callable[[dict[str, Any]], Awaitable[None]]


async def app(scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Send) -> None:
    """One request."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message["body"]
        more = message["more_body"]
    answer = _answer(scope["path"], orjson.loads(body)["NodeNames"])
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


def _answer(path: str, names: list[str]) -> bytes:
    if path == "/filter":
        return orjson.dumps(
            {"NodeNames": names, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": ""}
        )
    if path == "/zeros":
        return orjson.dumps([{"Host": name, "Score": 0} for name in names])
    return b"[]"


def main(certificate: str | None = None, key: str | None = None) -> None:
    """Serve on a free port of the loopback, which is printed."""
    bound = socket.create_server(("127.0.0.1", 0))
    print(bound.getsockname()[1], flush=True)
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_keep_alive=120,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    uvicorn.Server(config).run(sockets=[bound])


if __name__ == "__main__":
    main(*sys.argv[1:])
