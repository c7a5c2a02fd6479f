"""Ports for servers that are killed and started again."""

import random
import socket

_OURS = range(20_000, 32_000)
"""Below those that Linux gives to whoever asks for any, a client's connection among them."""


def kept_port() -> int:
    """A free port of 127.0.0.1 that nobody gets by chance while its server is away."""
    while True:
        port = random.choice(_OURS)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
