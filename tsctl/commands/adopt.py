"""`tsctl adopt-topic-id`: decides which incarnation a new topic id belongs to, if no agent can decide it.

It adds one entry to the topic's list of incarnations, on condition that the list is still the one it read. The identity
must be allowed to put objects.
"""

import time
from typing import Annotated

import typer

from ts_common.archive.incarnations import read_incarnations
from ts_common.archive.small_objects import INCARNATIONS_BYTES, checked
from ts_common.errors import ConfigurationError, QueryError
from ts_common.model import is_topic_name
from ts_common.option_groups import with_groups
from ts_common.store.contract import IfMatch
from ts_reader.options.archive_name import SOURCE
from ts_reader.reading.incarnation_option import is_topic_id
from tsctl.archive_options import ArchiveOptions, JsonOption, open_archive
from tsctl.output import Output

_MILLISECONDS = 1000


@with_groups
def adopt_topic_id(
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    topic_id: Annotated[str, typer.Argument(help="The new id, as in the agent's error and partition.metadata.")],
    *,
    given: ArchiveOptions,
    separate: Annotated[
        bool, typer.Option("--separate", help="The log is another one: the id starts a new incarnation of the topic.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Let a topic id that replaced another one (KAFKA-14190) continue the topic's newest incarnation."""
    output = Output(as_json)
    problems = [] if is_topic_name(topic) else [f"{topic}: not a valid topic name"]
    if not is_topic_id(topic_id):
        problems.append(f"{topic_id}: a topic id has 22 characters, letters, digits, '-' and '_'")
    if problems:
        raise ConfigurationError(SOURCE, problems)
    name = given.name()
    with open_archive(name, output.warn) as archive:
        store, key = archive.store_of(topic), archive.keys.incarnations(topic)
        known, etag = read_incarnations(store, archive.keys, topic)
        if etag is None or not known.entries:
            archive.topics([topic])  # an error that names the clusters or topics that are there
            raise QueryError(f"{key}: {store.location} has no topic id of {topic}; the agent writes the first one")
        found = known.find(topic_id)
        if found is None:
            now = int(time.time() * _MILLISECONDS)
            changed = known.opened(topic_id, now, archive.keys) if separate else known.adopted(topic_id, now)
            store.put(key, checked(changed.encode(), key, INCARNATIONS_BYTES), condition=IfMatch(etag))
            found = changed.entries[-1]
        elif found.directory != known.newest_directory:
            raise QueryError(f"{key}: topic id {topic_id} belongs to an earlier incarnation, {found.directory}")
        if as_json:
            output.document({"topic": topic, "topic_id": topic_id, "directory": found.directory})
        else:
            output.text(f"{topic}: topic id {topic_id} belongs to {found.directory}")
