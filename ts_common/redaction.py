"""Text for people without the credentials that stand in a URL, as in `http://name:password@proxy:3128`.

Settings that are secret are never put into a message; a URL is, since without it nobody knows which was meant.
"""

import re

# What RFC 3986 calls the userinfo; a password may be written with slashes or spaces in it by mistake.
_USERINFO = re.compile(r"(?P<scheme>[a-z0-9+.-]*)://(?:[^\s/@'\"]*:[^\s@'\"]*|(?P<name>[^\s/@'\"]+))@", re.IGNORECASE)
# In Azure's URLs for Hadoop the container stands there: abfss://container@account.dfs.core.windows.net.
_CONTAINER_FIRST = {"abfs", "abfss", "wasb", "wasbs"}
HIDDEN = "***@"


def redacted(text: str) -> str:
    """The same text, with `***` in place of the name and the password of each URL in it."""
    return _USERINFO.sub(_hidden, text) if "@" in text else text


def _hidden(found: re.Match[str]) -> str:
    if found["name"] and found["scheme"].lower() in _CONTAINER_FIRST:
        return found[0]
    return f"{found['scheme']}://{HIDDEN}"
