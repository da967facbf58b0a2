"""What a store's server may answer: drivers through the contract of `ObjectStore`, on a server that follows a script.

An input is a line with a call, and answers (see `scripted_server`):

    get key 2 5        bytes 2 to 4 of it; `get key` all, `get key -3` the last three
    head key, list prefix start_after, directories prefix, check, lifecycle
    put key absent     `put key` without a condition, `put key match` over an ETag that a head gives first
    replace prefix     a put over the ETag of the first object of a listing
    delete key key, matching key key on one ETag
    protection, locked key, versions prefix, thaw-state key, thaw key
"""

import os
import random
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.fuzz.answers.scripted_server import BETWEEN, ScriptedServer
from tests.fuzz.answers.store_calls import make
from tests.fuzz.mutate import NUMERALS, TEXTS, mutate_bytes
from tests.fuzz.target import Mismatch, Target, split_input
from ts_common.errors import TieredStorageError
from ts_common.store import response_body, retry
from ts_common.store.contract import ObjectStore
from ts_common.store.factory import open_store

DATE = "Sun, 22 Nov 2026 02:33:34 GMT"
KEYS = ("base/a", "base/a/b", "base/a-0/00000000000000000000.log", "base/b", "base/b/c/d")
TIMEOUT_SECONDS = 0.3
_CALLS = (
    "get key",
    "get key 2 5",
    "get key -3",
    "get key 20 30",
    "head key",
    "list",
    "list a",
    "list a/ a/b",
    "directories",
    "directories a/",
    "check",
    "put key",
    "put key absent",
    "put key match",
    "replace",
    "delete key",
    "delete key other",
    "lifecycle",
    "protection",
    "locked key",
    "versions a",
    "thaw-state key",
    "thaw key",
    "matching key",
    "matching key other",
)
_DATES = (
    DATE,
    "2026-11-22T02:33:34Z",
    "",
    "yesterday",
    "Sun, 99 Nov 2026 02:33:34 GMT",
    "Sun, 22 Nov 0000 02:33:34 GMT",
    "Sun, 22 Nov 9999 23:59:59 -2359",
    "9999-12-31T23:59:59-23:59",
    "0001-01-01T00:00:00+23:59",
    "99999-01-01T00:00:00Z",
    "2026-11-22T02:33:34+99:99",
    "Sun, 22 Nov 99999999999999999999 02:33:34 GMT",
    "1e999",
)
_LARGE = ("{{70000000*x}}", "{{1000000000000000000*x}}", "{{3000000000*[}}", "{{1000000000000* }}")


@dataclass
class Reply:
    """An answer that is being made up.

    Attributes:
        status: code and reason.
        headers: names and values, in order; a name may occur twice.
        body: with marks.
    """

    status: str
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""

    def text(self) -> bytes:
        """As the script has it."""
        lines = [f"HTTP/1.1 {self.status}", *(f"{name}: {value}" for name, value in self.headers)]
        return "\n".join(lines).encode("utf-8", "surrogateescape") + b"\n\n" + self.body


def reply(status: str, body: bytes = b"", **headers: str) -> Reply:
    """An answer as servers give it."""
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return Reply(status, [("content-length", "{{length}}"), ("connection", "close"), *named], body)


class StoreAnswers(Target):
    """One driver and its server."""

    url: str

    def open(self) -> None:
        """Return a store without a wait between attempts."""
        self.server = ScriptedServer()
        for name in [
            each for each in os.environ if each.startswith(("AWS_", "AZURE_", "GOOGLE_")) or "proxy" in each.lower()
        ]:
            del os.environ[name]
        os.environ["NO_PROXY"] = "127.0.0.1"
        retry.FIRST_PAUSE_SECONDS = 0.0
        response_body.MOST_SECONDS = 0.5
        self.prepare()
        self.store = self.opened()
        for call in _CALLS:  # what is loaded at its first use
            self.run(call.encode() + b"\nHTTP/1.1 404 Not Found\ncontent-length: 0\n\n")

    def opened(self) -> ObjectStore:
        """A store on the server."""
        return open_store(self.url, timeout_seconds=TIMEOUT_SECONDS)

    @abstractmethod
    def prepare(self) -> None:
        """Name the server in the environment."""

    @abstractmethod
    def forget(self) -> None:
        """Drop connections that the server closed."""

    @abstractmethod
    def replies(self, chance: random.Random, call: Sequence[str]) -> list[Reply]:
        """What a server answers to a call, sometimes with made-up contents."""

    def draw(self, chance: random.Random) -> bytes:
        """A call and its answers, which are changed here and there."""
        line = chance.choice(_CALLS)
        replies = self.replies(chance, line.split(" "))
        if chance.random() < 0.7:
            for _ in range(chance.choice((1, 1, 2))):
                change(chance, chance.choice(replies))
        texts = [each.text() for each in replies]
        if chance.random() < 0.15:
            at = chance.randrange(len(texts))
            texts[at] = mutate_bytes(chance, texts[at])
        if chance.random() < 0.1:
            texts.insert(
                chance.randrange(len(texts) + 1), chance.choice((b"", b"HTTP/1.1 500 Oh\n\n", b"\0" * 30, texts[0]))
            )
        return line.encode() + b"\n" + BETWEEN.join(texts)

    def run(self, data: bytes) -> None:
        """Make the call, and look at what it returns."""
        call, script = split_input(data)
        self.server.follow(script)
        self.forget()
        try:
            make(self.store, call)
        except TieredStorageError as error:
            str(error).encode()  # the message must be text that a log can contain
        finally:
            self.server.follow(b"")
        for head in self.server.others:
            if b"\r\nauthorization:" in head.lower():
                raise Mismatch(f"credentials went to another server: {head[:200]!r}")


def dates(chance: random.Random, usual: str) -> str:
    """A date, mostly the usual one."""
    return usual if chance.random() < 0.9 else chance.choice(_DATES)


def number(chance: random.Random, usual: int) -> str:
    """A numeral, mostly the usual one."""
    return str(usual) if chance.random() < 0.9 else chance.choice(NUMERALS)


def word(chance: random.Random, usual: str) -> str:
    """A text, mostly the usual one."""
    return usual if chance.random() < 0.9 else chance.choice(TEXTS)


def some_keys(chance: random.Random, prefix: str = "base/") -> list[str]:
    """Return keys of a page: in order, or not; some outside of the request."""
    keys = [key for key in KEYS if key.startswith(prefix)] if chance.random() < 0.8 else list(KEYS)
    roll = chance.random()
    if roll < 0.1:
        chance.shuffle(keys)
    elif roll < 0.2:
        keys.append(chance.choice(("elsewhere/x", "bas", "base", "base/", "", "base//x", "base/../x", *TEXTS)))
    elif roll < 0.3 and keys:
        keys.insert(0, chance.choice(keys))
    return keys


def change(chance: random.Random, one: Reply, *, large: bool = True) -> None:
    """Change an answer; `large` makes some that have no end."""
    headers = one.headers
    at = chance.randrange(len(headers)) if headers else 0
    match chance.randrange(14):
        case 0 if headers:
            del headers[at]
        case 1 if headers:
            headers[at] = (headers[at][0], chance.choice(TEXTS).replace("\n", " ").replace("\0", ""))
        case 2 if headers:
            headers[at] = (headers[at][0], chance.choice(NUMERALS))
        case 3 if headers:
            headers.insert(at, headers[at])
        case 4:
            one.status = chance.choice(
                (
                    "200 OK",
                    "204 No Content",
                    "206 Partial",
                    "301 Moved",
                    "302 Found",
                    "304 Not Modified",
                    "307 Temporary Redirect",
                    "308 P",
                    "400 Bad",
                    "401 Who",
                    "403 No",
                    "404 Not Found",
                    "408 Slow",
                    "409 Conflict",
                    "412 Failed",
                    "416 Range",
                    "429 Fast",
                    "500 Oh",
                    "502 Bad",
                    "503 Busy",
                    "504 Late",
                    "999 What",
                    "100 Continue",
                    "-1 x",
                    "200",
                )
            )
        case 5:
            headers.append(
                (
                    "location",
                    chance.choice(
                        (
                            "http://{{other}}/x",
                            "http://{{host}}/x",
                            "//{{other}}",
                            "file:///etc/passwd",
                            "http://",
                            "\u00e9",
                            "https://{{host}}/",
                            "http://[::1",
                            "http://a:b@{{other}}/",
                        )
                    ),
                )
            )
        case 6 if large:
            headers.append(("transfer-encoding", "chunked"))
            if chance.random() < 0.7:
                headers[:] = [pair for pair in headers if pair[0] != "content-length"]
            if chance.random() < 0.8:
                size = b"%x" % len(one.body)
                one.body = chance.choice(
                    (
                        size + b"\r\n" + one.body + b"\r\n0\r\n\r\n",
                        size + b"\r\n" + one.body,
                        b"ffffffffffffffff\r\n" + one.body,
                        b"-1\r\n",
                        b"zz\r\n",
                        b"{{1000000000000000000*1\r\n \r\n}}",
                        b"{{1000000000000000000*0}}",
                    )
                )
        case 7:
            headers.append(("content-encoding", chance.choice(("gzip", "deflate", "br", "x"))))
        case 8:
            one.body = one.body[: chance.randrange(len(one.body) + 1)]
        case 9:
            headers[:] = [
                ("content-length", chance.choice(NUMERALS)) if name == "content-length" else (name, value)
                for name, value in headers
            ]
        case 10:
            headers.append(("x-filler", f"{{{{{chance.choice((1000, 70_000, 10**12))}*a}}}}"))
        case 11:
            headers += [(f"x-filler-{number}", "a") for number in range(chance.choice((50, 150)))]
        case 12 if large:
            at = chance.randrange(len(one.body) + 1)
            one.body = one.body[:at] + chance.choice(_LARGE).encode() + one.body[at:]
            if chance.random() < 0.5:
                headers[:] = [pair for pair in headers if pair[0] != "content-length"]
        case _:
            one.body = mutate_bytes(chance, one.body)
