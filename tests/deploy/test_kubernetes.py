"""deploy/kubernetes: the programs accept its arguments and files. `make deploy-checks` validates the schemas."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from tests.deploy.endpoint_options import settings_of
from tests.deploy.image import stages_of
from ts_common.config.cluster_config import load_config
from ts_common.endpoints.provider import open_provider
from ts_common.logs import LogFormat
from ts_endpoint.peers.cluster import CHECK_SECONDS, DEADLINE_SECONDS
from ts_endpoint.serving.endpoint import GRACE_SECONDS
from ts_uploader.cli import app as agent_cli
from ts_uploader.environment import ServerPropertiesEnvironment
from tsctl.cli import commands as tsctl_commands
from tsctl.commands.erase import erase as erase_commands
from tsctl.commands.gc import gc as gc_commands
from tsctl.gc.policy import read_policy
from tsctl.verify.segment_check import Depth

CHECKOUT = Path(__file__).parents[2]
KUBERNETES = CHECKOUT / "deploy" / "kubernetes"
IMAGE = stages_of((CHECKOUT / "deploy" / "Dockerfile").read_text())
Manifest = dict[str, Any]


def manifests(name: str) -> dict[tuple[str, str], Manifest]:
    """Return the manifests of a file by kind and name."""
    documents = yaml.load_all((KUBERNETES / name).read_text(), yaml.CSafeLoader)  # all processes collect it
    return {(each["kind"], each["metadata"]["name"]): each for each in documents}


BROKER, VERIFY, READS = manifests("broker.yaml"), manifests("verify.yaml"), manifests("endpoint.yaml")
POD: Manifest = BROKER["StatefulSet", "kafka"]["spec"]["template"]["spec"]
JOB: Manifest = VERIFY["CronJob", "tsctl-verify"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
GC = manifests("gc.yaml")
GC_JOB: Manifest = GC["CronJob", "tsctl-gc"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
ERASE = manifests("erase.yaml")
ERASE_JOB: Manifest = ERASE["CronJob", "tsctl-erase"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]


SET: Manifest = READS["StatefulSet", "ts-endpoint"]["spec"]
SERVERS: Manifest = SET["template"]["spec"]


def container(pod: Manifest, name: str) -> Manifest:
    (found,) = (each for each in pod["containers"] if each["name"] == name)
    return dict(found)


AGENT, TSCTL, COLLECTOR = container(POD, "ts-uploader"), container(JOB, "tsctl"), container(GC_JOB, "tsctl")
ENDPOINT, ERASER = container(SERVERS, "ts-endpoint"), container(ERASE_JOB, "tsctl")


def parsed(application: typer.Typer, name: str, arguments: list[str]) -> dict[str, Any]:
    """Return the options of a command as its own parser reads them; an unknown option is an error."""
    group: Any = typer.main.get_command(application)
    return dict(group.commands[name].make_context(name, list(arguments)).params)


def written(data: dict[str, str], directory: Path) -> Path:
    """Write a ConfigMap's files."""
    directory.mkdir()
    for name, text in data.items():
        (directory / name).write_text(text)
    return directory


def mounts(of: Manifest) -> dict[str, Manifest]:
    return {mount["name"]: mount for mount in of["volumeMounts"]}


def test_the_agent_accepts_its_arguments_and_its_file(tmp_path: Path) -> None:
    """After the image's entry point; --cluster-id names the file in the mounted ConfigMap."""
    words = [word.strip('", []') for word in IMAGE["agent"].last("ENTRYPOINT").split(",")]
    options = parsed(agent_cli, words[1], [*words[2:], *AGENT["args"]])
    assert options["log_format"] == LogFormat.JSON
    assert str(options["config_dir"]) == mounts(AGENT)["ts-uploader"]["mountPath"]
    directory = written(BROKER["ConfigMap", "ts-uploader"]["data"], tmp_path / "conf")
    config, warnings = load_config(directory / f"{options['cluster_id']}.properties")
    assert not warnings
    provider = open_provider(config.endpoint_provider, options["cluster_id"], directory, config.endpoint_properties)
    assert [endpoint.location for endpoint in provider.endpoints()] == ["s3://example-archive/base/prefix"]
    assert Path(options["server_properties"]).parent == Path(mounts(AGENT)["broker-properties"]["mountPath"])


def test_the_agent_accepts_the_brokers_file_of_each_pod(tmp_path: Path) -> None:
    """The init container's own command, run as in the second pod; the log dir is mounted in both containers."""
    (made,) = POD["initContainers"]
    (line,) = (line for line in made["args"][0].splitlines() if line.startswith("sed "))
    template = written(BROKER["ConfigMap", "kafka"]["data"], tmp_path / "template")
    logs = tmp_path / "var" / "lib" / "kafka" / "logs"
    logs.mkdir(parents=True)
    (logs / "meta.properties").write_text("version=1\ncluster.id=abc\nnode.id=1\n")
    for path, here in (("/template", template), ("/etc/kafka", tmp_path)):
        line = line.replace(f" {path}/", f" {here}/")
    subprocess.run(["bash", "-euc", line], env={"HOSTNAME": "kafka-1", "PATH": "/usr/bin:/bin"}, check=True)
    properties = tmp_path / "server.properties"
    text = properties.read_text()
    (log_dir,) = re.findall(r"^log\.dirs=(.*)$", text, re.MULTILINE)
    properties.write_text(text.replace(log_dir, str(logs)))
    found = ServerPropertiesEnvironment(properties, "prod").load()
    assert (found.broker_id, found.kraft, found.log_dirs) == (1, True, (logs,))
    assert found.broker_properties["advertised.listeners"] == "PLAINTEXT://kafka-1.kafka:9092"
    for each in (AGENT, container(POD, "kafka")):
        assert log_dir.startswith(mounts(each)["data"]["mountPath"] + "/")


def test_the_agent_writes_no_file_of_others_and_has_no_rights() -> None:
    """It writes to an empty volume alone, the bytes of merges, and reads the logs by the volume's group."""
    assert {name: mount.get("readOnly") for name, mount in mounts(AGENT).items()} == {
        "ts-uploader": True,
        "broker-properties": True,
        "data": True,
        "ts-uploader-tmp": None,
    }
    assert {"name": "ts-uploader-tmp", "emptyDir": {}} in POD["volumes"]
    for pod, each in ((POD, AGENT), (JOB, TSCTL), (GC_JOB, COLLECTOR), (ERASE_JOB, ERASER), (SERVERS, ENDPOINT)):
        rights = {**pod["securityContext"], **each["securityContext"]}
        assert (rights["runAsNonRoot"], rights["readOnlyRootFilesystem"]) == (True, True)
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert rights["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not rights["allowPrivilegeEscalation"]
        assert f"{rights['runAsUser']}:{rights['runAsGroup']}" == IMAGE["agent"].last("USER")
        assert each["resources"]["limits"].keys() == {"memory"}
    broker = container(POD, "kafka")["securityContext"]
    assert POD["securityContext"]["fsGroup"] == broker["runAsGroup"] != AGENT["securityContext"]["runAsGroup"]
    assert AGENT["securityContext"]["runAsUser"] != broker["runAsUser"]  # otherwise it could read the broker's memory


def test_the_node_reaches_the_agent_and_strangers_do_not() -> None:
    """The probe uses the agent's port, which the policy opens for the monitoring only."""
    options = parsed(agent_cli, "run", ["/conf", *AGENT["args"]])
    (port,) = AGENT["ports"]
    assert options["http_address"] == f"0.0.0.0:{port['containerPort']}"
    assert AGENT["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": port["name"]}
    assert "readinessProbe" not in AGENT
    policy = BROKER["NetworkPolicy", "kafka"]["spec"]
    labels = BROKER["StatefulSet", "kafka"]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    opened = {each["port"]: rule.get("from") for rule in policy["ingress"] for each in rule["ports"]}
    assert opened.pop(port["containerPort"])
    assert opened == dict.fromkeys(each["containerPort"] for each in container(POD, "kafka")["ports"])
    assert POD["terminationGracePeriodSeconds"] >= 40


def test_the_nightly_job_is_a_command_of_tsctl_with_the_agents_file() -> None:
    """Each option exists and accepts its value; its file is mounted; the brokers are those of the service."""
    name, *arguments = TSCTL["args"]
    options = parsed(tsctl_commands(), name, arguments)
    (file,) = BROKER["ConfigMap", "ts-uploader"]["data"]
    assert str(options["config"]) == f"{mounts(TSCTL)['ts-uploader']['mountPath']}/{file}"
    assert options["as_json"]
    assert options["depth"] == Depth.LISTING  # the requests for each segment grow with the archive
    brokers = options["bootstrap_server"].split(",")
    service = BROKER["StatefulSet", "kafka"]["spec"]["serviceName"]
    assert brokers == [f"kafka-{number}.{service}:9092" for number in range(3)]
    assert '"/opt/venv/bin/tsctl"' in IMAGE["tsctl"].last("ENTRYPOINT")


def test_retention_has_an_identity_of_its_own_and_one_run_at_a_time(tmp_path: Path) -> None:
    """Its account is no other workload's; the command accepts its options and its policy, which are mounted."""
    accounts = {pod["serviceAccountName"] for pod in (POD, JOB, SERVERS)}
    assert GC_JOB["serviceAccountName"] not in accounts
    spec = GC["CronJob", "tsctl-gc"]["spec"]
    assert (spec["concurrencyPolicy"], spec["jobTemplate"]["spec"]["backoffLimit"]) == ("Forbid", 0)
    name, *arguments = COLLECTOR["args"][1:]
    options = parsed(gc_commands, name, arguments)
    (file,) = BROKER["ConfigMap", "ts-uploader"]["data"]
    ((policy, text),) = GC["ConfigMap", "tsctl-gc"]["data"].items()
    assert str(options["config"]) == f"{mounts(COLLECTOR)['ts-uploader']['mountPath']}/{file}"
    assert str(options["policy"]) == f"{mounts(COLLECTOR)['policy']['mountPath']}/{policy}"
    assert read_policy(written({policy: text}, tmp_path / "policy") / policy).fuse is not None
    assert options["every"] is None  # the job starts each run
    assert not options["dry_run"]


def test_erasures_have_two_identities_of_their_own_and_room_for_segments() -> None:
    """The root is read-only, so the temporary files of a run need a volume."""
    accounts = {pod["serviceAccountName"] for pod in (POD, JOB, SERVERS, GC_JOB)}
    assert ERASE_JOB["serviceAccountName"] not in accounts
    spec = ERASE["CronJob", "tsctl-erase"]["spec"]
    assert (spec["concurrencyPolicy"], spec["jobTemplate"]["spec"]["backoffLimit"]) == ("Forbid", 0)
    name, *arguments = ERASER["args"][1:]
    options = parsed(erase_commands, name, arguments)
    (file,) = BROKER["ConfigMap", "ts-uploader"]["data"]
    assert str(options["config"]) == f"{mounts(ERASER)['ts-uploader']['mountPath']}/{file}"
    assert (options["every"], options["dry_run"]) == (None, False)
    assert mounts(ERASER)["segments"]["mountPath"] == "/tmp"
    for_versions = ERASE["CronJob", "tsctl-erase-versions"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert for_versions["serviceAccountName"] not in accounts | {ERASE_JOB["serviceAccountName"]}
    name, *arguments = container(for_versions, "tsctl")["args"][1:]
    options = parsed(erase_commands, name, arguments)
    assert (name, str(options["config"]), options["dry_run"]) == ("versions", f"/conf/{file}", False)


def test_each_pod_of_the_endpoint_is_one_of_its_peers(tmp_path: Path) -> None:
    """With the variables of its pod expanded, each process accepts its options, and all have the same list."""
    assert IMAGE["endpoint"].last("ENTRYPOINT") == '["/opt/venv/bin/ts-endpoint", "serve"]'
    given = {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in ENDPOINT["env"]}
    assert given == {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace"}
    (service,) = (name for kind, name in READS if kind == "Service" and name == SET["serviceName"])
    assert READS["Service", service]["spec"]["clusterIP"] == "None"
    assert READS["Service", service]["spec"]["publishNotReadyAddresses"]
    found = []
    for number in range(SET["replicas"]):
        pod = f"ts-endpoint-{number}"
        arguments = [each.replace("$(POD_NAME)", pod).replace("$(POD_NAMESPACE)", "data") for each in ENDPOINT["args"]]
        (properties,) = READS["ConfigMap", "ts-endpoint"]["data"].values()
        settings = settings_of(arguments, tmp_path, properties)
        assert (settings.own.node_id, str(settings.own.address)) == (number, f"{pod}.{service}.data.svc:9092")
        found.append([str(peer.address) for peer in settings.peers])
        ports = {each["name"]: each["containerPort"] for each in ENDPOINT["ports"]}
        assert {settings.listen.port, settings.own.address.port} == {ports["kafka"]}
        assert settings.own.health.port == ports["http"]
        assert [endpoint.location for endpoint in settings.archive.endpoints] == ["s3://example-archive/base/prefix"]
    assert found == [found[0]] * SET["replicas"]
    assert len(found[0]) == SET["replicas"]


def test_the_probes_and_the_policy_of_the_endpoint_fit_its_ports() -> None:
    """Its pages are for the monitoring and its peers; clients need a label, and the grace period suits a stop."""
    assert ENDPOINT["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert ENDPOINT["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    labels = SET["template"]["metadata"]["labels"]
    policy = READS["NetworkPolicy", "ts-endpoint"]["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    opened = {each["port"]: rule["from"] for rule in policy["ingress"] for each in rule["ports"]}
    assert opened.keys() == {each["containerPort"] for each in ENDPOINT["ports"]}
    assert {"podSelector": {"matchLabels": labels}} in opened[9465]
    for kind, name in (("Service", "ts-endpoint"), ("Service", "ts-endpoint-bootstrap")):
        assert READS[kind, name]["spec"]["selector"].items() <= labels.items()
    assert SERVERS["terminationGracePeriodSeconds"] > GRACE_SECONDS + CHECK_SECONDS + DEADLINE_SECONDS
    assert mounts(ENDPOINT)["conf"]["readOnly"]
    assert SERVERS["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    ("pod", "names"), [(POD, BROKER), (JOB, {**VERIFY, **BROKER}), (GC_JOB, {**GC, **BROKER}), (SERVERS, READS)]
)
def test_every_name_in_a_pod_exists(pod: Manifest, names: dict[tuple[str, str], Manifest]) -> None:
    """Volumes, ConfigMaps and accounts, which the schemas do not check."""
    claims = BROKER["StatefulSet", "kafka"]["spec"]["volumeClaimTemplates"]
    volumes = {each["name"]: each for each in [*pod["volumes"], *(claim["metadata"] for claim in claims)]}
    every = [*pod["containers"], *pod.get("initContainers", [])]
    assert {mount for each in every for mount in mounts(each)} <= volumes.keys()
    maps = [volume["configMap"]["name"] for volume in volumes.values() if "configMap" in volume]
    assert all(("ConfigMap", name) in names for name in maps)
    assert ("ServiceAccount", pod["serviceAccountName"]) in names
    assert set(placeholders()) <= {"registry.example.com"}


def placeholders() -> Iterator[str]:
    """Yield the registries of the project's images."""
    for each in (AGENT, TSCTL, COLLECTOR, ENDPOINT):
        yield each["image"].partition("/")[0]
