"""The configuration reference as Markdown, from the descriptions in the code."""

import re
from collections.abc import Iterator
from enum import StrEnum
from types import NoneType
from typing import get_args

from pydantic.fields import FieldInfo

from ts_common.config import zookeeper_options
from ts_common.config.cluster_config import ClusterConfig, is_changeable, unit_of
from ts_common.config.java_keys import JAVA_KEYS
from ts_common.store.option_table import OPTIONS
from ts_common.store.options import PREFIX

_HEAD = """\
# Configuration of a cluster

Generated from `ts_common/config/cluster_config.py` by `make docs`.

Each cluster has one file, `<clusterId>.properties`, in Java's format for properties. An unknown key is an error.
S3 credentials are read from the AWS credential chain, never from this file.

On SIGHUP the agent reads the file again and applies the keys that are marked as changeable. If any other key differs,
the agent logs that it needs a restart. If the file has errors, nothing changes.
"""
_S3_HEAD = """
These options configure S3 requests and stored objects for all topics. The file of the provider json can override them
for an endpoint or a topic ([the bucket](store.md#json)). Options that are absent are left to the AWS configuration and
to the bucket. [Contributing](contributing.md#options-of-s3) lists the tests of each option.
"""
_ZOOKEEPER_HEAD = """
These keys configure the connection to ZooKeeper where the broker's own file does not suffice. A key with `ssl` replaces
the setting `zookeeper.ssl.*` of that name in the broker's file. The agent reads the keys at its start, and the files
that they name at each connection ([ZooKeeper](deploy.md#zookeeper-over-tls-and-sasl)).
"""
_JAVA_HEAD = """
These keys of the Java uploader are accepted with a warning:
"""


def reference_page() -> str:
    """Return the page as Markdown."""
    lines = [
        *_table(_HEAD, "key", "type", "default", "meaning"),
        *(_row(name, info) for name, info in ClusterConfig.model_fields.items() if info.alias is not None),
        *_table(_S3_HEAD, "key", "meaning"),
        *(f"| `{PREFIX}{option.name}` | {option.doc} |" for option in OPTIONS),
        *_table(_ZOOKEEPER_HEAD, "key", "meaning"),
        *(f"| `{zookeeper_options.PREFIX}{option.name}` | {option.doc} |" for option in zookeeper_options.OPTIONS),
        *_table(_JAVA_HEAD, "key", "why it has no effect on the agent"),
        *(f"| `{key.pattern}` | {key.reason} |" for key in JAVA_KEYS),
    ]
    return "\n".join(lines) + "\n"


def _table(head: str, *columns: str) -> Iterator[str]:
    yield head
    yield f"| {' | '.join(columns)} |"
    yield f"| {' | '.join('---' for _ in columns)} |"


def _row(name: str, info: FieldInfo) -> str:
    changeable = " Changeable while the agent runs." if is_changeable(name) else ""
    return f"| `{info.alias}` | {_type_of(name, info)} | {_default_of(name, info)} | {info.description}{changeable} |"


def _type_of(name: str, info: FieldInfo) -> str:
    kind = next(kind for kind in (get_args(info.annotation) or (info.annotation,)) if kind is not NoneType)
    if kind is bool:
        return "true or false"
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return " or ".join(kind)
    if info.annotation == tuple[re.Pattern[str], ...]:
        return "patterns"
    if info.annotation == tuple[str, ...]:
        return "host names"
    return _number(name, info, "whole number" if kind is int else "number") if kind in {int, float} else "text"


def _number(name: str, info: FieldInfo, text: str) -> str:
    bounds = dict(bound for each in info.metadata for bound in _bounds(each))
    for bound, words in (("ge", "from"), ("gt", "above"), ("le", "to")):
        if bound in bounds:
            text += f" {words} {bounds[bound]}"
    unit = unit_of(name)
    return f"{text}, {unit}" if unit else text


def _bounds(constraint: object) -> list[tuple[str, object]]:
    return [(name, getattr(constraint, name)) for name in ("ge", "gt", "le") if hasattr(constraint, name)]


def _default_of(name: str, info: FieldInfo) -> str:
    if name == "entropy_bits":
        return "none"
    default = getattr(info.default, "value", info.default)
    if isinstance(default, bool):
        default = str(default).lower()
    if isinstance(default, tuple):
        default = ",".join(pattern.pattern for pattern in default)
    return f"`{default}`" if default or default == 0 else ""
