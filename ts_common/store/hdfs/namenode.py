"""WebHDFS: requests to a NameNode, and to the DataNodes that it redirects to.

https://hadoop.apache.org/docs/stable/hadoop-project-dist/hadoop-hdfs/WebHDFS.html
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, urlencode

from urllib3 import BaseHTTPResponse

from ts_common.errors import (
    AccessDenied,
    ObjectNotFound,
    OperatorError,
    OutcomeUnknown,
    PreconditionFailed,
    StoreFull,
    StoreUnavailable,
    TieredStorageError,
)
from ts_common.json_objects import whole_number
from ts_common.store.answers import parse_json, text_by_name, text_of
from ts_common.store.call import Call
from ts_common.store.clock import skew_of, without_reason
from ts_common.store.http.bodies import RequestBody
from ts_common.store.http.client import HttpClient, Request, Response
from ts_common.wording import counted

_ATTRIBUTE = "user.ts-uploader"
_RIGHT = "to read there, and an agent also to write"
_ALLOW = f"allow this user (HADOOP_USER_NAME, or the user of this process) {_RIGHT}"
_AUTHENTICATE = (
    "the NameNode requires authentication (Kerberos or a token), which this driver does not support: use a cluster or "
    "a gateway with simple authentication"
)
_BY_EXCEPTION: Mapping[str, type[TieredStorageError]] = {
    "FileNotFoundException": ObjectNotFound,
    "ParentNotDirectoryException": ObjectNotFound,
    "FileAlreadyExistsException": PreconditionFailed,
    "AccessControlException": AccessDenied,
    "AuthorizationException": AccessDenied,
    "SecurityException": AccessDenied,
    "InvalidToken": AccessDenied,
    # The NameNode raises these before it changes anything.
    "StandbyException": StoreUnavailable,
    "RetriableException": StoreUnavailable,
    "SafeModeException": StoreUnavailable,
    "InvalidPathException": OperatorError,
    "IllegalArgumentException": OperatorError,
    "UnsupportedOperationException": OperatorError,
    "DSQuotaExceededException": StoreFull,
    "NSQuotaExceededException": StoreFull,
    "PathComponentTooLongException": OperatorError,
    "MaxDirectoryItemsExceededException": OperatorError,
}


@dataclass(frozen=True, slots=True)
class HdfsFileStatus:
    """Properties of a file or a directory.

    Attributes:
        name: the last part of its path; empty in the response to a request for the whole path.
        id: of its inode; the NameNode never reuses it.
        size: bytes.
        modified: seconds since the epoch.
        is_directory: whether it is a directory.
    """

    name: str
    id: int
    size: int
    modified: float
    is_directory: bool

    @property
    def inode(self) -> str:
        """The path of this file by its inode: it is valid after a rename, and never names another file."""
        return f"/.reserved/.inodes/{self.id}"


class NameNode:
    """One NameNode. Paths are absolute. Every method may raise `StoreUnavailable` and `AccessDenied`.

    Args:
        url: `http://host:port` or `https://host:port`.
        user: name of the user in each request.
        timeout_seconds: for each connect, send and receive.
        connections: the number that is kept for reuse.
    """

    def __init__(self, url: str, user: str, timeout_seconds: float, connections: int) -> None:
        self._url = f"{url}/webhdfs/v1"
        self._user = user
        self._client = HttpClient(url, lambda request: request, timeout_seconds, connections)
        self.clock = self._client.clock

    def status(self, path: str) -> HdfsFileStatus:
        """Send GETFILESTATUS.

        Raises:
            ObjectNotFound: the file or directory does not exist.
        """
        with self._call("GETFILESTATUS", path).understood():
            return _status(self._json("GET", "GETFILESTATUS", path)["FileStatus"])

    def listed(self, path: str) -> Iterator[HdfsFileStatus]:
        """Send LISTSTATUS_BATCH until no entry remains.

        Raises:
            ObjectNotFound: the directory does not exist.
        """
        after: dict[str, str] = {}
        while True:
            with self._call("LISTSTATUS_BATCH", path).understood():
                listing = self._json("GET", "LISTSTATUS_BATCH", path, **after)["DirectoryListing"]
                found = [_status(each) for each in listing["partialListing"]["FileStatuses"]["FileStatus"]]
                ends = not listing["remainingEntries"]
                last = after.get("startAfter", "")
                for status in found:
                    if not _is_name(status.name) or status.name <= last:
                        raise ValueError(f"{status.name[:200]!r} is listed after {last[:200]!r}")
                    last = status.name
            yield from found
            if ends or not found:
                return
            after = {"startAfter": last}

    def metadata(self, path: str) -> dict[str, str]:
        """Send GETXATTRS, and return the metadata that `create` wrote.

        Raises:
            ObjectNotFound: the file does not exist.
        """
        with self._call("GETXATTRS", path).understood():
            attributes = self._json("GET", "GETXATTRS", path, encoding="hex")["XAttrs"]
            values = [each["value"] for each in attributes if each["name"] == _ATTRIBUTE]
            return dict(text_by_name(parse_json(bytes.fromhex(values[0].removeprefix("0x"))))) if values else {}

    def create(self, path: str, body: RequestBody, metadata: Mapping[str, str]) -> HdfsFileStatus:
        """Send CREATE and SETXATTR in an existing directory, and return the properties of the file.

        Raises:
            ObjectNotFound: the directory does not exist.
            StoreUnavailable: a part of the file may exist.
        """
        call = Call("CREATE", body.name)
        query = {"overwrite": "false", "createparent": "false"}
        answer = self._client.send(call, self._request("PUT", "CREATE", path, query))
        if answer.status == 307:
            headers = {"content-type": "application/octet-stream", "content-length": str(body.length)}
            sent = Request("PUT", self._data_node(answer, call), headers)
            try:
                answer = self._client.send(replace(call, writes=True), sent, body)
            except OutcomeUnknown as error:  # no reader uses the temporary name
                raise StoreUnavailable(str(error)) from error
        self._raise_for(answer, call)
        if metadata:
            value = "0x" + json.dumps(dict(metadata)).encode().hex()
            attribute = {"xattr.name": _ATTRIBUTE, "xattr.value": value, "flag": "CREATE"}
            self._raise_for(self._client.send(call, self._request("PUT", "SETXATTR", path, attribute)), call)
        status = self.status(path)
        if status.size != body.length:
            raise StoreUnavailable(f"CREATE {call.target}: {status.size} of {counted(body.length, 'byte')} arrived")
        return status

    def rename(self, path: str, destination: str, *, overwrite: bool) -> None:
        """Send RENAME, which is atomic.

        Raises:
            PreconditionFailed: the destination exists and may not be overwritten, or is the file itself.
            ObjectNotFound: the file does not exist.
            OutcomeUnknown: no response.
        """
        call = self._call("RENAME", destination, writes=True)
        query = {"destination": destination, "renameoptions": "OVERWRITE" if overwrite else "NONE"}
        answer = self._client.send(call, self._request("PUT", "RENAME", path, query))
        self._raise_for(answer, call)
        if answer.body:  # a NameNode's response has no body; a web page of a proxy has one
            raise call.no_answer(f"RENAME {call.target}: not a response of a NameNode: {answer.body[:200]!r}")

    def delete(self, path: str) -> None:
        """Send DELETE of a file; a missing file or a directory that is not empty is no error."""
        call = self._call("DELETE", path)
        answer = self._client.send(call, self._request("DELETE", "DELETE", path, {}))
        if "PathIsNotEmptyDirectoryException" not in answer.body.decode(errors="replace"):
            self._raise_for(answer, call)
            with call.understood():
                parse_json(answer.body)["boolean"]

    def make_directories(self, path: str) -> None:
        """Send MKDIRS, which creates parent directories too."""
        self._json("PUT", "MKDIRS", path)

    @contextmanager
    def opened(self, path: str, start: int, length: int) -> Iterator[BaseHTTPResponse]:
        """Send OPEN for `length` bytes from `start` on.

        Raises:
            ObjectNotFound: the file does not exist.
        """
        call = self._call("OPEN", path)
        answer = self._client.send(
            call, self._request("GET", "OPEN", path, {"offset": str(start), "length": str(length)})
        )
        if answer.status != 307:
            self._raise_for(answer, call)
            raise StoreUnavailable(f"OPEN {call.target}: HTTP {answer.status}; expected a redirection to a DataNode")
        with self._client.streaming(call, Request("GET", self._data_node(answer, call))) as (answer, response):
            self._raise_for(answer, call)
            yield response

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _data_node(self, answer: Response, call: Call) -> str:
        """Return the URL that a NameNode redirects to; from TLS only to TLS.

        Raises:
            StoreUnavailable: the response has no such URL.
        """
        with call.understood():
            location = answer.headers["location"]
            if not location.lower().startswith(("https://", self._url.partition("://")[0] + "://")):
                raise ValueError(f"a DataNode at {location[:200]!r}")
            return location

    def _json(self, method: str, operation: str, path: str, **query: str) -> Any:
        call = self._call(operation, path)
        answer = self._client.send(call, self._request(method, operation, path, query))
        self._raise_for(answer, call)
        with call.understood():
            return parse_json(answer.body)

    def _request(self, method: str, operation: str, path: str, query: Mapping[str, str]) -> Request:
        parameters = urlencode({"op": operation, "user.name": self._user, **query})
        return Request(method, f"{self._url}{quote(path)}?{parameters}")

    def _call(self, operation: str, path: str, *, writes: bool = False) -> Call:
        return Call(operation, f"{self._url}{path}", writes)

    def _raise_for(self, answer: Response, call: Call) -> None:
        if answer.status < 300:
            call.refuse_page(answer.headers.get("content-type"))
            return
        try:
            remote = parse_json(answer.body)["RemoteException"]
            name, message = str(remote["exception"]), str(remote["message"]).partition("\n")[0]
        except (ValueError, KeyError, TypeError):
            name, message = "", answer.body.decode(errors="replace")[:500]
        failed = f"{call.operation} {call.target}: {name} (HTTP {answer.status}): {message}"
        # Hadoop answers 403 for every IOException, with its name; a response without a name is a gateway's denial.
        denied = answer.status == 401 or (answer.status == 403 and not name)
        kind = _BY_EXCEPTION.get(name) or (AccessDenied if denied else None)
        if kind is AccessDenied and "is not a directory" in message:
            kind = ObjectNotFound
        if kind is AccessDenied:
            raise AccessDenied(f"{failed}; {_how_to_allow(name, answer)}")
        if kind is OperatorError:
            raise OperatorError(f"{failed}; the store will reject the same request again")
        raise (kind or call.no_answer)(failed)


def _how_to_allow(name: str, answer: Response) -> str:
    """Return what to do if access is denied."""
    if name in _BY_EXCEPTION:
        return _ALLOW
    if answer.status == 401:
        return _AUTHENTICATE
    return without_reason("the user (HADOOP_USER_NAME)", _RIGHT, skew_of(answer.headers.get("date")))


def _status(status: Mapping[str, Any]) -> HdfsFileStatus:
    return HdfsFileStatus(
        text_of(status["pathSuffix"]),
        whole_number(status["fileId"]),
        whole_number(status["length"]),
        whole_number(status["modificationTime"]) / 1000,
        text_of(status["type"]) == "DIRECTORY",
    )


def _is_name(name: str) -> bool:
    """Return whether it is one part of a path."""
    return name not in {"", ".", ".."} and "/" not in name
