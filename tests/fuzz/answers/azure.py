"""Answers of Azure Blob Storage."""

import base64
import os
import random
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

from tests.fuzz.answers.s3 import LAUGHS
from tests.fuzz.answers.store import DATE, Reply, StoreAnswers, dates, number, reply, some_keys, word

_CODES = (
    "BlobNotFound",
    "ContainerNotFound",
    "ConditionNotMet",
    "BlobAlreadyExists",
    "ServerBusy",
    "AuthenticationFailed",
    "Md5Mismatch",
    "BlobArchived",
    "InternalError",
    "",
)


class AzureAnswers(StoreAnswers):
    """The driver for Azure."""

    url = "az://container/base"

    def prepare(self) -> None:
        """An account with a key, at the server."""
        key = base64.b64encode(b"key").decode()
        endpoint = f"BlobEndpoint=http://{self.server.address}/account"
        os.environ["AZURE_STORAGE_CONNECTION_STRING"] = f"AccountName=account;AccountKey={key};{endpoint}"

    def forget(self) -> None:
        """Its pool."""
        store: Any = self.store
        store._client.close()

    def replies(self, chance: random.Random, call: Sequence[str]) -> list[Reply]:
        """As Azure answers."""
        if chance.random() < 0.2:
            return [self.refusal(chance), self.page(chance, call)]
        match call[0]:
            case "get" | "head":
                looked = [self.content(chance, ["head"])] if call[-1] == "-3" else []
                return [*looked, self.content(chance, call)]
            case "list" | "directories" | "replace" | "check":
                return [self.page(chance, call) for _ in range(chance.choice((1, 1, 2, 3)))] + [self.stored(chance)]
            case "put":
                return [*([self.content(chance, ["head"])] if call[-1] == "match" else []), self.stored(chance)]
            case _:
                return [reply("202 Accepted", x_ms_request_id="1")]

    def content(self, chance: random.Random, call: Sequence[str]) -> Reply:
        """An object of ten bytes, or a range of it."""
        headers = {
            "etag": word(chance, '"0x8DB"'),
            "last_modified": dates(chance, DATE),
            "x_ms_blob_type": "BlockBlob",
            "content_type": word(chance, "application/octet-stream"),
            "x_ms_meta_ts_2dend": word(chance, "5"),
            word(chance, "x_ms_meta_x").replace("\n", "").replace("\r", ""): "y",
        }
        if call[0] == "get" and len(call) == 4 and call[2] == "2":
            return reply("206 Partial Content", b"234", content_range=word(chance, "bytes 2-4/10"), **headers)
        if call[0] == "get" and len(call) == 3:
            return reply("206 Partial Content", b"789", content_range=f"bytes 7-9/{number(chance, 10)}", **headers)
        return reply("200 OK", b"0123456789", **headers)

    def stored(self, chance: random.Random) -> Reply:
        """The answer to Put Blob."""
        return reply("201 Created", etag=word(chance, '"0x8DB"'), last_modified=dates(chance, DATE))

    def page(self, chance: random.Random, call: Sequence[str]) -> Reply:
        """A page of List Blobs."""
        prefix = "base/" + (call[1] if len(call) > 1 and call[0] != "put" else "")
        blobs = "".join(
            f"<Blob><Name{chance.choice(('',) * 9 + (' Encoded=' + chr(34) + 'true' + chr(34),))}>"
            f"{escape(word(chance, key))}</Name><Properties>"
            f"<Last-Modified>{escape(dates(chance, DATE))}</Last-Modified>"
            f"<Etag>{escape(word(chance, '0x8DB'))}</Etag><Content-Length>{number(chance, 10)}</Content-Length>"
            f"<BlobType>BlockBlob</BlobType>{chance.choice(('',) * 9 + ('<ResourceType>directory</ResourceType>',))}"
            "</Properties></Blob>"
            for key in some_keys(chance, prefix)
        )
        if call[0] == "directories":
            names = (escape(word(chance, prefix + name)) for name in ("a/", "b/"))
            blobs += "".join(f"<BlobPrefix><Name>{name}</Name></BlobPrefix>" for name in names)
        marker = escape(chance.choice(("",) * 3 + (str(chance.randrange(1000)), word(chance, "m"))))
        head = '<?xml version="1.0" encoding="utf-8"?>'
        roll = chance.random()
        if roll < 0.03:
            head, blobs = f"<?xml version='1.0'?>{LAUGHS}", blobs.replace("<Name>", "<Name>&i;")
        elif roll < 0.07:
            blobs += chance.choice(
                ("{{100000*<a>}}", "{{3000000*<a/>}}", "{{1000000*<Blob/>}}", "<Blob/>", "<![CDATA[x]]>")
            )
        root = chance.choice(("EnumerationResults",) * 9 + ("Error",))
        body = f"{head}<{root}><Blobs>{blobs}</Blobs><NextMarker>{marker}</NextMarker></{root}>"
        return reply("200 OK", body.encode("utf-8", "replace"), content_type="application/xml")

    def refusal(self, chance: random.Random) -> Reply:
        """An error."""
        status = chance.choice(
            (
                "403 Forbidden",
                "404 Not Found",
                "400 Bad Request",
                "409 Conflict",
                "412 Failed",
                "416 Range",
                "500 Internal Error",
                "503 Busy",
                "304 Not Modified",
            )
        )
        code = chance.choice(_CODES)
        body = f"<Error><Code>{code}</Code><Message>{escape(word(chance, 'as told'))}</Message></Error>"
        return reply(status, body.encode("utf-8", "replace"), x_ms_error_code=word(chance, code))
