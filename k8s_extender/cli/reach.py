"""Asking the extender as kube-scheduler would: its certificate verified by the same CA."""

from __future__ import annotations

import base64
import binascii
import json
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import HTTPError

from ..errors import ConfigError
from .promises import Promise, promise
from .scheduler_config import Extender, TlsConfig

TIMEOUT_S = 10.0


def reached(extender: Extender, address: str | None) -> Iterator[Promise]:
    """Whether the extender answers and is ready; ``address`` (host:port) goes before the URL's."""
    url = urlsplit(extender.urlPrefix)
    host, port = _address(address) if address else (url.hostname or "", url.port or _port(url))
    text = f"{host}:{port} answers" + (
        ", and its certificate can be verified" if url.scheme == "https" else ""
    )
    try:
        with _pool(extender, host, port) as pool:
            answer = pool.request("GET", "/readyz")
    except (HTTPError, OSError, ConfigError) as error:
        yield Promise(text, _remedy(error))
    else:
        yield Promise(text)
        yield promise("it is ready", answer.status == 200, _why_not(answer.data))


def client_context(tls: TlsConfig) -> ssl.SSLContext:
    """The scheduler's side of a connection; raises ConfigError naming the key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.hostname_checks_common_name = False  # nor does Go
    try:
        if tls.caData:
            context.load_verify_locations(cadata=_pem("caData", tls.caData).decode("ascii"))
        else:
            context.load_verify_locations(tls.caFile)
        _show_certificate(context, tls)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise ConfigError(f"tlsConfig cannot be used: {error}") from None
    return context


def _show_certificate(context: ssl.SSLContext, tls: TlsConfig) -> None:
    if tls.certData:
        with tempfile.TemporaryDirectory() as directory:
            pair = Path(directory) / "pair.pem"
            pair.touch(mode=0o600)
            pair.write_bytes(_pem("certData", tls.certData) + b"\n" + _pem("keyData", tls.keyData))
            context.load_cert_chain(pair)
    elif tls.certFile:
        context.load_cert_chain(tls.certFile, tls.keyFile)


def _pool(extender: Extender, host: str, port: int) -> urllib3.HTTPConnectionPool:
    """Connections to one address that expect the certificate of the name that is registered."""
    url, tls = urlsplit(extender.urlPrefix), extender.tlsConfig
    if url.scheme != "https":
        return urllib3.HTTPConnectionPool(host, port, timeout=TIMEOUT_S, retries=False)
    if tls is None or not tls.verifies:
        raise ConfigError("tlsConfig names no CA to verify with")
    return urllib3.HTTPSConnectionPool(
        host,
        port,
        timeout=TIMEOUT_S,
        retries=False,
        ssl_context=client_context(tls),
        server_hostname=tls.serverName or url.hostname or host,
    )


def _remedy(error: Exception) -> str:
    cause = error.args[0] if error.args else None
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"{cause.verify_message}: give the CA of its certificate as caData"
    return f"{error}: is it running, and is --connect needed from here?"


def _pem(key: str, data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ConfigError(f"tlsConfig.{key} is not base64 of PEM: {error}") from None


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"invalid --connect={text!r}; expected HOST:PORT")
    return host.strip("[]"), int(port)


def _port(url: object) -> int:
    return 443 if getattr(url, "scheme", "") == "https" else 80


def _why_not(body: bytes) -> str:
    try:
        return "; ".join(json.loads(body)["reasons"])
    except (ValueError, KeyError, TypeError):
        return "it does not answer as the extender does: is another server at this address?"
