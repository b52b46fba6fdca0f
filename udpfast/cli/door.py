"""Access to a page: by its token, first in the address, then in a cookie; or by its own address."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from starlette.requests import cookie_parser

__all__ = ["Door"]

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

COOKIE = "udpfast_token"
REFUSED = b"The token is missing or wrong: use the whole address that udpfast monitor printed.\n"
REFUSED_NAME = (
    b"Without a token, the page is shown only at localhost or an IP address, and only to itself: "
    b"for any other name, start udpfast monitor with --token.\n"
)


class Door:
    """ASGI middleware that lets requests and web sockets of the page through, and no others.

    Parameters
    ----------
    app : ASGI application
    token : str
        What they must have. Empty: what they ask for must be `localhost` or an IP address, and they
        must come from there. Any site that a browser visits could otherwise let its own name
        resolve to this host, and read the page.
    """

    def __init__(self, app: Callable[..., Awaitable[None]], token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        if not self._token:
            if _is_own(scope):
                await self._app(scope, receive, send)
            else:
                await _refuse(scope, send, 403, REFUSED_NAME)
            return
        given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]
        by_address = self._is_right(given)
        # A browser does not tell the ports of a host apart: each page has a cookie of its own.
        name = f"{COOKIE}_{scope['server'][1]}"
        if not by_address and not self._is_right(
            unquote(cookie_parser(_header(scope, b"cookie")).get(name, ""))
        ):
            await _refuse(scope, send, 401, REFUSED)
            return

        async def send_with_cookie(message: MutableMapping[str, Any]) -> None:
            if by_address and message["type"] == "http.response.start":
                value = f"{name}={quote(given, safe='')}; HttpOnly; SameSite=Strict; Path=/"
                message["headers"] = [*message.get("headers", ()), (b"set-cookie", value.encode())]
            await send(message)

        await self._app(scope, receive, send_with_cookie)

    def _is_right(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token)


def _header(scope: _Scope, name: bytes) -> str:
    value: bytes = dict(scope["headers"]).get(name, b"")
    return value.decode("latin-1")


def _is_own(scope: _Scope) -> bool:
    # A name that a foreign server resolves is no IP address; a foreign page has another origin.
    asked, origin = _header(scope, b"host").lower(), _header(scope, b"origin").lower()
    try:
        host = urlsplit(f"//{asked}").hostname or ""
        if host != "localhost":
            ipaddress.ip_address(host)
        return not origin or urlsplit(origin).netloc == asked
    except ValueError:
        return False


async def _refuse(scope: _Scope, send: _Send, status: int, text: bytes) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 4000 + status})
        return
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})
