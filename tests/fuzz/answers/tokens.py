"""What gives credentials: a token server of Google's, a machine's metadata servers, STS.

An input is a line with the source, and answers (see `scripted_server`). Sources are `google`, `azure`, `aws-container`,
`aws-machine` and `aws-role`.
"""

import base64
import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import botocore.retries.standard
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.fuzz.answers.scripted_server import BETWEEN, ScriptedServer
from tests.fuzz.answers.store import Reply, change, reply, word
from tests.fuzz.mutate import json_text, mutate_bytes
from tests.fuzz.target import Mismatch, Target, split_input
from ts_common.errors import TieredStorageError
from ts_common.store import response_body
from ts_common.store.azure.tokens import entra_tokens
from ts_common.store.factory import open_store
from ts_common.store.gcs.tokens import default_tokens
from ts_common.store.options import Connection, StorageOptions

_KINDS = ("google", "google", "azure", "aws-container", "aws-machine", "aws-role")
_ROLE = "arn:aws:iam::123456789012:role/reader"
_STS = 'xmlns="https://sts.amazonaws.com/doc/2011-06-15/"'


class Tokens(Target):
    """Sources of credentials."""

    def open(self) -> None:
        """One server for all; nothing waits between attempts."""
        self.server = ScriptedServer()
        address = f"http://{self.server.address}"
        self._directory = TemporaryDirectory(prefix="fuzz-tokens-")
        account = Path(self._directory.name) / "account.json"
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        account.write_text(
            json.dumps(
                {
                    "type": "service_account",
                    "project_id": "p",
                    "private_key_id": "1",
                    "private_key": key.decode(),
                    "client_email": "who@p",
                    "client_id": "1",
                    "token_uri": f"{address}/token",
                }
            )
        )
        for name in [each for each in os.environ if each.startswith(("AWS_", "AZURE_", "GOOGLE_"))]:
            del os.environ[name]
        os.environ |= {
            "NO_PROXY": "127.0.0.1",
            "GOOGLE_APPLICATION_CREDENTIALS": str(account),
            "AZURE_TOKEN_CREDENTIALS": "ManagedIdentityCredential",
            "AZURE_POD_IDENTITY_AUTHORITY_HOST": address,
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": address,
            "AWS_ENDPOINT_URL": address,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_METADATA_SERVICE_TIMEOUT": "1",
            "AWS_CONFIG_FILE": "/nonexistent",
            "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
        }
        response_body.MOST_SECONDS = 0.5
        time.sleep = lambda _: None
        backoff: Any = botocore.retries.standard.ExponentialBackoff
        backoff.delay_amount = lambda *_: 0
        for kind in _KINDS:
            self.run(kind.encode() + b"\nHTTP/1.1 404 Not Found\ncontent-length: 0\n\n")

    def draw(self, chance: random.Random) -> bytes:
        """A source and its answers."""
        kind = chance.choice(_KINDS)
        replies = _REPLIES[kind](chance)
        if chance.random() < 0.5:
            one = chance.choice(replies)
            change(chance, one, large=kind in {"google", "aws-role"})
        texts = [each.text() for each in replies]
        if chance.random() < 0.2:
            texts[-1] = mutate_bytes(chance, texts[-1])
        return kind.encode() + b"\n" + BETWEEN.join(texts)

    def run(self, data: bytes) -> None:
        """Get credentials, and check that they fit into a header."""
        (kind, *_), script = split_input(data)
        self.server.follow(script)
        try:
            match kind:
                case "google":
                    _check(default_tokens("bucket")())
                case "azure":
                    _check(entra_tokens("account", "give it")())
                case _:
                    self._ask_s3(kind)
        except TieredStorageError as error:
            str(error).encode()
        finally:
            self.server.follow(b"")

    def _ask_s3(self, kind: str) -> None:
        address = f"http://{self.server.address}"
        given = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{address}/c"} if kind == "aws-container" else {}
        if kind == "aws-role":
            given = {"AWS_ACCESS_KEY_ID": "who", "AWS_SECRET_ACCESS_KEY": "secret"}
        connection = Connection(role_arn=_ROLE) if kind == "aws-role" else Connection()
        os.environ |= given
        try:
            with open_store("s3://archive/base", StorageOptions(connection), timeout_seconds=0.3) as store:
                store.head("key")
        finally:
            for name in given:
                del os.environ[name]


def _check(token: str) -> None:
    if not (token.isascii() and token.isprintable()):
        raise Mismatch("a token that no header can carry")


def _google(chance: random.Random) -> list[Reply]:
    said = {
        "access_token": word(chance, "ya29.x"),
        "expires_in": chance.choice((3599, 3599, "3599", -1, 1 << 70, None, 1e308)),
        "token_type": "Bearer",
    }
    refused = {"error": word(chance, "invalid_grant"), "error_description": word(chance, "no")}
    if chance.random() < 0.3:
        return [reply(chance.choice(("400 Bad Request", "401 Who", "503 Busy")), json_text(chance, refused))]
    return [reply("200 OK", json_text(chance, said), content_type="application/json")]


def _azure(chance: random.Random) -> list[Reply]:
    said = {
        "access_token": word(chance, "ey"),
        "client_id": "1",
        "expires_in": chance.choice(("86399", 86399, "x", None, -1)),
        "expires_on": chance.choice(("1900000000", 1 << 70, "x")),
        "resource": "https://storage.azure.com",
        "token_type": "Bearer",
    }
    if chance.random() < 0.3:
        refused = {"error": word(chance, "invalid_request"), "error_description": word(chance, "Identity not found")}
        return [reply(chance.choice(("400 Bad Request", "404 No", "429 Fast", "503 Busy")), json_text(chance, refused))]
    return [reply("200 OK", json_text(chance, said), content_type="application/json")]


def _container(chance: random.Random) -> list[Reply]:
    said = {
        "AccessKeyId": word(chance, "AKIA"),
        "SecretAccessKey": word(chance, "secret"),
        "Token": word(chance, "token"),
        "Expiration": chance.choice(
            ("2030-01-01T00:00:00Z", "x", "", 5, None, "9999-12-31T23:59:59-23:59", "1999-01-01T00:00:00Z")
        ),
    }
    return [reply("200 OK", json_text(chance, said)), reply("404 Not Found")]


def _machine(chance: random.Random) -> list[Reply]:
    said = {
        "Code": "Success",
        "AccessKeyId": word(chance, "AKIA"),
        "SecretAccessKey": "secret",
        "Token": word(chance, "token"),
        "Expiration": chance.choice(("2030-01-01T00:00:00Z", "x", 5, "1999-01-01T00:00:00Z")),
        "Type": "AWS-HMAC",
        "LastUpdated": word(chance, "2026-11-22T00:00:00Z"),
    }
    token = (
        base64.b64encode(b"token")
        if chance.random() < 0.8
        else chance.choice((b"", b"a\r\nb: c", b"\xff\xfe", b"{{3000*a}}"))
    )
    role = word(chance, "role").encode("utf-8", "replace")
    return [
        reply("200 OK", token),
        reply("200 OK", role),
        reply("200 OK", json_text(chance, said)),
        reply("404 Not Found"),
    ]


def _role(chance: random.Random) -> list[Reply]:
    key, token = chance.choice(("ASIA", "", "&#13;&#10;x: y")), chance.choice(("t", "", "&#10;"))
    ends = chance.choice(("2030-01-01T00:00:00Z", "x", "", "1999-01-01T00:00:00Z", "99999-01-01T00:00:00Z"))
    given = (
        f"<Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>s</SecretAccessKey>"
        f"<SessionToken>{token}</SessionToken><Expiration>{ends}</Expiration></Credentials>"
    )
    given = chance.choice((given,) * 6 + ("", "<Credentials/>", "{{2000*<a>}}", "{{100000*<a/>}}"))
    body = f"<AssumeRoleResponse {_STS}><AssumeRoleResult>{given}</AssumeRoleResult></AssumeRoleResponse>"
    if chance.random() < 0.3:
        error = chance.choice(
            (
                "<Error><Code>AccessDenied</Code><Message>no</Message></Error>",
                "<Error/>",
                "<Error><Code><a>1</a></Code></Error>",
            )
        )
        return [
            reply(
                chance.choice(("403 No", "400 Bad", "503 Busy")),
                f"<ErrorResponse {_STS}>{error}</ErrorResponse>".encode(),
            )
        ]
    return [reply("200 OK", body.encode()), reply("404 Not Found")]


_REPLIES: dict[str, Callable[[random.Random], list[Reply]]] = {
    "google": _google,
    "azure": _azure,
    "aws-container": _container,
    "aws-machine": _machine,
    "aws-role": _role,
}
