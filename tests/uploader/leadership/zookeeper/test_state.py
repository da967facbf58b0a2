"""The pure state of the ZooKeeper source: the newest version of each node counts."""

from tests.uploader.leadership.zookeeper.kafka_nodes import (
    BROKER,
    EVERYONES,
    OWN,
    SETTINGS,
    STATE,
    TOPIC,
    TP,
    all_of,
    settings,
    state,
    topic,
)
from ts_uploader.leadership.zookeeper.state import Node, ZookeeperState, state_path
from ts_uploader.messages.observations import Leadership, Led, NotLed
from ts_uploader.retention.topic_retention import BrokerSettings, TopicSettings


def known_state(topic_node: Node | None) -> ZookeeperState:
    known = ZookeeperState(BROKER)
    known.follow({TP})
    known.take_topic(TOPIC, topic_node)
    return known


def test_an_answer_older_than_what_is_known_does_not_win() -> None:
    """A server that lags shows a leadership that has ended, this broker's or another's: both are ignored."""
    known = known_state(Node(topic("id"), 10, 10))
    assert known.take_state(STATE, Node(state(BROKER, 5), 20, 50), 1) == Led(TP, Leadership(5, "id", 1))
    assert known.take_state(STATE, Node(state(2, 4), 20, 40), 2) is None
    assert known.take_state(STATE, Node(state(BROKER, 5), 20, 50), 3) == Led(TP, Leadership(5, "id", 1))
    assert known.take_state(STATE, Node(state(2, 6), 20, 60), 4) == NotLed(TP)
    assert known.take_state(STATE, Node(state(BROKER, 5), 20, 50), 5) is None
    known.forget_versions()
    assert known.take_state(STATE, Node(state(BROKER, 5), 20, 50), 6) == Led(TP, Leadership(5, "id", 6))


def test_a_re_created_node_is_newer_than_the_deleted_one() -> None:
    """After an absence a later transaction counts, and an earlier one does not."""
    known = known_state(Node(topic("id"), 10, 10))
    assert known.take_state(STATE, Node(state(BROKER, 5), 20, 50), 1) == Led(TP, Leadership(5, "id", 1))
    assert known.take_state(STATE, None, 2) == NotLed(TP)
    assert known.take_state(STATE, Node(state(BROKER, 4), 20, 40), 3) is None
    assert known.take_state(STATE, Node(state(BROKER, 0), 60, 60), 4) == Led(TP, Leadership(0, "id", 4))


def test_an_absent_topic_is_unknown_and_not_a_topic_without_an_id() -> None:
    """Without the topic's node a state that names this broker is not reported; without a state no broker leads."""
    known = known_state(None)
    assert known.take_state(STATE, Node(state(BROKER, 5), 20, 20), 1) is None
    assert known.take_state(STATE, None, 2) == NotLed(TP)
    assert known.take_topic(TOPIC, Node(topic(None), 30, 30)) == {STATE}
    assert known.take_state(STATE, Node(state(BROKER, 0), 40, 40), 3) == Led(TP, Leadership(0, None, 3))


def test_a_state_of_a_former_incarnation_does_not_meet_the_new_id() -> None:
    """A state that was created before its topic belongs to an earlier topic of that name."""
    known = known_state(Node(topic("new"), 30, 30))
    assert known.take_state(STATE, Node(state(BROKER, 5), 20, 25), 1) is None
    assert known.take_state(STATE, Node(state(BROKER, 0), 40, 40), 2) == Led(TP, Leadership(0, "new", 2))


def test_settings_older_than_what_is_known_do_not_win() -> None:
    """A server that lags shows former settings of a topic; they are ignored."""
    known = known_state(None)
    now = TopicSettings("t", (("retention.ms", "2"),))
    assert known.take_settings(SETTINGS, Node(settings(retention_ms="2"), 20, 50)) == now
    assert known.take_settings(SETTINGS, Node(settings(retention_ms="1"), 20, 40)) is None
    assert known.take_settings(SETTINGS, Node(settings(retention_ms="2"), 20, 50)) == now


def test_a_brokers_settings_are_reported_when_both_levels_have_been_read() -> None:
    """One level alone would briefly undo the settings of the other."""
    known = ZookeeperState(BROKER)
    own = Node(settings(log_retention_ms="1"), 20, 20)
    everyones = Node(settings(log_retention_ms="2", log_cleanup_policy="compact"), 30, 30)
    assert known.settings == {EVERYONES, OWN}
    assert known.take_settings(OWN, own) is None
    expected = BrokerSettings((("log.cleanup.policy", "compact"), ("log.retention.ms", "1")))
    assert known.take_settings(EVERYONES, everyones) == expected
    expected = BrokerSettings((("log.cleanup.policy", "compact"), ("log.retention.ms", "2")))
    assert known.take_settings(OWN, None) == expected
    assert known.take_settings(EVERYONES, everyones) == expected


def test_each_topics_settings_are_followed_once() -> None:
    """Its path is new with the first partition of its topic, and removed with the last."""
    known = ZookeeperState(BROKER)
    first, second = all_of("t", 2)
    assert known.follow({first}) == {state_path(first), SETTINGS}
    assert known.follow({first, second}) == {state_path(second)}
    assert known.follow({second}) == set()
    assert SETTINGS in known.settings
    assert known.follow(set()) == set()
    assert known.settings == {EVERYONES, OWN}
    assert known.follow({first}) == {state_path(first), SETTINGS}
