"""Text for people without the credentials that stand in a URL, as in `http://name:password@proxy:3128`.

Settings that are secret are never put into a message; a URL is, since without it nobody knows which was meant.
"""

import re

# What RFC 3986 calls the userinfo; a password may be written with slashes or spaces in it by mistake.
_USERINFO = re.compile(r"(?<=://)[^\s/@'\"]*:[^\s@'\"]*@|(?<=://)[^\s/@'\"]+@")
HIDDEN = "***@"


def redacted(text: str) -> str:
    """The same text, with `***` in place of the name and the password of each URL in it."""
    return _USERINFO.sub(HIDDEN, text) if "@" in text else text
