"""Asking the extender as kube-scheduler would: its certificate verified by the same CA."""

from __future__ import annotations

import base64
import binascii
import http.client
import json
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

from ..errors import ConfigError
from .promises import Promise, promise
from .scheduler_config import Extender, TlsConfig

TIMEOUT_S = 10.0


class _Connection(http.client.HTTPSConnection):
    """A connection to one address that expects the certificate of a name."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext, name: str) -> None:
        super().__init__(host, port, timeout=TIMEOUT_S, context=context)
        self._context_of_name, self._name = context, name

    def connect(self) -> None:
        """Connect and verify."""
        http.client.HTTPConnection.connect(self)
        self.sock = self._context_of_name.wrap_socket(self.sock, server_hostname=self._name)


def reached(extender: Extender, address: str | None) -> Iterator[Promise]:
    """Whether the extender answers and is ready; ``address`` (host:port) goes before the URL's."""
    url = urlsplit(extender.urlPrefix)
    host, port = _address(address) if address else (url.hostname or "", url.port or _port(url))
    text = f"{host}:{port} answers" + (
        ", and its certificate can be verified" if url.scheme == "https" else ""
    )
    try:
        with closing(_connection(extender, host, port)) as connection:
            connection.request("GET", "/readyz")
            answer = connection.getresponse()
            body = answer.read(2**16)
    except ssl.SSLCertVerificationError as error:
        yield Promise(text, f"{error.verify_message}: give the CA of its certificate as caData")
    except (OSError, http.client.HTTPException, ConfigError) as error:
        yield Promise(text, f"{error}: is it running, and is --connect needed from here?")
    else:
        yield Promise(text)
        yield promise("it is ready", answer.status == 200, _why_not(body))


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


def _connection(extender: Extender, host: str, port: int) -> http.client.HTTPConnection:
    url = urlsplit(extender.urlPrefix)
    if url.scheme != "https":
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    tls = extender.tlsConfig
    if tls is None or not tls.verifies:
        raise ConfigError("tlsConfig names no CA to verify with")
    name = tls.serverName or url.hostname or host
    return _Connection(host, port, client_context(tls), name)


def _pem(key: str, data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ConfigError(f"tlsConfig.{key} is not base64 of PEM: {error}") from None


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"--connect={text!r}: HOST:PORT is accepted")
    return host.strip("[]"), int(port)


def _port(url: object) -> int:
    return 443 if getattr(url, "scheme", "") == "https" else 80


def _why_not(body: bytes) -> str:
    try:
        return "; ".join(json.loads(body)["reasons"])
    except (ValueError, KeyError, TypeError):
        return "it does not answer as the extender does: is another server at this address?"
