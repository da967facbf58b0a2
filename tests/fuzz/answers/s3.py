"""Answers of S3, and of what speaks like it."""

import os
import random
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

import botocore.retries.standard

from tests.fuzz.answers.store import DATE, Reply, StoreAnswers, dates, number, reply, some_keys, word
from tests.fuzz.mutate import TEXTS

NAMESPACE = ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
LAUGHS = (
    '<!DOCTYPE x [<!ENTITY a "0123456789">'
    + "".join(f'<!ENTITY {name} "{f"&{before};" * 10}">' for before, name in zip("abcdefgh", "bcdefghi", strict=True))
    + "]>"
)
_CODES = (
    "NoSuchKey",
    "NoSuchBucket",
    "AccessDenied",
    "SlowDown",
    "PreconditionFailed",
    "ConditionalRequestConflict",
    "RequestTimeout",
    "RequestTimeTooSkewed",
    "PermanentRedirect",
    "AuthorizationHeaderMalformed",
    "InternalError",
    "ExpiredToken",
    "",
)


class S3Answers(StoreAnswers):
    """The driver for S3."""

    url = "s3://archive/base"

    def prepare(self) -> None:
        """The environment names the server; no attempt of the SDK's waits."""
        os.environ |= {
            "AWS_ENDPOINT_URL": f"http://{self.server.address}",
            "AWS_ACCESS_KEY_ID": "who",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        backoff: Any = botocore.retries.standard.ExponentialBackoff
        backoff.delay_amount = lambda *_: 0

    def forget(self) -> None:
        """Its pools are made again at the next request."""
        store: Any = self.store
        for client in (store._reads, store._writes):
            client.close()
            if bucket := getattr(client, "_retry_quota", None):
                bucket.release(1 << 20)

    def replies(self, chance: random.Random, call: Sequence[str]) -> list[Reply]:
        """As S3 answers."""
        if chance.random() < 0.2:
            return [self.refusal(chance)]
        match call[0]:
            case "get" | "head":
                return [self.content(chance, call)]
            case "list" | "directories" | "replace":
                return [self.page(chance, call) for _ in range(chance.choice((1, 1, 2, 3)))] + [self.stored(chance)]
            case "put":
                first = [self.content(chance, call)] if call[-1] == "match" else []
                return [*first, self.stored(chance)]
            case "delete":
                return [self.deleted(chance)]
            case "matching":
                return [self.deleted(chance) if chance.random() < 0.5 else self.content(chance, call) for _ in range(3)]
            case "protection" | "locked" | "versions" | "thaw-state" | "thaw":
                return self.kept(chance, call)
            case "lifecycle":
                return [self.lifecycle(chance)]
            case _:
                return [reply("200 OK")]

    def content(self, chance: random.Random, call: Sequence[str]) -> Reply:
        """An object of ten bytes, or a range of it."""
        headers = {
            "etag": word(chance, '"781e5e245d69b566979b86e28d23f2c7"'),
            "last_modified": dates(chance, DATE),
            "date": DATE,
            "content_type": word(chance, "application/octet-stream"),
            "accept_ranges": "bytes",
            "x_amz_meta_ts_end": word(chance, "5"),
        }
        if call[0] == "get" and len(call) == 4 and call[2] == "2":
            return reply("206 Partial Content", b"234", content_range=word(chance, "bytes 2-4/10"), **headers)
        if call[0] == "get" and len(call) == 3:
            return reply("206 Partial Content", b"789", content_range=f"bytes 7-9/{number(chance, 10)}", **headers)
        return reply("200 OK", b"0123456789", **headers)

    def page(self, chance: random.Random, call: Sequence[str]) -> Reply:
        """A page of ListObjectsV2."""
        prefix = "base/" + (call[1] if len(call) > 1 else "")
        entries = "".join(
            f"<Contents><Key>{escape(word(chance, key))}</Key>"
            f"<LastModified>{dates(chance, '2026-11-21T16:43:50.123Z')}</LastModified>"
            f"<ETag>{escape(word(chance, chr(34) + 'e' + chr(34)))}</ETag><Size>{number(chance, 10)}</Size>"
            "<Owner><ID>1</ID></Owner><StorageClass>STANDARD</StorageClass></Contents>"
            for key in some_keys(chance, prefix)
        )
        if call[0] == "directories":
            entries += "".join(
                f"<CommonPrefixes><Prefix>{escape(word(chance, prefix + name))}</Prefix></CommonPrefixes>"
                for name in ("a/", "b/")
            )
        more = chance.choice(
            ("<IsTruncated>false</IsTruncated>",) * 3
            + (
                f"<IsTruncated>true</IsTruncated><NextContinuationToken>{chance.randrange(1000)}</NextContinuationToken>",
                "<IsTruncated>true</IsTruncated>",
                f"<IsTruncated>{escape(chance.choice(TEXTS))}</IsTruncated>",
                "<EncodingType>url</EncodingType>",
            )
        )
        head = '<?xml version="1.0" encoding="UTF-8"?>'
        roll = chance.random()
        if roll < 0.03:
            head, entries = f"<?xml version='1.0'?>{LAUGHS}", entries.replace("<Key>", "<Key>&i;")
        elif roll < 0.06:
            entries += chance.choice(
                ("{{100000*<a>}}", "{{3000000*<a/>}}", "{{10000000*&amp;}}", "<!-- x -->", "<![CDATA[x]]>")
            )
        elif roll < 0.08:
            head = '<?xml version="1.0" encoding="UTF-16"?>'
        root = chance.choice(("ListBucketResult",) * 9 + ("ListVersionsResult",))
        body = f"{head}\n<{root}{chance.choice((NAMESPACE, ''))}><Name>b</Name><Prefix/>{more}{entries}</{root}>"
        return reply("200 OK", body.encode("utf-8", "replace"), content_type="application/xml")

    def stored(self, chance: random.Random) -> Reply:
        """The answer to PutObject."""
        return reply("200 OK", etag=word(chance, '"781e5e245d69b566979b86e28d23f2c7"'), date=dates(chance, DATE))

    def deleted(self, chance: random.Random) -> Reply:
        """The answer to DeleteObjects."""
        errors = chance.choice(
            (
                "",
                "<Error><Key>base/key</Key><Code>AccessDenied</Code><Message>no</Message></Error>",
                "<Error/>",
                "<Error><Key/><Code/></Error>",
                "<Error><Code>NoSuchKey</Code></Error>",
            )
        )
        root = chance.choice(("DeleteResult",) * 5 + ("html",))
        return reply("200 OK", f"<{root}{NAMESPACE}>{errors}</{root}>".encode(), content_type="application/xml")

    def lifecycle(self, chance: random.Random) -> Reply:
        """The answer to GetBucketLifecycleConfiguration."""
        tag = chance.choice(("<Tag><Key>a</Key><Value>b</Value></Tag>", "<Tag><Key>a</Key></Tag>", "<Tag/>", ""))
        form = chance.choice(
            (
                f"<Filter><And><Prefix>p</Prefix>{tag}</And></Filter>",
                f"<Filter>{tag}</Filter>",
                "<Prefix>p</Prefix>",
                "<Filter/>",
            )
        )
        act = chance.choice(
            (
                f"<Expiration><Days>{number(chance, 30)}</Days></Expiration>",
                f"<Expiration><Date>{dates(chance, '2030-01-01T00:00:00Z')}</Date></Expiration>",
                f"<Transition><Days>{number(chance, 90)}</Days><StorageClass>GLACIER</StorageClass></Transition>",
                "<Transition/><Expiration/>",
                "<Transition><StorageClass>DEEP_ARCHIVE</StorageClass></Transition>",
            )
        )
        status = word(chance, "Enabled").replace("<", "")
        rule = f"<Rule><ID>{escape(word(chance, 'r'))}</ID><Status>{status}</Status>{form}{act}</Rule>"
        return reply(
            "200 OK", f"<LifecycleConfiguration{NAMESPACE}>{rule}</LifecycleConfiguration>".encode("utf-8", "replace")
        )

    def kept(self, chance: random.Random, call: Sequence[str]) -> list[Reply]:
        """What protects objects, and what is kept of them."""

        def document(root: str, inner: str) -> Reply:
            body = f"<{root}{NAMESPACE}>{inner}</{root}>"
            return reply("200 OK", body.encode("utf-8", "replace"), content_type="application/xml")

        until = dates(chance, "2030-01-01T00:00:00Z")
        mode = escape(word(chance, "COMPLIANCE"))
        match call[0]:
            case "protection":
                default = f"<DefaultRetention><Mode>{mode}</Mode><Days>{number(chance, 3)}</Days></DefaultRetention>"
                rule = f"<Rule>{default}</Rule>"
                return [
                    document("VersioningConfiguration", f"<Status>{escape(word(chance, 'Enabled'))}</Status>"),
                    document(
                        "ObjectLockConfiguration",
                        f"<ObjectLockEnabled>{escape(word(chance, 'Enabled'))}</ObjectLockEnabled>{rule}",
                    ),
                ]
            case "versions":
                kinds = [chance.choice(("Version", "Version", "DeleteMarker")) for _ in range(4)]
                entries = "".join(
                    f"<{kind}><Key>{escape(word(chance, 'base/a'))}</Key>"
                    f"<VersionId>{escape(word(chance, 'v1'))}</VersionId>"
                    f"<IsLatest>{chance.choice(('true', 'false', ''))}</IsLatest>"
                    f"<LastModified>{until}</LastModified><ETag>&quot;e&quot;</ETag>"
                    f"<Size>{number(chance, 10)}</Size></{kind}>"
                    for kind in kinds
                )
                more = chance.choice(
                    (
                        "<IsTruncated>false</IsTruncated>",
                        "<IsTruncated>true</IsTruncated>",
                        "<IsTruncated>true</IsTruncated><NextKeyMarker>base/a</NextKeyMarker>",
                        "<IsTruncated>true</IsTruncated><NextKeyMarker>a</NextKeyMarker>"
                        "<NextVersionIdMarker>v1</NextVersionIdMarker>",
                    )
                )
                page = document("ListVersionsResult", more + entries)
                return [page, page, self.content(chance, call)]
            case _:
                head = self.content(chance, call)
                ongoing = chance.choice(("true", "false", "x"))
                head.headers += [
                    ("x-amz-object-lock-mode", word(chance, "COMPLIANCE")),
                    ("x-amz-object-lock-retain-until-date", until),
                    ("x-amz-object-lock-legal-hold", word(chance, "ON")),
                    ("x-amz-storage-class", word(chance, "GLACIER")),
                    ("x-amz-archive-status", word(chance, "ARCHIVE_ACCESS")),
                    (
                        "x-amz-restore",
                        f'ongoing-request="{ongoing}", expiry-date="{dates(chance, DATE)}"',
                    ),
                ]
                if chance.random() < 0.5:
                    head.headers = [each for each in head.headers if chance.random() < 0.7]
                retention = f"<Mode>{mode}</Mode><RetainUntilDate>{until}</RetainUntilDate>"
                return [
                    head,
                    document("Retention", chance.choice((retention, f"<Mode>{mode}</Mode>", ""))),
                    document("LegalHold", f"<Status>{escape(word(chance, 'ON'))}</Status>"),
                ]

    def refusal(self, chance: random.Random) -> Reply:
        """An error."""
        status = chance.choice(
            (
                "403 Forbidden",
                "404 Not Found",
                "400 Bad Request",
                "409 Conflict",
                "412 Precondition Failed",
                "416 Range",
                "500 Internal Error",
                "503 Slow Down",
                "200 OK",
                "301 Moved Permanently",
            )
        )
        inner = chance.choice(
            ("", "{{2000*<a>}}", "<Region>x</Region>", "<Endpoint>{{other}}</Endpoint>", "<RequestId>1</RequestId>")
        )
        message = escape(word(chance, "as told"))
        body = f"<Error><Code>{chance.choice(_CODES)}</Code><Message>{message}</Message>{inner}</Error>"
        if chance.random() < 0.1:
            body = chance.choice(
                ("", "<html>no</html>", "{}", "{{100000*<a>}}", "<Errors><Error><Code>x</Code></Error></Errors>")
            )
        headers = (
            {"date": dates(chance, DATE), "x_amz_bucket_region": word(chance, "eu-west-1")}
            if chance.random() < 0.5
            else {}
        )
        return reply(status, body.encode("utf-8", "replace"), **headers)
