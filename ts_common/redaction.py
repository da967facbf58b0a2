"""Hide credentials in text for people: `http://name:password@proxy:3128`, `https://host/blob?sig=...`.

Messages never contain secret settings. They do contain URLs, because a URL names a store or a proxy.
"""

import re
from typing import Final

HIDDEN: Final = "***@"
_HIDDEN_VALUE: Final = "***"
_MOST: Final = 1024  # characters of a password; without a limit, the time for a hostile text grows with its square
# RFC 3986 calls it userinfo. Parsers of URLs end it at the last `@` before the path. A password may contain `@`, and by
# mistake a slash. So after a colon the last `@` before a quote, a space or the next URL counts.
_PASSWORD: Final = rf"[^\s/@'\"]{{0,{_MOST}}}:(?:(?![,;|][a-z][a-z0-9+.-]{{0,30}}://)[^\s'\"]){{0,{_MOST}}}"
_NAME: Final = rf"(?P<name>[^\s/?#'\"]{{1,{_MOST}}})"
_USERINFO: Final = re.compile(rf"(?P<scheme>[a-z0-9+.-]{{0,30}})://(?:{_PASSWORD}|{_NAME})@", re.IGNORECASE)
# In Azure's URLs for Hadoop the container is first: abfss://container@account.dfs.core.windows.net.
_CONTAINER_FIRST: Final = {"abfs", "abfss", "wasb", "wasbs"}

# Parameters of a query whose value is a credential: Azure's SAS, presigned URLs of S3 (versions 4 and 2) and of
# Google, delegation tokens of WebHDFS, tokens of OAuth. A query inside a query is percent-encoded.
_SECRETS: Final = (
    r"sig|signature|x-amz-signature|x-amz-security-token|x-goog-signature|x-goog-security-token"
    r"|access_token|refresh_token|id_token|client_secret|delegation|token"
)
_PARAMETER: Final = re.compile(
    rf"(?P<name>(?<![\w-])(?:{_SECRETS})|(?<=%26|%3f)(?:{_SECRETS}))(?P<equals>=|%3D)(?P<value>[^&\s'\"<>#;,]+)",
    re.IGNORECASE,
)


def redacted(text: str) -> str:
    """Return the text with `***` for each URL's name and password, and for each signature and token in a query.

    Args:
        text: any; a text without credentials is returned as it is.
    """
    if "@" in text and "://" in text:
        text = _USERINFO.sub(_hidden, text)
    if "=" in text or "%3" in text:
        text = _PARAMETER.sub(rf"\g<name>\g<equals>{_HIDDEN_VALUE}", text)
    return text


def _hidden(found: re.Match[str]) -> str:
    name = found["name"]
    if name and "@" not in name and found["scheme"].lower() in _CONTAINER_FIRST:
        return found[0]
    return f"{found['scheme']}://{HIDDEN}"
