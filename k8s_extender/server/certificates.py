"""TLS: every new handshake gets the newest pair of certificate and key that could be read."""

from __future__ import annotations

import ssl
from pathlib import Path

from ..config import Server
from ..errors import ConfigError


class Certificates:
    """The pair of a configuration; ``context`` serves the newest, also after `reload`.

    Raises ConfigError naming the files where the first pair cannot be used.
    """

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None = None) -> None:
        self._certificate, self._key, self._client_ca = certificate, key, client_ca
        self.context = self._newest = self._read()
        self.context.sni_callback = self._choose

    @property
    def files(self) -> tuple[Path, ...]:
        """The files to watch."""
        given = (self._certificate, self._key, self._client_ca)
        return tuple(path for path in given if path is not None)

    async def reload(self) -> None:
        """Read the files anew; raises ConfigError, and keeps the old pair, where that fails."""
        self._newest = self._read()

    def serve(self, config: object, default: object) -> ssl.SSLContext:
        """The context, as uvicorn asks for it."""
        return self.context

    def _choose(self, handshake: ssl.SSLObject, name: str | None, first: ssl.SSLContext) -> None:
        """Called at each ClientHello, with or without a server name in it."""
        handshake.context = self._newest

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # A resumed session would not be checked against a new client CA.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self._certificate, self._key, password=_no_password)
        except (OSError, ssl.SSLError) as error:
            pair = f"server.certificate={self._certificate} and server.key={self._key}"
            raise ConfigError(f"{pair} cannot be used together: {error}") from None
        if self._client_ca is not None:
            self._ask_clients(context, self._client_ca)
        return context

    def _ask_clients(self, context: ssl.SSLContext, client_ca: Path) -> None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(client_ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"server.client_ca={client_ca} cannot be used: {error}") from None


def certificates_of(server: Server) -> Certificates | None:
    """The certificates of a configuration, None where it serves without TLS."""
    if server.certificate is None or server.key is None:
        return None
    return Certificates(server.certificate, server.key, server.client_ca)


def _no_password() -> str:
    """Called for an encrypted key, where OpenSSL would ask at the terminal."""
    raise ssl.SSLError("the key is encrypted")
