"""Answers of WebHDFS: a NameNode's JSON, its redirects, and a DataNode's bytes."""

import json
import os
import random
from collections.abc import Sequence
from typing import Any

from tests.fuzz.answers.store import Reply, StoreAnswers, reply, some_keys, word
from tests.fuzz.mutate import json_text

_EXCEPTIONS = (
    "FileNotFoundException",
    "ParentNotDirectoryException",
    "FileAlreadyExistsException",
    "AccessControlException",
    "StandbyException",
    "SafeModeException",
    "InvalidPathException",
    "PathIsNotEmptyDirectoryException",
    "",
)
_METADATA = {"ts-end": "5"}


class HdfsAnswers(StoreAnswers):
    """The driver for HDFS."""

    def prepare(self) -> None:
        """The server is the NameNode, and every DataNode too."""
        os.environ["HADOOP_USER_NAME"] = "who"
        self.url = f"webhdfs://{self.server.address}/root/base"

    def forget(self) -> None:
        """Its pool, and which directories it tidied."""
        store: Any = self.store
        store._namenode.close()
        store._tidied.clear()

    def replies(self, chance: random.Random, call: Sequence[str]) -> list[Reply]:
        """As WebHDFS answers, one request after the other."""
        status, attributes = self.status(chance), self.attributes(chance)
        match call[0]:
            case "get":
                found = [
                    status,
                    attributes,
                    self.redirect(chance),
                    reply("200 OK", b"0123456789"[: chance.choice((10, 3, 3))]),
                ]
            case "head":
                found = [status, attributes]
            case "list" | "directories" | "replace":
                root = self.status(chance, directory=True)
                found = [root, *(self.names(chance) for _ in range(chance.choice((1, 2, 4)))), self.no_names()]
            case "put":
                written = self.status(chance)
                found = [
                    self.no_names(),
                    self.redirect(chance),
                    reply("201 Created"),
                    reply("200 OK"),
                    written,
                    *([status, reply("200 OK"), status] if call[-1] == "match" else []),
                    reply("200 OK"),
                ]
                if call[-1] == "match":
                    found[:0] = [status, attributes]
            case "check":
                found = [self.status(chance, directory=True)]
            case _:
                found = [self.status(chance, directory=True), reply("200 OK", json_text(chance, {"boolean": True}))]
        if chance.random() < 0.3:
            found[chance.randrange(len(found))] = self.refusal(chance)
        return found

    def status(self, chance: random.Random, *, directory: bool = False) -> Reply:
        """The answer to GETFILESTATUS."""
        said = {"FileStatus": _status("", chance.choice((7, 7, 8)), directory=directory)}
        return reply(
            "200 OK",
            json_text(chance, said) if chance.random() < 0.4 else _plain(said),
            content_type="application/json",
        )

    def attributes(self, chance: random.Random) -> Reply:
        """The answer to GETXATTRS."""
        inner = json_text(chance, _METADATA).hex() if chance.random() < 0.4 else json.dumps(_METADATA).encode().hex()
        said = {"XAttrs": [{"name": "user.ts-uploader", "value": word(chance, "0x" + inner)}]}
        return reply("200 OK", json_text(chance, said) if chance.random() < 0.3 else _plain(said))

    def names(self, chance: random.Random) -> Reply:
        """The answer to LISTSTATUS_BATCH."""
        parts = sorted({key.split("/")[1] for key in some_keys(chance) if key.count("/")})
        entries = [
            _status(word(chance, part), number_ + 20, directory=chance.random() < 0.4)
            for number_, part in enumerate(parts)
        ]
        remaining: Any = chance.choice((0, 1, "x", None))
        listing = {"partialListing": {"FileStatuses": {"FileStatus": entries}}, "remainingEntries": remaining}
        return reply(
            "200 OK",
            json_text(chance, {"DirectoryListing": listing})
            if chance.random() < 0.4
            else _plain({"DirectoryListing": listing}),
        )

    def no_names(self) -> Reply:
        """An empty directory."""
        listing = {"partialListing": {"FileStatuses": {"FileStatus": []}}, "remainingEntries": 0}
        return reply("200 OK", _plain({"DirectoryListing": listing}))

    def redirect(self, chance: random.Random) -> Reply:
        """To a DataNode."""
        where = chance.choice(
            ("http://{{host}}/webhdfs/v1/x?op=OPEN",) * 8
            + ("http://{{other}}/x", "/x", "ftp://{{host}}/", "http://{{host}}/\u00e9")
        )
        return reply("307 Temporary Redirect", location=where)

    def refusal(self, chance: random.Random) -> Reply:
        """An error."""
        status = chance.choice(
            ("403 Forbidden", "404 Not Found", "400 Bad Request", "401 Who", "500 Internal Error", "503 Busy")
        )
        said = {
            "RemoteException": {
                "exception": chance.choice(_EXCEPTIONS),
                "javaClassName": "x",
                "message": word(chance, "as told"),
            }
        }
        return reply(status, json_text(chance, said), content_type="application/json")


def _plain(said: Any) -> bytes:
    return json.dumps(said).encode()


def _status(name: str, inode: int, *, directory: bool) -> dict[str, Any]:
    kind = "DIRECTORY" if directory else "FILE"
    return {
        "pathSuffix": name,
        "fileId": inode,
        "length": 10,
        "modificationTime": 1763780014123,
        "type": kind,
        "owner": "who",
    }
