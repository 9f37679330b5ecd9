"""A mail server on the loopback that keeps what it gets, and a sendmail that hands mail to it."""

from __future__ import annotations

import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path

SENDMAIL = """\
#!{python}
import smtplib, sys
from email import message_from_binary_file

assert sys.argv[1:] == ["-t", "-i"], sys.argv
with smtplib.SMTP("127.0.0.1", {port}) as server:
    server.send_message(message_from_binary_file(sys.stdin.buffer))
"""


@dataclass(frozen=True)
class Delivered:
    recipients: tuple[str, ...]
    message: EmailMessage


@dataclass
class MailServer:
    """Its port, and what was delivered."""

    port: int = 0
    delivered: list[Delivered] = field(default_factory=list)

    def sendmail(self, folder: Path) -> Path:
        """Put a program ``sendmail`` there that speaks SMTP to this server."""
        program = folder / "sendmail"
        program.write_text(SENDMAIL.format(python=sys.executable, port=self.port))
        program.chmod(0o755)
        return program


class _Session(socketserver.StreamRequestHandler):
    """SMTP as far as smtplib speaks it."""

    def handle(self) -> None:
        kept: MailServer = self.server.kept  # type: ignore[attr-defined]
        recipients: list[str] = []
        self._say("220 here")
        while line := self.rfile.readline().decode().strip():
            verb = line.split()[0].upper()
            if verb == "RCPT":
                recipients.append(line.partition("<")[2].partition(">")[0])
            if verb == "DATA":
                self._say("354 go on")
                body = b"".join(iter(self._line, b".\r\n"))
                parsed = message_from_bytes(body, policy=policy.default)
                assert isinstance(parsed, EmailMessage)
                kept.delivered.append(Delivered(tuple(recipients), parsed))
            self._say("221 bye" if verb == "QUIT" else "250 ok")
            if verb == "QUIT":
                return

    def _line(self) -> bytes:
        line = self.rfile.readline()
        return line[1:] if line.startswith(b"..") else line

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


@contextmanager
def mail_server() -> Iterator[MailServer]:
    """A server on a free port, gone afterwards."""
    kept = MailServer()
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Session) as server:
        server.kept = kept  # type: ignore[attr-defined]
        kept.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield kept
        finally:
            server.shutdown()
            thread.join()
