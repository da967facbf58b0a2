"""Answers of Google Cloud Storage: its JSON API, and its XML API for one object."""

import os
import random
from collections.abc import Sequence
from typing import Any

from tests.fuzz.answers.store import DATE, Reply, StoreAnswers, dates, number, reply, some_keys, word
from tests.fuzz.mutate import json_text


class GoogleAnswers(StoreAnswers):
    """The driver for Google's store."""

    url = "gs://bucket/base"

    def prepare(self) -> None:
        """The server is the emulator."""
        os.environ["STORAGE_EMULATOR_HOST"] = f"http://{self.server.address}"

    def forget(self) -> None:
        """Its pool."""
        store: Any = self.store
        store._client.close()

    def replies(self, chance: random.Random, call: Sequence[str]) -> list[Reply]:
        """As Google answers."""
        if chance.random() < 0.2:
            return [self.refusal(chance), self.page(chance, call)]
        match call[0]:
            case "get" | "head":
                return [self.content(chance, call)]
            case "list" | "directories" | "replace" | "check":
                return [self.page(chance, call) for _ in range(chance.choice((1, 1, 2, 3)))] + [self.stored(chance)]
            case "put":
                return [*([self.content(chance, ["head"])] if call[-1] == "match" else []), self.stored(chance)]
            case _:
                return [reply("204 No Content")]

    def content(self, chance: random.Random, call: Sequence[str]) -> Reply:
        """An object of ten bytes, or a range of it."""
        headers = {
            "x_goog_generation": word(chance, "1763780014000000"),
            "last_modified": dates(chance, DATE),
            "etag": '"x"',
            "content_type": word(chance, "application/octet-stream"),
            "x_goog_meta_ts_end": word(chance, "5"),
        }
        if call[0] == "get" and len(call) == 4 and call[2] == "2":
            return reply("206 Partial Content", b"234", content_range=word(chance, "bytes 2-4/10"), **headers)
        if call[0] == "get" and len(call) == 3:
            return reply("206 Partial Content", b"789", content_range=f"bytes 7-9/{number(chance, 10)}", **headers)
        return reply("200 OK", b"0123456789", **headers)

    def stored(self, chance: random.Random) -> Reply:
        """The answer to an upload."""
        said = {"generation": "1763780014000001", "updated": dates(chance, "2026-11-22T02:33:34.123Z")}
        return reply("200 OK", json_text(chance, said), content_type="application/json")

    def page(self, chance: random.Random, call: Sequence[str]) -> Reply:
        """A page of objects.list."""
        prefix = "base/" + (call[1] if len(call) > 1 and call[0] != "put" else "")
        said: dict[str, Any] = {
            "kind": "storage#objects",
            "items": [
                {
                    "name": key,
                    "size": number(chance, 10),
                    "generation": word(chance, "1763780014000000"),
                    "updated": dates(chance, "2026-11-22T02:33:34.123Z"),
                }
                for key in some_keys(chance, prefix)
            ],
        }
        if call[0] == "directories":
            said["prefixes"] = [word(chance, prefix + name) for name in ("a/", "b/")]
        if chance.random() < 0.3:
            said["nextPageToken"] = word(chance, str(chance.randrange(1000)))
        return reply("200 OK", json_text(chance, said), content_type="application/json")

    def refusal(self, chance: random.Random) -> Reply:
        """An error of either API."""
        status = chance.choice(
            (
                "403 Forbidden",
                "404 Not Found",
                "400 Bad Request",
                "409 Conflict",
                "412 Failed",
                "416 Range",
                "429 Too Many",
                "500 Internal Error",
                "503 Busy",
                "401 Who",
            )
        )
        reason = chance.choice(
            ("notFound", "forbidden", "conditionNotMet", "rateLimitExceeded", "authError", "invalid", "")
        )
        said = {"error": {"code": 403, "message": word(chance, "CRC32C"), "errors": [{"reason": reason}]}}
        if chance.random() < 0.4:
            return reply(
                status, f"<Error><Code>{chance.choice(('NoSuchKey', 'NoSuchBucket', ''))}</Code></Error>".encode()
            )
        return reply(status, json_text(chance, said), content_type="application/json")
