"""Search values for a field: `user.id=42` is the text `42` at the path `user.id`.

Values are JSON, or what a codec with a schema returns. Each item of a list on the path is compared. A null is the text
`null`. A schema without the path is an error before a record is read. JSON has no schema, so one message at the
end counts the values that lack the field.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from ts_common.suggestions import nearest
from ts_common.wording import counted
from tsctl.record_lines import Form

_MISSING: Final = "without the field"
_OBJECT: Final = "with an object there, whose fields need a longer path"
_OTHER: Final = "with no object where the path needs one"


class FieldSearch:
    """Chooses records by a field of their values.

    Args:
        field: `PATH=TEXT`.
        form: of the values.

    Raises:
        ValueError: values of this form have no such field.
    """

    def __init__(self, field: str, form: Form) -> None:
        path, _, self._text = field.partition("=")
        self._path = path.split(".")
        self._form = form
        if not form.is_json:
            _check(form.type, self._path)
        self._found = 0
        self._lacking: Counter[str] = Counter()
        self._undecoded = 0
        self._reason = ""

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch whose value has the text at the path.

        Args:
            batch: with values and headers.

        Raises:
            as `Form.shown`.
        """
        shown = self._form.shown(batch.column("value"), batch.column("headers"))
        return batch.filter(pa.array([self._matches(value, reason) for value, reason in shown], pa.bool_()))

    def message(self) -> str | None:
        """Return what the values were that have no text to compare; None without any.

        Values without the field are normal if others have it.
        """
        told = [
            f"{counted(number, 'value')} {what}"
            for what, number in self._lacking.most_common()
            if what != _MISSING or not self._found
        ]
        if self._undecoded:
            told.append(f"{counted(self._undecoded, 'value')} not decoded, the first: {self._reason}")
        return f"--field {'.'.join(self._path)}: {'; '.join(told)}" if told else None

    def _matches(self, value: object, reason: str | None) -> bool:
        if reason is not None:
            self._undecoded += 1
            self._reason = self._reason or reason
            return False
        if value is None:  # a tombstone
            return False
        lacking = set[str]()
        texts = [*_texts(value, self._path, lacking)]
        self._found += bool(texts)
        self._lacking.update(() if texts else lacking)
        return self._text in texts


def _texts(value: object, path: Sequence[str], lacking: set[str]) -> Iterator[str]:
    """Yield the values at a path as texts; of a list those of each item. Add what the value has instead."""
    if isinstance(value, list):
        for item in value:
            yield from _texts(item, path, lacking)
    elif path and isinstance(value, dict):
        if path[0] in value:
            yield from _texts(value[path[0]], path[1:], lacking)
        else:
            lacking.add(_MISSING)
    elif path:
        lacking.add(_MISSING if value is None else _OTHER)
    elif isinstance(value, dict):
        lacking.add(_OBJECT)
    else:
        yield (
            {True: "true", False: "false", None: "null"}[value]
            if value is None or isinstance(value, bool)
            else str(value)
        )


def _check(kind: pa.DataType | None, path: Sequence[str]) -> None:
    """Check that values of a type have a field.

    Args:
        kind: None for bytes.

    Raises:
        ValueError: they have none.
    """
    done: list[str] = []
    for name in (*path, None):
        while kind is not None and (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            kind = kind.value_type
        where = ".".join(done) or "a value"
        if name is None:
            if kind is not None and pa.types.is_nested(kind):
                raise ValueError(f"{where} is an object; name a field of it")
        elif kind is not None and pa.types.is_map(kind):
            kind = kind.item_type
        elif kind is not None and pa.types.is_struct(kind):
            names = [field.name for field in kind]
            if name not in names:
                hint = nearest(name, names) or f"; it has {', '.join(names)}"
                raise ValueError(f"{where} has no field {name} by its schema{hint}")
            kind = kind.field(name).type
        else:
            raise ValueError(f"{where} is {'bytes' if kind is None else kind}, and has no field {name}")
        done += [name] if name is not None else []
