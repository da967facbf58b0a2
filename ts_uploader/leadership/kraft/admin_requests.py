"""librdkafka's admin client with the agent's settings: it opens, waits for several answers at once, and closes."""

import concurrent.futures
import threading
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from ts_common.config.cluster_config import KAFKA_CLIENT as PREFIX
from ts_common.errors import ConfigurationError, TransientError

DENIALS = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
_LEAST_SECONDS = 0.1
_TO_KAFKAS = str.maketrans("+/", "-_", "=")
_OURS: Mapping[str, Any] = {
    "client.id": "ts-uploader",
    "allow.auto.create.topics": False,
    "log_level": 0,  # librdkafka writes each refused connection to stderr; the error callback receives them as well
    "reconnect.backoff.max.ms": 1_000,
    "topic.metadata.refresh.interval.ms": -1,
    "receive.message.max.bytes": 16 << 20,  # far above any answer to these requests; librdkafka's default is 100 MB
}


class BrokerAway(TransientError):
    """The broker gave no answer, or another broker gave one."""


class AdminRequests:
    """An admin client. Used by one thread.

    Attributes:
        admin: the client.
        last_error: the reason of the last failure; empty after an answer.

    Args:
        answer_seconds: timeout of one request.

    Raises:
        ConfigurationError: librdkafka rejects the settings, or cannot read the files that they name.
    """

    def __init__(self, settings: Mapping[str, str], answer_seconds: float) -> None:
        self.answer_seconds = answer_seconds
        self.last_error = ""
        self._settings = dict(settings)
        self.admin = self._new_admin()

    def collect(self, answers: Mapping[Any, "concurrent.futures.Future[Any]"]) -> tuple[dict[Any, Any], dict[Any, int]]:
        """Return the answers, and the error codes of the requests that failed: librdkafka's below 0, Kafka's above."""
        found, failed = {}, {}
        # librdkafka ends each request at its timeout; this waits a little longer, once for all of them.
        concurrent.futures.wait(answers.values(), self.answer_seconds + _LEAST_SECONDS)
        self.call_back()
        for request, answer in answers.items():
            try:
                found[request] = answer.result(0)
            except KafkaException as error:
                failed[request] = error.args[0].code()
                self.last_error = self.last_error or error.args[0].str()
            except concurrent.futures.TimeoutError:
                failed[request] = KafkaError._TIMED_OUT
        if found:
            self.last_error = ""
        return found, failed

    def call_back(self) -> None:
        """Have librdkafka report the errors of its connections."""
        self.admin.poll(0)

    def away(self, error: KafkaException) -> BrokerAway:
        """Return the error of a request without an answer, with the reason."""
        return BrokerAway(self.last_error or error.args[0].str())

    def restart(self) -> None:
        """Replace the client by one that has the bootstrap address only.

        Raises:
            BrokerAway: a file that the settings name cannot be read at this moment; the former client stays.
        """
        try:
            admin = self._new_admin()
        except ConfigurationError as error:
            raise BrokerAway("; ".join(error.problems)) from error
        self.close(0.0)
        self.admin = admin

    def close(self, seconds: float) -> None:
        """Close the client on another thread, and wait for that at most this long.

        During a handshake with a broker that does not answer, librdkafka closes slowly.
        """
        held = [self.admin]
        del self.admin
        thread = threading.Thread(target=held.clear, name="kafka-close", daemon=True)
        thread.start()
        thread.join(seconds)

    def _new_admin(self) -> AdminClient:
        try:
            settings: dict[str, Any] = {**_OURS, **self._settings, "error_cb": self._take_error}
            return AdminClient(settings)
        except KafkaException as error:
            rejected = f"librdkafka rejects {PREFIX}* or the settings of the broker's file: {error.args[0].str()}"
            raise ConfigurationError("the connection to the broker", [rejected]) from error

    def _take_error(self, error: KafkaError) -> None:
        # "All brokers down" follows the reason, and contains less.
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self.last_error:
            self.last_error = error.str()


def kafkas_id(topic_id: object) -> str:
    """Return a topic id as Kafka writes it, URL-safe base64; librdkafka writes plain base64."""
    return str(topic_id).translate(_TO_KAFKAS)
