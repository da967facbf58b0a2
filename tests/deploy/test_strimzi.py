"""deploy/kubernetes/strimzi.yaml, without an API server: the agent accepts what the policy gives to its container."""

import os
import re
import signal
import subprocess
import sys
from http.server import HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.local.ports import LOOPBACK, free_port
from dev.local.waiting import wait_for
from tests.deploy.strimzi_pods import CLUSTER, NAMESPACE, broker_pod, server_config
from tests.deploy.test_kubernetes import AGENT, CHECKOUT, IMAGE, manifests, parsed, written
from tests.http_servers import Handler, running
from ts_common.config.cluster_config import load_config
from ts_common.endpoints.provider import open_provider
from ts_uploader.cli import app as agent_cli
from ts_uploader.environment import ServerPropertiesEnvironment
from ts_uploader.leadership.kraft.listener import client_settings

STRIMZI = manifests("strimzi.yaml")
POLICY: dict[str, Any] = STRIMZI["MutatingAdmissionPolicy", "ts-uploader-strimzi"]["spec"]
VARIABLES: dict[str, str] = {each["name"]: each["expression"] for each in POLICY["variables"]}
((PATCH,),) = (each["jsonPatch"].values() for each in POLICY["mutations"])  # one: of two, the second alone could fail
NAME = f"{CLUSTER}-ts-uploader"
PROPERTIES: dict[str, str] = STRIMZI["ConfigMap", NAME]["data"]


def script(name: str) -> str:
    """Return the text between the triple quotes of a variable."""
    (text,) = re.findall(r'^"""\n(.*)"""$', VARIABLES[name], re.DOTALL)
    return str(text)


def test_the_policy_only_adds_to_new_pods_of_named_clusters() -> None:
    """A policy for updates would break them, as containers of a pod that exists cannot change."""
    assert POLICY["failurePolicy"] == "Ignore"
    match = POLICY["matchConstraints"]
    assert [rule["operations"] for rule in match["resourceRules"]] == [["CREATE"]]
    labels = broker_pod()["metadata"]["labels"]
    for wanted in match["objectSelector"]["matchExpressions"]:
        assert (wanted["operator"], labels[wanted["key"]]) == ("In", wanted["values"][0])
    (of_namespace,) = match["namespaceSelector"]["matchExpressions"]
    assert of_namespace["values"] == [NAMESPACE]
    assert STRIMZI["MutatingAdmissionPolicyBinding", "ts-uploader-strimzi"]["spec"] == {
        "policyName": "ts-uploader-strimzi"
    }
    patched = re.findall(r"op: '(\w+)', path: '([^']+)'", PATCH)
    assert patched == [*[("add", "/spec/volumes/-")] * 2, ("add", "/spec/containers/-")]


def test_kyverno_gets_the_same_policy_without_the_binding() -> None:
    """The page's own command."""
    page = (CHECKOUT / "docs" / "kubernetes.md").read_text()
    (command,) = re.findall(r"^sed (?:.*\\\n)+.*strimzi\.yaml", page, re.MULTILINE)
    output = subprocess.run(["bash", "-euc", command], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    policy, *others = filter(None, yaml.safe_load_all(output))
    assert (policy["apiVersion"], policy["kind"]) == ("policies.kyverno.io/v1", "MutatingPolicy")
    assert policy["spec"] == POLICY
    assert [each["kind"] for each in others] == ["ConfigMap", "KafkaUser"]


def test_the_agent_of_strimzi_accepts_its_arguments_and_its_file(tmp_path: Path) -> None:
    """The image's own command; the file's name is the cluster's; each file that it names is in the volume."""
    (program,) = re.findall(r'run (/opt\S+ run /conf) "\$@"', script("supervisor"))
    words = [word.strip('", []') for word in IMAGE["agent"].last("ENTRYPOINT").split(",")]
    assert program.split() == words
    found = re.findall(r"'(--[^']*)'( \+ variables\.cluster)?", PATCH)
    arguments = [option + (CLUSTER if ends else "") for option, ends in found]
    options = parsed(agent_cli, words[1], [*words[2:], *arguments])
    assert (options["cluster_id"], options["http_address"]) == (CLUSTER, "0.0.0.0:9464")
    assert VARIABLES["image"] == f"'{AGENT['image']}'"
    directory = written(PROPERTIES, tmp_path / "conf")
    config, warnings = load_config(directory / f"{CLUSTER}.properties")
    assert not warnings
    provider = open_provider(config.endpoint_provider, CLUSTER, directory, config.endpoint_properties)
    assert [endpoint.location for endpoint in provider.endpoints()] == ["s3://example-archive/base/prefix"]
    files = re.findall(r"=/conf/(\S+)$", PROPERTIES[f"{CLUSTER}.properties"], re.MULTILINE)
    assert sorted(files) == sorted(re.findall(r"path: '([^/']+)'", PATCH))


def test_the_volume_is_optional_in_each_part() -> None:
    """A pod waits for a ConfigMap or Secret that is missing, unless it is optional."""
    named = re.findall(r"name: variables\.cluster \+ '-([a-z-]+)'(, optional: true)?", PATCH)
    assert len(named) == PATCH.count("variables.cluster + '-")
    assert all(optional for _, optional in named), named
    names = {kind: name for kind, name in STRIMZI if name == NAME}
    assert names.keys() == {"ConfigMap", "KafkaUser"}  # the user operator writes the Secret of the same name


def test_the_agent_reaches_a_strimzi_broker_as_its_own_user(tmp_path: Path) -> None:
    """References to Secrets in the broker's file are of no use outside of it; the cluster's file replaces them all."""
    log_dir = tmp_path / "data-0" / "kafka-log1"
    log_dir.mkdir(parents=True)
    (log_dir / "meta.properties").write_text("version=1\ncluster.id=abc\nnode.id=1\n")
    file = tmp_path / "server.config"
    file.write_text(server_config(1, str(log_dir)))
    found = ServerPropertiesEnvironment(file, CLUSTER).load()
    assert (found.broker_id, found.kraft, found.log_dirs) == (1, True, (log_dir,))
    directory = written(PROPERTIES, tmp_path / "conf")
    config, _ = load_config(directory / f"{CLUSTER}.properties")
    settings = client_settings(found.broker_properties, config.kafka_client, "host")
    assert settings == {
        "bootstrap.servers": f"{CLUSTER}-kafka-brokers.{NAMESPACE}.svc:9093",
        "security.protocol": "ssl",
        "ssl.ca.location": "/conf/cluster-ca.crt",
        "ssl.certificate.location": "/conf/user.crt",
        "ssl.key.location": "/conf/user.key",
        "ssl.endpoint.identification.algorithm": "https",
    }


def test_the_container_stays_while_the_agent_ends(tmp_path: Path) -> None:
    """Each start of the agent adds a line; SIGHUP reaches it; SIGTERM ends it, and then the container with status 0."""
    starts, agent = tmp_path / "starts", tmp_path / "agent"
    agent.write_text(
        '#!/bin/sh\necho "$*" >> starts\n[ $(wc -l < starts) -gt 2 ] || exit 2\n'
        "trap 'echo reloaded >> starts' HUP\ntrap 'echo stopped >> starts; exit 0' TERM\n"
        "echo ready >> starts\nwhile :; do sleep 0.05; done\n"
    )
    agent.chmod(0o755)
    text = script("supervisor").replace("/opt/venv/bin/ts-uploader", str(agent)).replace("sleep 15", "sleep 0.05")
    # A shell cannot trap what its starter ignores, as `nohup` ignores SIGHUP.
    command = ["env", "--default-signal=HUP", "/bin/sh", "-c", text, "ts-uploader", "--a", "--b c"]

    def lines() -> list[str]:
        return starts.read_text().splitlines() if starts.exists() else []

    def is_reloaded() -> bool:
        # The first signal can arrive before the shell has the process id of the agent that is ready.
        container.send_signal(signal.SIGHUP)
        return "reloaded" in lines()

    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as container:
        try:
            wait_for(lambda: "ready" in lines(), "the third start", 30)
            wait_for(is_reloaded, "the signal", 30)
            assert container.poll() is None
            container.send_signal(signal.SIGTERM)
            _, errors = container.communicate(timeout=30)
        finally:
            container.kill()
    assert container.returncode == 0
    assert lines()[:4] == [*["run /conf --a --b c"] * 3, "ready"]
    assert [*dict.fromkeys(lines()[4:])] == ["reloaded", "stopped"]
    assert errors == "ts-uploader ended with 2\n" * 2


def test_a_container_that_is_stopped_while_the_agent_starts_ends(tmp_path: Path) -> None:
    """The agent gets SIGTERM too if the shell has it before the agent's process id."""
    agent = tmp_path / "agent"
    agent.write_text('#!/bin/sh\nkill -TERM "$PPID"\nwhile :; do sleep 0.05; done\n')
    agent.chmod(0o755)
    text = (
        script("supervisor").replace("/opt/venv/bin/ts-uploader", str(agent)).replace("child=$!", "sleep 0.2; child=$!")
    )
    command = ["/bin/sh", "-c", text, "ts-uploader"]
    assert subprocess.run(command, cwd=tmp_path, check=False, timeout=30).returncode == 0


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1), (None, 0)])
def test_the_probe_fails_only_if_a_restart_helps(status: int | None, code: int) -> None:
    """While the agent is away, its supervisor starts it; a restart of the container would make the broker not ready."""
    port = free_port()

    class Page(Handler):
        def do_GET(self) -> None:
            assert self.path == "/healthz"
            self.answer(status or 0)

    text = script("liveness").replace("9464", str(port))
    command = [sys.executable, "-c", text]
    if status is None:
        assert subprocess.run(command, env=os.environ, check=False).returncode == code
        return
    with running(HTTPServer((LOOPBACK, port), Page)):
        assert subprocess.run(command, env=os.environ, check=False).returncode == code


def test_the_values_for_a_chart_are_complete() -> None:
    """The page's own values: the agent accepts the arguments, and each file is in a mount without write access."""
    page = (CHECKOUT / "docs" / "kubernetes.md").read_text()
    (text,) = re.findall(r"^```yaml\n(# Bitnami .*?)^```", page, re.MULTILINE | re.DOTALL)
    values = yaml.safe_load(text)
    (agent,) = values["controller"]["sidecars"]
    options = parsed(agent_cli, "run", ["/conf", *agent["args"]])
    mounts = {mount["mountPath"]: mount["name"] for mount in agent["volumeMounts"] if mount["readOnly"]}
    assert mounts.keys() == {"/conf", str(Path(options["server_properties"]).parent), "/bitnami/kafka"}
    assert [volume["name"] for volume in values["controller"]["extraVolumes"]] == [mounts["/conf"]]
    assert agent["image"] == AGENT["image"]
