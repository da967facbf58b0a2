"""Every target, with the limits of one input."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """One target.

    Attributes:
        place: `module:Class` of it.
        seconds: after which an input hangs.
        mib: of resident memory that its inputs may add.
        share: of the seconds of a run, relative to other targets.
        guided: atheris may choose inputs by the code that they reach: it is pure Python and has no threads.
        known: failures of a library that the project cannot fix; they are reported, and do not count.
    """

    place: str
    seconds: float = 10.0
    mib: int = 256
    share: int = 1
    guided: bool = False
    known: tuple[str, ...] = ()


TARGETS = {
    "archives": Entry("tests.fuzz.archives:Archives"),
    "parsers": Entry("tests.fuzz.parsers:Parsers", guided=True),
    "decoder": Entry("tests.fuzz.decoder:Decoder", seconds=60.0, mib=384, share=5),
    # A value of many small items needs 200 times its bytes while it is Python objects.
    "codecs": Entry("tests.fuzz.codecs:Codecs", mib=384),
    "segments": Entry("tests.fuzz.segments:Segments", guided=True),
    "key-indexes": Entry("tests.fuzz.key_indexes:KeyIndexes", mib=384),
    "answers-s3": Entry("tests.fuzz.answers.s3:S3Answers", seconds=20.0, mib=512),
    "answers-azure": Entry("tests.fuzz.answers.azure:AzureAnswers", seconds=20.0, mib=512),
    "answers-google": Entry("tests.fuzz.answers.google:GoogleAnswers", seconds=20.0, mib=512),
    "answers-hdfs": Entry("tests.fuzz.answers.hdfs:HdfsAnswers", seconds=20.0, mib=512),
    "zookeeper": Entry("tests.fuzz.answers.zookeeper_nodes:ZookeeperNodes", guided=True),
    # librdkafka trusts its broker: a count of -1 (rd_kafka_parse_Metadata0) or of 2^31 ends the process.
    "broker": Entry(
        "tests.fuzz.answers.broker:BrokerAnswers", seconds=20.0, known=("died: signal SIGSEGV", "died: signal SIGABRT")
    ),
    "broker-direct": Entry("tests.fuzz.answers.broker:DirectAnswers", seconds=20.0),
    "tokens": Entry("tests.fuzz.answers.tokens:Tokens", seconds=30.0, mib=512),
}


def shared(seconds: float, names: Sequence[str]) -> dict[str, float]:
    """Return the seconds of each target in a run of all of these."""
    shares = sum(TARGETS[name].share for name in names)
    return {name: seconds * TARGETS[name].share / shares for name in names}
