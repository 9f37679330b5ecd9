"""Calls of the API server through the ``kubernetes`` client, with answers left as bytes."""

from __future__ import annotations

from typing import Any

from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

# Seconds to connect, and to wait for the next byte of an answer.
CALL_TIMEOUT_S = (5.0, 30.0)
# What a call can fail with, besides what is wrong in the answer.
FAILURES = (ApiException, HTTPError, OSError)
GONE = 410


def body_of(response: Any) -> bytes:
    """The body of an answer got with ``_preload_content=False``; raises ApiException by status.

    The connection goes back to the pool.
    """
    try:
        body: bytes = response.read()
    finally:
        response.release_conn()
    if not 200 <= response.status <= 299:
        error = ApiException(status=response.status, reason=response.reason)
        error.headers = response.headers
        raise error
    return body


def said(error: BaseException) -> str:
    """An error on one line, short enough for a log."""
    if isinstance(error, ApiException):
        return f"the API server answered {error.status} {error.reason}"[:200]
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
