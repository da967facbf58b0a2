"""Real clients that list the topics of an endpoint, by a transport and a login."""

import asyncio
import json
import ssl
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka.admin import AdminClient

from dev.local.certificates import Certificates
from dev.local.kcat import kcat as debians_kcat
from tests.endpoint.network.java_tools import TOPICS, properties, run_tool


@dataclass(frozen=True)
class Access:
    """How a client connects."""

    certificates: Certificates | None = None
    shows_certificate: bool = False
    mechanism: str | None = None
    user: str = "alice"
    password: str = "correct horse"

    @property
    def protocol(self) -> str:
        prefix = "SASL_" if self.mechanism else ""
        return prefix + ("SSL" if self.certificates else "PLAINTEXT")

    def context(self) -> ssl.SSLContext | None:
        if self.certificates is None:
            return None
        context = ssl.create_default_context(cafile=str(self.certificates.authority))
        if self.shows_certificate:
            context.load_cert_chain(self.certificates.client, self.certificates.client_key)
        return context


def librdkafka_settings(bootstrap: str, access: Access) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "security.protocol": access.protocol}
    if access.certificates is not None:
        settings["ssl.ca.location"] = str(access.certificates.authority)
        if access.shows_certificate:
            settings["ssl.certificate.location"] = str(access.certificates.client)
            settings["ssl.key.location"] = str(access.certificates.client_key)
    if access.mechanism is not None:
        settings |= {"sasl.mechanism": access.mechanism}
        settings |= {"sasl.username": access.user, "sasl.password": access.password}
    return settings


async def confluent(bootstrap: str, access: Access, directory: Path) -> list[str]:
    admin = AdminClient(librdkafka_settings(bootstrap, access))
    return [*(await asyncio.to_thread(admin.list_topics, timeout=20)).topics]


async def kcat(bootstrap: str, access: Access, directory: Path) -> list[str]:
    """List the topics by Debian's kcat, whose librdkafka is years older than that of `confluent`."""
    program, environment = debians_kcat()
    settings = librdkafka_settings(bootstrap, access).items()
    options = [word for name, value in settings for word in ("-X", f"{name}={value}")]
    process = await asyncio.create_subprocess_exec(
        *(program, *options, "-L", "-J"),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, errors = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(errors.decode())
    return [topic["topic"] for topic in json.loads(printed)["topics"]]


async def aiokafka(bootstrap: str, access: Access, directory: Path) -> list[str]:
    admin = AIOKafkaAdminClient(
        bootstrap_servers=bootstrap,
        security_protocol=access.protocol,
        ssl_context=access.context(),
        sasl_mechanism=access.mechanism or "PLAIN",
        sasl_plain_username=access.user if access.mechanism else None,
        sasl_plain_password=access.password if access.mechanism else None,
    )
    await admin.start()
    try:
        return [*await admin.list_topics()]
    finally:
        await admin.close()


async def kafka_python(bootstrap: str, access: Access, directory: Path) -> list[str]:
    """List the topics in a process of its own: the package's import has warnings, which are errors in tests."""
    values = {"bootstrap_servers": bootstrap, "security_protocol": access.protocol, "sasl_mechanism": access.mechanism}
    if access.mechanism is not None:
        values |= {"sasl_plain_username": access.user, "sasl_plain_password": access.password}
    if access.certificates is not None:
        values |= {"ssl_cafile": str(access.certificates.authority)}
        if access.shows_certificate:
            values |= {"ssl_certfile": str(access.certificates.client)}
            values |= {"ssl_keyfile": str(access.certificates.client_key)}
    script = "import json, sys, kafka; print(*kafka.KafkaAdminClient(**json.loads(sys.argv[1])).list_topics())"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script, json.dumps(values)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, errors = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(errors.decode())
    return printed.decode().split()


async def java(bootstrap: str, access: Access, directory: Path) -> list[str]:
    values = {"security.protocol": access.protocol}
    if access.certificates is not None:
        values |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(access.certificates.authority)}
        if access.shows_certificate:
            pair = directory / "client-pair.pem"
            pair.write_bytes(access.certificates.client_key.read_bytes() + access.certificates.client.read_bytes())
            values |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(pair)}
    if access.mechanism is not None:
        module = "plain.PlainLoginModule" if access.mechanism == "PLAIN" else "scram.ScramLoginModule"
        login = f'username="{access.user}" password="{access.password}"'
        values |= {
            "sasl.mechanism": access.mechanism,
            "sasl.jaas.config": f"org.apache.kafka.common.security.{module} required {login};",
        }
    file = properties(directory / "client.properties", values)
    status, printed = await run_tool(TOPICS, ["--bootstrap-server", bootstrap, "--command-config", str(file), "--list"])
    if status != 0:
        raise RuntimeError(printed)
    return printed.splitlines()


Client = Callable[[str, Access, Path], Awaitable[list[str]]]
