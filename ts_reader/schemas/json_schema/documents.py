"""The documents of a JSON Schema, and the schema that a `$ref` of one of them names.

Resolved are `#`, JSON pointers (`#/definitions/Address`, `#/$defs/Address`), anchors (`#address`, of `$anchor`, or of
`$id` or `id` in drafts 4 to 7), and the names of references in the registry, with a pointer or an anchor after them.
Nothing is fetched from the URL of a `$ref`.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from ts_common.errors import CorruptData
from ts_reader.schemas.bundle import Bundle
from ts_reader.schemas.schema_source import parse_schema_text


class Document:
    """One schema, with the documents that it may refer to.

    Args:
        root: its JSON.
        others: by the names in its references.
    """

    def __init__(self, root: Any, others: dict[str, "Document"]) -> None:
        self.root = root
        self._others = others
        self._ids = {text for name in ("$id", "id") if isinstance(text := _get(root, name), str) and text}
        self._anchors: dict[str, Any] | None = None

    def resolve(self, reference: str) -> tuple["Document", Any] | None:
        """Return the document and the schema that a `$ref` names; None if it does not exist."""
        address, _, fragment = reference.partition("#")
        document = self if not address or address in self._ids else self._others.get(address)
        if document is None:
            return None
        found = document.at(unquote(fragment))
        return None if found is None else (document, found)

    def at(self, fragment: str) -> Any:
        """Return the schema at a JSON pointer or an anchor; None if it does not exist."""
        if not fragment:
            return self.root
        if not fragment.startswith("/"):
            if self._anchors is None:
                self._anchors = dict(_anchors(self.root))
            return self._anchors.get(fragment)
        found = self.root
        for step in fragment[1:].split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isdigit() and len(name) < 7 and int(name) < len(found):
                found = found[int(name)]
            else:
                found = _get(found, name)
        return found


def documents_of(bundle: Bundle) -> Document:
    """Return the document of a schema.

    Raises:
        CorruptData: it is not JSON, or neither an object nor a boolean.
    """
    others: dict[str, Document] = {}
    for name, schema in bundle.references:
        others[name] = Document(parse_schema_text(schema), others)
    root = parse_schema_text(bundle.schema)
    if not isinstance(root, dict | bool):
        raise CorruptData(f"{bundle.schema}: not a JSON Schema: an object or a boolean is expected")
    return Document(root, others)


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _anchors(root: Any) -> Iterator[tuple[str, Any]]:
    pending = [root]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            for name in ("$anchor", "$id", "id"):
                anchor = value.get(name)
                if isinstance(anchor, str) and (name == "$anchor" or anchor.startswith("#")):
                    yield anchor.lstrip("#"), value
            pending += value.values()
        elif isinstance(value, list):
            pending += value
