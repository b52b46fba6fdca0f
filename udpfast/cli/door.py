"""Access to a page: by its token, first in the address, then in a cookie."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import parse_qs

__all__ = ["Door"]

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

COOKIE = "udpfast_token"
REFUSED = b"The token is missing or wrong: use the whole address that udpfast monitor printed.\n"


class Door:
    """ASGI middleware that lets requests and web sockets with the token through, and no others.

    Parameters
    ----------
    app : ASGI application
    token : str
    """

    def __init__(self, app: Callable[..., Awaitable[None]], token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]
        by_address = self._is_right(given)
        if not by_address and not self._is_right(_cookie(scope)):
            await _refuse(scope, send)
            return

        async def send_with_cookie(message: MutableMapping[str, Any]) -> None:
            if by_address and message["type"] == "http.response.start":
                value = f"{COOKIE}={given}; HttpOnly; SameSite=Strict; Path=/"
                message["headers"] = [
                    *message.get("headers", ()),
                    (b"set-cookie", value.encode("latin-1")),
                ]
            await send(message)

        await self._app(scope, receive, send_with_cookie)

    def _is_right(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token)


def _cookie(scope: _Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"cookie":
            found = SimpleCookie(value.decode("latin-1")).get(COOKIE)
            return found.value if found is not None else ""
    return ""


async def _refuse(scope: _Scope, send: _Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 4401})
        return
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": REFUSED})
