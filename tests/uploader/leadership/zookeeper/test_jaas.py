"""JAAS files as Java reads them. An invalid file, or a value that only a JVM resolves, is an error without a value."""

import pytest

from ts_uploader.leadership.zookeeper.jaas import JaasError, parse_jaas

FILE = """\
// a broker's
KafkaServer {
   org.apache.kafka.common.security.plain.PlainLoginModule required
   username="admin" password="not this one" user_admin="nor this";
};
/* several
   lines { ; */
Client {
   org.apache.zookeeper.server.auth.DigestLoginModule REQUIRED
   username="kafka"   // a comment
   password="a \\"quoted\\\\ {;=} // \\u0020\\101"
   debug=true;
   com.example.Second optional
   keyTab="/etc/kafka/client.keytab";
};
"""


def test_each_module_of_a_section_is_read() -> None:
    """Comments, quotes with escapes, signs within quotes, several modules and sections."""
    sections = parse_jaas(FILE)
    assert list(sections) == ["KafkaServer", "Client"]
    first, second = sections["Client"]
    assert first.module == "org.apache.zookeeper.server.auth.DigestLoginModule"
    assert first.options == {"username": "kafka", "password": 'a "quoted\\ {;=} // u0020A', "debug": "true"}
    assert (second.module, second.options) == ("com.example.Second", {"keyTab": "/etc/kafka/client.keytab"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('Client { M required\npassword="hush" };', "line 2: an option or ; is expected"),
        ("Client { M required password=hush; }", "line 1: ; is expected"),
        ("Client { M sometimes password=hush; };", "line 1: after M one of"),
        ("Client { M required password hush; };", "line 1: = is expected"),
        ("Client { M required password=; };", "line 1: a value is expected"),
        ('Client {\n M required password="hush', "line 2: a quote or comment that does not end"),
        ("Client { M required /* hush", "line 1: a quote or comment that does not end"),
        ("Client { }; Client { };", "section Client occurs twice"),
        ('Client { M required password="${hush}"; };', "option password names a property of the JVM"),
        ("Client", "line 1: { is expected"),
        ("Client { M required keyTab=/etc/hush; };", "a character that has no place here"),
    ],
)
def test_what_java_would_refuse_is_an_error(text: str, said: str) -> None:
    """The error names the line, and no value of an option."""
    with pytest.raises(JaasError) as refused:
        parse_jaas(text)
    assert said in str(refused.value)
    assert "hush" not in str(refused.value)
