"""Certificates for tests, made with the openssl program."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on the PATH")

EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True)
class Pair:
    certificate: Path
    key: Path

    def trusted(self, client: Pair | None = None) -> ssl.SSLContext:
        """A client's context that trusts this certificate alone."""
        context = ssl.create_default_context(cafile=self.certificate)
        if client is not None:
            context.load_cert_chain(client.certificate, client.key)
        return context


def self_signed(directory: Path, name: str, host: str = "IP:127.0.0.1") -> Pair:
    """A certificate for a host (127.0.0.1) that is its own CA."""
    directory.mkdir(parents=True, exist_ok=True)
    pair = Pair(directory / "tls.crt", directory / "tls.key")
    command = [
        "openssl",
        "req",
        "-x509",
        *EC,
        "-days",
        "2",
        "-subj",
        f"/CN={name}",
        "-addext",
        f"subjectAltName={host}",
        "-out",
        str(pair.certificate),
        "-keyout",
        str(pair.key),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return pair


class Volume:
    """A volume as the kubelet writes it: files are links through ``..data``, swapped at once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self._versions = 0

    def write(self, **files: bytes) -> None:
        self._versions += 1
        version = self.directory / f"..{self._versions}"
        version.mkdir()
        for name, content in files.items():
            (version / name.replace("_", ".")).write_bytes(content)
        link = self.directory / "..data_tmp"
        link.symlink_to(version.name)
        link.replace(self.directory / "..data")
        for name in files:
            visible = self.directory / name.replace("_", ".")
            if not visible.is_symlink():
                visible.symlink_to(Path("..data") / visible.name)

    def write_pair(self, pair: Pair) -> None:
        self.write(tls_crt=pair.certificate.read_bytes(), tls_key=pair.key.read_bytes())
