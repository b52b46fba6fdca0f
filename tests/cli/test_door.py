"""Who comes through the door of a page: whoever has the token, and nobody else."""

import asyncio
from typing import Any

import pytest

from udpfast.cli.door import COOKIE, Door


async def _page(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"inside"})


def ask(kind: str = "http", query: str = "", cookie: str = "") -> list[Any]:
    """Return what a request is answered."""
    said: list[Any] = []

    async def send(message: Any) -> None:
        said.append(message)

    headers = [(b"cookie", cookie.encode())] if cookie else []
    scope = {"type": kind, "query_string": query.encode(), "headers": headers}
    asyncio.run(Door(_page, "secret")(scope, None, send))  # type: ignore[arg-type]
    return said


def test_door_token_in_the_address_opens_and_is_kept_in_a_cookie() -> None:
    start, body = ask(query="token=secret&x=1")
    assert body["body"] == b"inside"
    [(name, value)] = start["headers"]
    assert name == b"set-cookie" and value.startswith(f"{COOKIE}=secret; HttpOnly".encode())


@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_door_cookie_opens(kind: str) -> None:
    assert ask(kind, cookie=f"other=1; {COOKIE}=secret")[-1]["body"] == b"inside"


@pytest.mark.parametrize(
    ("query", "cookie"),
    [
        ("", ""),
        ("token=", ""),
        ("token=Secret", ""),
        ("token=secret2", f"{COOKIE}=secre"),
        ("token=%ff", ""),
        ("x=token=secret", ""),
        ("", "token=secret"),
        ("", f"{COOKIE}"),
    ],
)
def test_door_without_the_token_is_shut(query: str, cookie: str) -> None:
    start, body = ask(query=query, cookie=cookie)
    assert start["status"] == 401
    assert b"inside" not in body["body"]
    assert ask("websocket", query, cookie) == [{"type": "websocket.close", "code": 4401}]


def test_door_lets_the_server_s_own_life_pass() -> None:
    assert ask("lifespan")[-1]["body"] == b"inside"
