"""Pods and files as Strimzi 1.2 writes them: `WorkloadUtils.createStatefulPod`, `KafkaBrokerConfigurationBuilder`."""

from copy import deepcopy
from typing import Any

Pod = dict[str, Any]

CLUSTER = "my-cluster"
NAMESPACE = "kafka"
POOL = "broker"
_SECRET = "${strimzisecrets:kafka/%s:%s}"


def pod_name(number: int, cluster: str = CLUSTER) -> str:
    return f"{cluster}-{POOL}-{number}"


def broker_pod(number: int = 0, cluster: str = CLUSTER, namespace: str = NAMESPACE, disks: int | None = 2) -> Pod:
    """Return a broker's pod.

    Args:
        number: the node's id.
        cluster: the name of the Kafka resource.
        namespace: of the pod.
        disks: of JBOD storage; None: one volume that is no JBOD storage.
    """
    name = pod_name(number, cluster)
    resources = {"cpu": "2", "memory": "8Gi"}
    data = ["data"] if disks is None else [f"data-{disk}" for disk in range(disks)]
    token = {"name": "kube-api-access", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {
                "app.kubernetes.io/instance": cluster,
                "app.kubernetes.io/managed-by": "strimzi-cluster-operator",
                "app.kubernetes.io/name": "kafka",
                "app.kubernetes.io/part-of": f"strimzi-{cluster}",
                "strimzi.io/broker-role": "true",
                "strimzi.io/cluster": cluster,
                "strimzi.io/component-type": "kafka",
                "strimzi.io/controller": "strimzipodset",
                "strimzi.io/controller-name": f"{cluster}-{POOL}",
                "strimzi.io/controller-role": "false",
                "strimzi.io/kind": "Kafka",
                "strimzi.io/name": f"{cluster}-kafka",
                "strimzi.io/pod-name": name,
                "strimzi.io/pool-name": POOL,
            },
            "annotations": {"strimzi.io/kafka-version": "4.3.1", "strimzi.io/revision": "65a2d237"},
        },
        "spec": {
            "restartPolicy": "Always",
            "hostname": name,
            "subdomain": f"{cluster}-kafka-brokers",
            "serviceAccountName": f"{cluster}-kafka",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 120,
            "securityContext": {"fsGroup": 0},
            "containers": [
                {
                    "name": "kafka",
                    "image": "quay.io/strimzi/kafka:1.2.0-kafka-4.3.1",
                    "command": ["/opt/kafka/kafka_run.sh"],
                    "env": [{"name": "KAFKA_CLUSTER_NAME", "value": cluster}],
                    "ports": [
                        {"name": "tcp-kafkaagent", "containerPort": 8443},
                        {"name": "tcp-replication", "containerPort": 9091},
                        {"name": "tcp-tls", "containerPort": 9093},
                    ],
                    "resources": {"requests": resources, "limits": resources},
                    "livenessProbe": {"exec": {"command": ["/opt/kafka/kafka_liveness.sh"]}},
                    "readinessProbe": {"exec": {"command": ["/opt/kafka/kafka_readiness.sh"]}},
                    "volumeMounts": [
                        *({"name": each, "mountPath": f"/var/lib/kafka/{each}"} for each in data),
                        token,
                        {"name": "strimzi-tmp", "mountPath": "/tmp"},
                        {"name": "kafka-metrics-and-logging", "mountPath": "/opt/kafka/custom-config/"},
                        {"name": "ready-files", "mountPath": "/var/opt/kafka"},
                    ],
                }
            ],
            "volumes": [
                *({"name": each, "persistentVolumeClaim": {"claimName": f"{each}-{name}"}} for each in data),
                {"name": "kube-api-access", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
                {"name": "strimzi-tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "5Mi"}},
                {"name": "kafka-metrics-and-logging", "configMap": {"name": name}},
                {"name": "ready-files", "emptyDir": {"medium": "Memory", "sizeLimit": "1Ki"}},
            ],
        },
    }


def with_labels(pod: Pod, **changed: str) -> Pod:
    """Return the pod with other values of labels of Strimzi, named without `strimzi.io/` and with `_` for `-`."""
    found = deepcopy(pod)
    found["metadata"]["labels"].update({f"strimzi.io/{key.replace('_', '-')}": to for key, to in changed.items()})
    return found


def server_config(number: int, log_dirs: str, cluster: str = CLUSTER) -> str:
    """Return the `server.config` of a broker's ConfigMap, for a cluster with a listener `tls` on port 9093."""
    host = f"{pod_name(number, cluster)}.{cluster}-kafka-brokers.{NAMESPACE}.svc"
    own = pod_name(number, cluster)
    lines = [
        f"node.id={number}",
        "process.roles=broker",
        "controller.listener.names=CONTROLPLANE-9090",
        f"controller.quorum.voters=3@{cluster}-controller-3.{cluster}-kafka-brokers.{NAMESPACE}.svc:9090",
        f"log.dirs={log_dirs}",
        "listener.name.replication-9091.ssl.truststore.certificates="
        + _SECRET % (f"{cluster}-trust", "cluster-ca.crt"),
        "listener.name.replication-9091.ssl.truststore.type=PEM",
        "listener.name.replication-9091.ssl.keystore.certificate.chain=" + _SECRET % (own, f"{own}.crt"),
        "listener.name.replication-9091.ssl.keystore.key=" + _SECRET % (own, f"{own}.key"),
        "listener.name.replication-9091.ssl.keystore.type=PEM",
        "listener.name.replication-9091.ssl.client.auth=required",
        "listener.name.tls-9093.ssl.client.auth=required",
        "listener.security.protocol.map=CONTROLPLANE-9090:SSL,REPLICATION-9091:SSL,TLS-9093:SSL",
        "listeners=REPLICATION-9091://0.0.0.0:9091,TLS-9093://0.0.0.0:9093",
        "inter.broker.listener.name=REPLICATION-9091",
        f"advertised.listeners=REPLICATION-9091://{host}:9091,TLS-9093://{host}:9093",
        "sasl.enabled.mechanisms=",
        "ssl.endpoint.identification.algorithm=HTTPS",
    ]
    return "\n".join(lines) + "\n"
