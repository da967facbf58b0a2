"""One entry of a JAAS file, as Java's `javax.security.auth.login.Configuration` reads it (`ConfigFile`). Pure.

The grammar::

    file    = { section }
    section = name "{" { module flag { option "=" value } ";" } "}" ";"
    flag    = required | requisite | sufficient | optional

Comments are `// ...` and `/* ... */`. A value is a word, without a slash, or a text in double quotes with escapes.
Java expands `${name}` in a value with a property of its JVM; here such a value is an error.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
      | "(?P<text>(?:[^"\\\n]|\\.)*)"
      | (?P<word>[^\s"{};=/]+)
      | (?P<sign>[{};=])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}
_FLAGS = {"required", "requisite", "sufficient", "optional"}


class JaasError(ValueError):
    """A JAAS file that Java would reject, or with a value that only a JVM can resolve. No message contains a value."""


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """One login module of a section.

    Attributes:
        module: the class's full name.
        options: by name; passwords may be among them.
    """

    module: str
    options: Mapping[str, str] = field(repr=False)


class _Token(NamedTuple):
    text: str
    quoted: bool
    line: int


def parse_jaas(text: str) -> dict[str, tuple[JaasEntry, ...]]:
    """Return the login modules of each section.

    Raises:
        JaasError: the text does not follow the grammar, or a section occurs twice.
    """
    tokens = _Tokens(text)
    sections: dict[str, tuple[JaasEntry, ...]] = {}
    while (name := tokens.next_or_none()) is not None:
        if name.text in sections:
            raise JaasError(f"line {name.line}: section {name.text} occurs twice")
        tokens.expect("{")
        entries = []
        while not tokens.take("}"):
            entries.append(_entry(tokens))
        tokens.expect(";")
        sections[name.text] = tuple(entries)
    return sections


def _entry(tokens: "_Tokens") -> JaasEntry:
    module = tokens.word("the class of a login module")
    flag = tokens.word("a flag")
    if flag.text.lower() not in _FLAGS:
        raise JaasError(f"line {flag.line}: after {module.text} one of {', '.join(sorted(_FLAGS))} is expected")
    options = {}
    while not tokens.take(";"):
        name = tokens.word("an option or ;")
        tokens.expect("=")
        value = tokens.value()
        if "${" in value.text:
            raise JaasError(f"line {value.line}: option {name.text} names a property of the JVM (${{...}})")
        options[name.text] = value.text
    return JaasEntry(module.text, options)


class _Tokens:
    def __init__(self, text: str) -> None:
        self._tokens = list(_split(text))
        self._at = 0

    def next_or_none(self) -> _Token | None:
        if self._at == len(self._tokens):
            return None
        self._at += 1
        return self._tokens[self._at - 1]

    def take(self, sign: str) -> bool:
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        found = token is not None and token.text == sign and not token.quoted
        self._at += found
        return found

    def expect(self, sign: str) -> None:
        if not self.take(sign):
            raise JaasError(f"line {self._line()}: {sign} is expected")

    def word(self, what: str) -> _Token:
        token = self.next_or_none()
        if token is None or (not token.quoted and token.text in "{};="):
            raise JaasError(f"line {self._line()}: {what} is expected")
        return token

    def value(self) -> _Token:
        return self.word("a value")

    def _line(self) -> int:
        at = min(self._at, len(self._tokens) - 1)
        return self._tokens[at].line if self._tokens else 1


def _split(text: str) -> Iterator[_Token]:
    at, line = 0, 1
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise JaasError(f"line {line}: a quote or comment that does not end, or a character that has no place here")
        if found["text"] is not None:
            yield _Token(_ESCAPE.sub(_unescaped, found["text"]), quoted=True, line=line)
        elif found["space"] is None:
            yield _Token(found["word"] or found["sign"], quoted=False, line=line)
        line += text.count("\n", at, found.end())
        at = found.end()


def _unescaped(found: re.Match[str]) -> str:
    escaped = found[1]
    return chr(int(escaped, 8)) if escaped.isdigit() else _ESCAPES.get(escaped, escaped)
