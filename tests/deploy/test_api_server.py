"""The manifests of deploy/kubernetes on a real API server, and what the policy for Strimzi does to pods."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.local.kube_apiserver import EtcdServer, KubeApiServer, collection_of, path_of
from dev.local.waiting import wait_for
from tests.deploy.strimzi_pods import CLUSTER, NAMESPACE, Pod, broker_pod, with_labels

pytestmark = pytest.mark.full

KUBERNETES = Path(__file__).parents[2] / "deploy" / "kubernetes"
OTHER = "other-cluster"
_ADDED = "ts-uploader"
# The API server adds these to each object or pod.
_SERVERS = ("uid", "creationTimestamp", "generation", "managedFields", "resourceVersion")


def namespace(name: str, **labels: str) -> Pod:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def account(name: str, within: str) -> Pod:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": within}}


def crd() -> Pod:
    """Return a definition of KafkaUser without Strimzi's schema."""
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": free}}
    names = {"kind": "KafkaUser", "plural": "kafkausers", "singular": "kafkauser"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "kafkausers.kafka.strimzi.io"},
        "spec": {"group": "kafka.strimzi.io", "scope": "Namespaced", "names": names, "versions": [version]},
    }


def created(server: KubeApiServer, pod: Pod, *, dry: bool = True) -> Pod:
    """Create a pod, by default in a dry run, and return what the API server makes of it."""
    query = "?fieldValidation=Strict&dryRun=All" if dry else "?fieldValidation=Strict"
    status, answer = server.request("POST", collection_of(pod) + query, pod)
    assert status == HTTPStatus.CREATED, answer.get("message")
    return answer


def without_identity(pod: Pod) -> Pod:
    found = deepcopy(pod)
    for key in _SERVERS:
        found["metadata"].pop(key, None)
    return found


def as_other(pod: Pod) -> Pod:
    """Return the pod as one of a cluster that the policy does not name."""
    return with_labels(pod, cluster=OTHER)


def agents(pod: Pod) -> list[str]:
    """Return the images of the pod's agents."""
    every = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]
    return [each["image"] for each in every if each["name"] == _ADDED]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeApiServer]:
    """Start an API server with the objects that the manifests need."""
    directory = tmp_path_factory.mktemp("kubernetes")
    etcd = EtcdServer(directory / "etcd", directory)
    server = KubeApiServer(directory / "kube-apiserver", directory, etcd)
    try:
        etcd.start()
        server.start()
        for each in (namespace(NAMESPACE), namespace("elsewhere"), crd()):
            server.apply(each)
        for within in (NAMESPACE, "elsewhere"):
            for name in (CLUSTER, OTHER):
                server.apply(account(f"{name}-kafka", within))
        users = f"/apis/kafka.strimzi.io/v1/namespaces/{NAMESPACE}/kafkausers"
        wait_for(lambda: server.request("GET", users)[0] == HTTPStatus.OK, "the KafkaUser kind", 60)
        yield server
    finally:
        server.stop()
        etcd.stop()


@pytest.fixture(scope="module")
def server(bare: KubeApiServer) -> KubeApiServer:
    """Return the API server with all manifests, once the policy is in force."""
    for file in sorted(KUBERNETES.glob("*.yaml")):
        for wanted in yaml.safe_load_all(file.read_text()):
            found = bare.apply(wanted)
            assert found["kind"] == wanted["kind"], file
    wait_for(lambda: agents(created(bare, broker_pod())) != [], "the policy", 60)
    return bare


def test_every_manifest_applies_twice(server: KubeApiServer) -> None:
    """The second time changes nothing; the policy's expressions compile without a warning about types."""
    for file in sorted(KUBERNETES.glob("*.yaml")):
        for wanted in yaml.safe_load_all(file.read_text()):
            _, before = server.request("GET", path_of(wanted))
            assert server.apply(wanted)["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"], file


@pytest.mark.parametrize(("disks", "data"), [(2, ["data-0", "data-1"]), (None, ["data"]), (12, None)])
def test_a_broker_gets_the_agent_and_is_otherwise_as_strimzi_wrote_it(
    server: KubeApiServer, disks: int | None, data: list[str] | None
) -> None:
    """The agent is the last container, with the disks of the broker at the same paths, read-only."""
    pod = broker_pod(disks=disks)
    found, before = without_identity(created(server, pod)), without_identity(created(server, as_other(pod)))
    agent, volume = found["spec"]["containers"].pop(), found["spec"]["volumes"].pop()
    classes = [each.pop("status")["qosClass"] for each in (before, found)]
    assert found == with_labels(before, cluster=CLUSTER)
    assert classes == ["Guaranteed", "Burstable"]  # as the page has it
    assert (agent["name"], volume["name"]) == (_ADDED, _ADDED)
    mounted = {each["mountPath"]: each["name"] for each in agent["volumeMounts"]}
    assert all(each["readOnly"] for each in agent["volumeMounts"])
    assert (mounted.pop("/conf"), mounted.pop("/etc/kafka")) == (_ADDED, "kafka-metrics-and-logging")
    names = [f"data-{disk}" for disk in range(12)] if data is None else data
    assert mounted == {f"/var/lib/kafka/{name}": name for name in names}
    assert agent["args"] == [
        "--server-properties=/etc/kafka/server.config",
        f"--cluster-id={CLUSTER}",
        "--http-address=0.0.0.0:9464",
        "--log-format=json",
    ]
    sources: list[Any] = volume["projected"]["sources"]
    assert [each.get("configMap", each.get("secret"))["optional"] for each in sources] == [True] * 3
    assert not {"startupProbe", "readinessProbe", "lifecycle"} & agent.keys()


def test_a_stored_broker_has_the_agent_and_accepts_updates(server: KubeApiServer) -> None:
    """An update of its labels, and one that Strimzi makes of its owner, leave the containers as they are."""
    stored = created(server, broker_pod(5), dry=False)
    assert agents(stored)
    changed = with_labels(stored, pool_name="renamed")
    status, answer = server.request("PUT", f"{path_of(stored)}?dryRun=All", changed)
    assert (status, answer["spec"]) == (HTTPStatus.OK, stored["spec"])
    patch = [{"op": "add", "path": "/metadata/annotations/strimzi.io~1manual-rolling-update", "value": "true"}]
    status, answer = server.request("PATCH", f"{path_of(stored)}?dryRun=All", patch, "application/json-patch+json")
    assert (status, answer["spec"]) == (HTTPStatus.OK, stored["spec"])
    assert server.request("DELETE", f"{path_of(stored)}?gracePeriodSeconds=0")[0] == HTTPStatus.OK


def test_an_update_of_a_broker_from_before_the_policy_adds_no_agent(server: KubeApiServer) -> None:
    """A container that an update adds would make the API server reject the update."""
    stored = created(server, as_other(broker_pod(6)), dry=False)
    status, answer = server.request("PUT", f"{path_of(stored)}?dryRun=All", with_labels(stored, cluster=CLUSTER))
    assert (status, answer["spec"]) == (HTTPStatus.OK, stored["spec"])


def without_volume(pod: Pod, name: str) -> Pod:
    found = deepcopy(pod)
    spec = found["spec"]
    spec["volumes"] = [each for each in spec["volumes"] if each["name"] != name]
    for each in spec["containers"]:
        each["volumeMounts"] = [mount for mount in each["volumeMounts"] if mount["name"] != name]
    return found


def with_container(pod: Pod, name: str, place: str = "containers") -> Pod:
    found = deepcopy(pod)
    found["spec"].setdefault(place, []).append({"name": name, "image": "own.example/agent:1"})
    return found


def with_volume(pod: Pod, name: str) -> Pod:
    found = deepcopy(pod)
    found["spec"]["volumes"].append({"name": name, "emptyDir": {}})
    return found


def renamed(pod: Pod) -> Pod:
    found = deepcopy(pod)
    found["spec"]["containers"][0]["name"] = "broker"
    return found


def without_volumes(pod: Pod) -> Pod:
    found = deepcopy(pod)
    del found["spec"]["volumes"], found["spec"]["containers"][0]["volumeMounts"]
    return found


UNCHANGED = {
    "another cluster": as_other(broker_pod()),
    "another namespace": broker_pod(namespace="elsewhere"),
    "a controller": with_labels(broker_pod(), broker_role="false"),
    "the agent as a container": with_container(broker_pod(), _ADDED),
    "the agent as an init container": with_container(broker_pod(), _ADDED, "initContainers"),
    "a volume of the agent's name": with_volume(broker_pod(), _ADDED),
    "no volume with the broker's file": without_volume(broker_pod(), "kafka-metrics-and-logging"),
    "no volume with data": without_volume(without_volume(broker_pod(), "data-0"), "data-1"),
    "no container of the broker's name": renamed(broker_pod()),
    "no volumes": without_volumes(broker_pod()),
}


@pytest.mark.parametrize("pod", UNCHANGED.values(), ids=UNCHANGED.keys())
def test_every_other_pod_stays_as_it_is(server: KubeApiServer, pod: Pod) -> None:
    """Its containers and volumes are those that it had."""
    found = created(server, pod)["spec"]
    for place in ("containers", "initContainers", "volumes"):
        names = [each["name"] for each in found.get(place, [])]
        assert names == [each["name"] for each in pod["spec"].get(place, [])], place
    images = [each["image"] for each in found["containers"]]
    assert images == [each["image"] for each in pod["spec"]["containers"]]


def test_the_agent_is_allowed_where_pods_are_restricted(server: KubeApiServer) -> None:
    """With the Pod Security Standard `restricted` the API server rejects a pod if one container is not."""
    server.apply(namespace(NAMESPACE, **{"pod-security.kubernetes.io/enforce": "restricted"}))
    rights = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    try:
        loose = broker_pod()
        wait_for(
            lambda: server.request("POST", f"{collection_of(loose)}?dryRun=All", loose)[0] == HTTPStatus.FORBIDDEN,
            "the standard to be enforced",
            60,
        )
        pod = broker_pod()
        pod["spec"]["containers"][0]["securityContext"] = rights
        assert agents(created(server, pod))
    finally:
        server.apply(namespace(NAMESPACE))


def test_a_dry_run_finds_a_limit_that_the_agent_exceeds(server: KubeApiServer) -> None:
    """With such a limit the API server rejects the broker's pod, as the page has it."""
    least = {"limits": [{"type": "Container", "min": {"memory": "1Gi"}}]}
    metadata = {"name": "least", "namespace": NAMESPACE}
    limit = server.apply({"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": least})
    pod = broker_pod()
    try:
        wait_for(
            lambda: server.request("POST", f"{collection_of(pod)}?dryRun=All", pod)[0] == HTTPStatus.FORBIDDEN,
            "the limit to be enforced",
            60,
        )
        created(server, as_other(pod))
    finally:
        assert server.request("DELETE", path_of(limit))[0] == HTTPStatus.OK
    wait_for(
        lambda: server.request("POST", f"{collection_of(pod)}?dryRun=All", pod)[0] == HTTPStatus.CREATED,
        "the limit to end",
        60,
    )


@contextmanager
def policy(server: KubeApiServer, **variables: str) -> Iterator[None]:
    """Change variables of the policy, and restore them."""
    (own, *_) = yaml.safe_load_all((KUBERNETES / "strimzi.yaml").read_text())
    changed = deepcopy(own)
    for each in changed["spec"]["variables"]:
        each["expression"] = variables.get(each["name"], each["expression"])
    server.apply(changed)
    try:
        yield
    finally:
        server.apply(own)
        wait_for(lambda: agents(created(server, broker_pod())) != [], "the policy", 60)


def test_an_expression_that_fails_leaves_the_broker_without_the_agent(server: KubeApiServer) -> None:
    """`failurePolicy: Ignore`: the pod is created."""
    with policy(server, image="object.metadata.annotations['absent']"):
        wait_for(lambda: agents(created(server, broker_pod())) == [], "the changed policy", 60)
        assert len(created(server, broker_pod())["spec"]["volumes"]) == len(broker_pod()["spec"]["volumes"])


def test_a_new_image_is_in_new_pods_only(server: KubeApiServer) -> None:
    """A change of the policy changes no pod that exists; Strimzi's next pod has it."""
    stored = created(server, broker_pod(7), dry=False)
    with policy(server, image="'registry.example.com/ts-uploader:0.2.0'"):
        wait_for(lambda: agents(created(server, broker_pod()))[0].endswith(":0.2.0"), "the changed policy", 60)
        _, now = server.request("GET", path_of(stored))
        assert agents(now) == agents(stored)
    assert agents(stored)[0].endswith(":0.1.0")


def test_a_restart_of_the_api_server_rejects_no_broker(server: KubeApiServer) -> None:
    """From its first answers on, it creates the pod; at the latest soon after that, with the agent."""
    server.restart()
    answers: list[list[str]] = []

    def has_agent() -> bool:
        answers.append(agents(created(server, broker_pod())))
        return answers[-1] != []

    wait_for(has_agent, "the policy", 60)
