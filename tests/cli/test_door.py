"""Who comes through the door of a page: whoever has the token, and nobody else."""

import asyncio
from typing import Any
from urllib.parse import quote

import pytest

from udpfast.cli.door import COOKIE, Door

OWN = f"{COOKIE}_9818"


async def _page(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"inside"})


def ask(
    kind: str = "http",
    query: str = "",
    cookie: str = "",
    token: str = "secret",
    headers: dict[str, str] | None = None,
) -> list[Any]:
    """Return what a request is answered."""
    said: list[Any] = []

    async def send(message: Any) -> None:
        said.append(message)

    sent = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    sent += [(b"cookie", cookie.encode())] if cookie else []
    scope = {
        "type": kind,
        "query_string": query.encode(),
        "headers": sent,
        "server": ("127.0.0.1", 9818),
    }
    asyncio.run(Door(_page, token)(scope, None, send))  # type: ignore[arg-type]
    return said


def test_door_token_in_the_address_opens_and_is_kept_in_a_cookie() -> None:
    start, body = ask(query="token=secret&x=1")
    assert body["body"] == b"inside"
    [(name, value)] = start["headers"]
    assert name == b"set-cookie" and value.startswith(f"{OWN}=secret; HttpOnly".encode())


@pytest.mark.parametrize("token", ["a b;c", "a&b=c#d+e%41", "schlüssel 鍵", '"quoted"'])
def test_door_token_of_any_text_comes_back_by_the_cookie(token: str) -> None:
    start, body = ask(query=f"token={quote(token, safe='')}", token=token)
    assert body["body"] == b"inside"
    cookie = start["headers"][0][1].decode("ascii").partition(";")[0]
    assert ask("websocket", cookie=cookie, token=token)[-1]["body"] == b"inside"


@pytest.mark.parametrize("other", ["{x}=1", "a/b=1", 'json={"a": 1, "b": [2]}', "=", "ü=é", ";;"])
def test_door_cookie_opens_whatever_cookies_others_of_the_host_have_set(other: str) -> None:
    assert ask(cookie=f"{other}; {OWN}=secret")[-1]["body"] == b"inside"
    assert ask(cookie=other)[0]["status"] == 401


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(
    ("host", "origin", "is_own"),
    [
        ("127.0.0.1:9818", "", True),
        ("localhost:9818", "http://localhost:9818", True),
        ("LocalHost:8080", "http://localhost:8080", True),
        ("[::1]:9818", "http://[::1]:9818", True),
        ("evil.example:9818", "", False),
        ("evil.example:9818", "http://evil.example:9818", False),
        ("localhost.evil.example", "", False),
        ("127.0.0.1.evil.example", "", False),
        ("localhost:9818", "http://evil.example", False),
        ("localhost:9818", "http://localhost:3000", False),
        ("localhost:9818", "null", False),
        ("[::1", "", False),
        ("", "", False),
    ],
)
def test_door_without_a_token_is_open_to_the_page_s_own_address_alone(
    kind: str, host: str, origin: str, is_own: bool
) -> None:
    headers = {"host": host} | ({"origin": origin} if origin else {})
    first, *rest = ask(kind, token="", headers=headers)
    if is_own:
        assert rest[0]["body"] == b"inside"
    elif kind == "http":
        assert first["status"] == 403 and b"inside" not in rest[0]["body"]
    else:
        assert first == {"type": "websocket.close", "code": 4403}


@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_door_cookie_opens(kind: str) -> None:
    assert ask(kind, cookie=f"other=1; {OWN}=secret")[-1]["body"] == b"inside"


@pytest.mark.parametrize(
    ("query", "cookie"),
    [
        ("", ""),
        ("token=", ""),
        ("token=Secret", ""),
        ("token=secret2", f"{OWN}=secre"),
        ("token=%ff", ""),
        ("x=token=secret", ""),
        ("", "token=secret"),
        ("", OWN),
        ("", f"{COOKIE}=secret"),
        ("", f"{COOKIE}_9819=secret"),
    ],
)
def test_door_without_the_token_is_shut(query: str, cookie: str) -> None:
    start, body = ask(query=query, cookie=cookie)
    assert start["status"] == 401
    assert b"inside" not in body["body"]
    assert ask("websocket", query, cookie) == [{"type": "websocket.close", "code": 4401}]


def test_door_lets_the_server_s_own_life_pass() -> None:
    assert ask("lifespan")[-1]["body"] == b"inside"
