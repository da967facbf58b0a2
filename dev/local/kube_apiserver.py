"""A real Kubernetes API server without nodes, on Debian's etcd: it stores and changes objects, and runs nothing.

EtcdServer              a Server (start, stop, kill, pause, resume, restart)
KubeApiServer           a Server, and
  request(method, path) the status and the object of one request, as an administrator
  apply(object)         server-side apply; an unknown field is an error

`python -m dev.local.kube_apiserver` builds the API server, which needs minutes, and fetches etcd.
"""

import http.client
import json
import secrets
import shutil
import ssl
import sys
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from dev.local.certificates import Certificates
from dev.local.debian import libraries, unpacked
from dev.local.go_programs import kube_apiserver
from dev.local.jars import print_fetched
from dev.local.loopback_http import ERRORS, request
from dev.local.ports import LOOPBACK, free_port, free_ports
from dev.local.process import Server

Object = dict[str, Any]

_MANAGER: Final = "tests"
_PLURALS: Final = {"NetworkPolicy": "networkpolicies", "MutatingAdmissionPolicy": "mutatingadmissionpolicies"}
_OF_THE_CLUSTER: Final = frozenset(
    {"Namespace", "CustomResourceDefinition", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
)


def etcd() -> tuple[Path, dict[str, str]]:
    """Return the path of etcd, fetched if needed, and the variables that it needs.

    Raises:
        ToolMissingError: it is missing, and apt is too, or has no such package.
        BuildFailedError: apt or dpkg failed.
    """
    found = shutil.which("etcd")
    if found is not None:
        return Path(found), {}
    root = unpacked("etcd", ["etcd-server"], "etcd")
    return root / "usr" / "bin" / "etcd", libraries(root)


class RejectedError(RuntimeError):
    """The API server rejected a request. The message has its status and its reason."""


class EtcdServer(Server):
    """One etcd on free ports.

    Args:
        logs: directory of its log.
    """

    def __init__(self, directory: Path, logs: Path) -> None:
        super().__init__("etcd", directory, logs / "etcd.log")
        self.port, self._peer_port = free_ports(2)
        self._program, self._variables = etcd()

    def command(self) -> list[str]:
        """Return the command of etcd."""
        client, peer = f"http://{LOOPBACK}:{self.port}", f"http://{LOOPBACK}:{self._peer_port}"
        return [
            str(self._program),
            *("--name=etcd", f"--data-dir={self.directory / 'data'}"),
            *(f"--listen-client-urls={client}", f"--advertise-client-urls={client}"),
            *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=etcd={peer}"),
        ]

    def variables(self) -> dict[str, str]:
        """Return the place of the libraries that this machine lacks."""
        return self._variables

    def not_ready(self) -> str | None:
        """Request its health."""
        try:
            status, body = request(self.port, "/health")
        except ERRORS as error:
            return str(error)
        return None if status == HTTPStatus.OK else body.decode(errors="replace")


class KubeApiServer(Server):
    """One API server on a free port, with the admission plugins that are on by default.

    Args:
        directory: of its certificates.
        logs: directory of its log.
        etcd: where it stores the objects; it must run.
    """

    start_seconds = 300.0

    def __init__(self, directory: Path, logs: Path, etcd: EtcdServer) -> None:
        super().__init__("kube-apiserver", directory, logs / "kube-apiserver.log")
        self.port = free_port()
        self._etcd = etcd
        self._token = secrets.token_hex()
        directory.mkdir(parents=True, exist_ok=True)
        self._certificates = Certificates(directory)
        self._trust = ssl.create_default_context(cafile=self._certificates.authority)
        (directory / "tokens.csv").write_text(f'{self._token},administrator,1,"system:masters"\n')

    def command(self) -> list[str]:
        """Return the command of the API server."""
        key = self._certificates.server_key
        return [
            str(kube_apiserver()),
            *(f"--bind-address={LOOPBACK}", f"--secure-port={self.port}", f"--advertise-address={LOOPBACK}"),
            *(f"--tls-cert-file={self._certificates.server}", f"--tls-private-key-file={key}"),
            *(f"--etcd-servers=http://{LOOPBACK}:{self._etcd.port}", "--service-cluster-ip-range=10.0.0.0/24"),
            *("--authorization-mode=RBAC", f"--token-auth-file={self.directory / 'tokens.csv'}"),
            *("--service-account-issuer=https://kubernetes.default.svc", f"--service-account-signing-key-file={key}"),
            f"--service-account-key-file={self._certificates.server}",
        ]

    def not_ready(self) -> str | None:
        """Request its readiness."""
        try:
            status, body = self._send("GET", "/readyz?verbose=1", None, {})
        except ERRORS as error:
            return str(error)
        return None if status == HTTPStatus.OK else body.decode(errors="replace")

    def request(
        self, method: str, path: str, body: Object | list[Object] | None = None, content: str = "application/json"
    ) -> tuple[int, Object]:
        """Return the status and the object of a response."""
        text = None if body is None else json.dumps(body)
        status, answer = self._send(method, path, text, {"Content-Type": content, "Accept": "application/json"})
        return status, json.loads(answer)

    def apply(self, wanted: Object) -> Object:
        """Create or change an object by server-side apply, and return it.

        Raises:
            RejectedError: the API server rejects it, or one of its fields is unknown.
        """
        path = f"{path_of(wanted)}?fieldManager={_MANAGER}&fieldValidation=Strict&force=true"
        status, answer = self.request("PATCH", path, wanted, "application/apply-patch+yaml")
        if status not in {HTTPStatus.OK, HTTPStatus.CREATED}:
            raise RejectedError(f"{wanted['kind']} {wanted['metadata']['name']}: {status} {answer.get('message')}")
        return answer

    def _send(self, method: str, path: str, body: str | None, headers: dict[str, str]) -> tuple[int, bytes]:
        connection = http.client.HTTPSConnection(LOOPBACK, self.port, timeout=60, context=self._trust)
        try:
            connection.request(method, path, body, {**headers, "Authorization": f"Bearer {self._token}"})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


def path_of(wanted: Object) -> str:
    """Return the path of an object; one without a namespace belongs to `default`, if its kind has namespaces."""
    return f"{collection_of(wanted)}/{wanted['metadata']['name']}"


def collection_of(wanted: Object) -> str:
    """Return the path of all objects of an object's kind, in its namespace."""
    version, kind = wanted["apiVersion"], wanted["kind"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = _PLURALS.get(kind, f"{kind.lower()}s")
    if kind in _OF_THE_CLUSTER:
        return f"{root}/{plural}"
    return f"{root}/namespaces/{wanted['metadata'].get('namespace', 'default')}/{plural}"


def main() -> int:
    """Build and fetch both, and print their paths."""
    return print_fetched(("kube-apiserver", kube_apiserver), ("etcd", lambda: etcd()[0]))


if __name__ == "__main__":
    sys.exit(main())
