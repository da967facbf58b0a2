"""Brokers with TLS and SASL."""

import subprocess
from pathlib import Path

from dev.local.kafka.cluster import LocalCluster
from dev.local.ports import LOOPBACK, free_port

PASSWORD = "hush, hush"


STORE_PASSWORD = "changeit"


LOGIN = "org.apache.kafka.common.security"


# The inter-broker listener, and the settings that it needs in addition to its name.
LISTENERS = {
    "MUTUAL": {},
    "SCRAM": {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512"},
    "SECRET": {"sasl.mechanism.inter.broker.protocol": "PLAIN"},
}


# The settings of a client of the listener with OAUTHBEARER, which the raw connection lacks.
TOKEN = {
    "security.protocol": "sasl_plaintext",
    "sasl.mechanism": "OAUTHBEARER",
    "enable.sasl.oauthbearer.unsecure.jwt": "true",
    "sasl.oauthbearer.config": "principal=agent",
}


def make_certificates(directory: Path) -> None:
    """Write `ca.pem`, and a certificate of that authority for 127.0.0.1 as `broker.pem` and `broker.p12`."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True, timeout=60)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority")
    subject = ["-subj", "/CN=broker", "-addext", f"subjectAltName=IP:{LOOPBACK}"]
    openssl(
        "req", "-x509", *key, "-CA", "ca.pem", "-CAkey", "ca.key", *subject, "-keyout", "key.pem", "-out", "own.pem"
    )
    (directory / "broker.pem").write_text((directory / "key.pem").read_text() + (directory / "own.pem").read_text())
    store = ["-out", "broker.p12", "-passout", f"pass:{STORE_PASSWORD}", "-name", "broker"]
    openssl("pkcs12", "-export", "-inkey", "key.pem", "-in", "own.pem", *store)


def secured(cluster: LocalCluster, certificates: Path) -> dict[str, str]:
    """Return properties of three more listeners for the cluster's broker, each with its own security settings."""
    known = cluster.brokers[1].properties
    more = ",".join(f"{name}://{LOOPBACK}:{free_port()}" for name in (*LISTENERS, "TOKEN"))
    protocols = "MUTUAL:SSL,SCRAM:SASL_PLAINTEXT,SECRET:SASL_SSL,TOKEN:SASL_PLAINTEXT"
    credentials = f'required username="agent" password="{PASSWORD}"'
    return {
        "listeners": f"{known['listeners']},{more}",
        "advertised.listeners": f"{known['advertised.listeners']},{more}",
        "listener.security.protocol.map": f"{known['listener.security.protocol.map']},{protocols}",
        "inter.broker.listener.name": "MUTUAL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates / "ca.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.keystore.type": "PKCS12",
        "listener.name.mutual.ssl.keystore.location": str(certificates / "broker.p12"),
        "listener.name.mutual.ssl.keystore.password": STORE_PASSWORD,
        "listener.name.secret.ssl.keystore.type": "PEM",
        "listener.name.secret.ssl.keystore.location": str(certificates / "broker.pem"),
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.scram.scram-sha-256.sasl.jaas.config": f"{LOGIN}.scram.ScramLoginModule {credentials};",
        "listener.name.scram.scram-sha-512.sasl.jaas.config": f"{LOGIN}.scram.ScramLoginModule {credentials};",
        "listener.name.secret.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.token.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.token.oauthbearer.sasl.jaas.config": (
            f'{LOGIN}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="agent";'
        ),
        # All principals except the guest.
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:CN=broker;User:agent",
        "listener.name.secret.plain.sasl.jaas.config": (
            f'{LOGIN}.plain.PlainLoginModule {credentials} user_agent="{PASSWORD}" user_guest="{PASSWORD}" '
            f'user_guest2="{PASSWORD}";'
        ),
    }
