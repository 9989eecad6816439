"""Whether anything listens at a server's address: asked before a run spends minutes on what needs no model."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from warpsmith.agents.llm.endpoint import Endpoint
from warpsmith.agents.llm.records import ServerUnusable

PATIENCE_S = 5.0
PORTS = {"http": 80, "https": 443}


def require_listener(endpoint: Endpoint) -> None:
    """ServerUnusable where nothing takes a connection at the endpoint's address. Sends nothing. Where a proxy is
    between, only the proxy knows, and the first request will tell."""
    parts = urlsplit(endpoint.base_url)
    host, port = str(parts.hostname), parts.port or PORTS[parts.scheme]
    if not endpoint.local and parts.scheme in getproxies() and not proxy_bypass(host):
        return
    try:
        socket.create_connection((host, port), timeout=PATIENCE_S).close()
    except OSError as error:
        why = error.strerror or str(error)
        raise ServerUnusable(f"{endpoint.base_url} cannot be reached ({why}): is the server running?") from None
