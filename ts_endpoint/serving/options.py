"""The options of `ts-endpoint serve`, checked together, so that all mistakes are in one message."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from ts_common.errors import ConfigurationError
from ts_common.http_server.listening import host_and_port
from ts_endpoint.network.limits import ListenerLimits
from ts_endpoint.peers.addresses import Address, Peer, own_entry, parse_address, parse_peers
from ts_endpoint.security.login import checked_mechanisms
from ts_endpoint.security.tls import TlsFiles
from ts_reader.options.archive_name import CONFIG_VARIABLE, ArchiveName, name_archive

SOURCE: Final = "command line"
_ANY_ADDRESS: Final = {"0.0.0.0", "::"}  # noqa: S104  (they are rejected where a client would get them)
_LEAST_MIB: Final = 16


class GroupOffsets(StrEnum):
    """Where committed offsets of groups are kept."""

    STORE = "store"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options as they were given (`ts_common.option_groups`)."""

    config: Annotated[
        Path | None,
        typer.Option(
            help=f"The agents' <clusterId>.properties, or its directory; default without --url: ${CONFIG_VARIABLE}.",
            metavar="FILE_OR_DIR",
        ),
    ] = None
    url: Annotated[
        str | None, typer.Option(help="Location of the store, as in s3://bucket/base/prefix; instead of --config.")
    ] = None
    cluster: Annotated[
        str | None, typer.Option(help="The cluster's id; with --url, or a directory of several files.")
    ] = None
    entropy_bits: Annotated[
        int | None, typer.Option(help="Number of entropy bits of the keys, with --url; default: from the archive.")
    ] = None
    listen: Annotated[str, typer.Option(help="host:port that clients connect to.")] = "127.0.0.1:9092"
    advertise: Annotated[
        str | None, typer.Option(help="host:port as clients reach this process.  [default: --listen]")
    ] = None
    peers: Annotated[
        str | None,
        typer.Option(
            help="All processes of a cluster, this one too, the same list in each: host:port,... as clients reach "
            "them; host:port=host:port,... where their --http-address has another host or port."
        ),
    ] = None
    http_address: Annotated[str, typer.Option(help="host:port of /metrics, /healthz and /readyz.")] = "127.0.0.1:9465"
    refresh: Annotated[float, typer.Option(help="Seconds until new topics and segments are looked for again.")] = 30.0
    on_hole: Annotated[
        Literal["fail", "skip"],
        typer.Option(help="Where offsets are lost: end the partition with an error, or pass over and log it."),
    ] = "fail"
    incarnations: Annotated[
        bool, typer.Option("--incarnations", help="Serve former incarnations of topics too, as topic~id.")
    ] = False
    no_tail: Annotated[
        bool,
        typer.Option("--no-tail", help="Serve closed segments only, without live tails."),
    ] = False
    groups: Annotated[
        GroupOffsets, typer.Option(help="Where committed offsets of groups are kept; store needs write access.")
    ] = GroupOffsets.STORE
    tls_certificate: Annotated[Path | None, typer.Option(help="PEM file of the listener's certificate chain.")] = None
    tls_key: Annotated[Path | None, typer.Option(help="PEM file of its key, without a password.")] = None
    tls_client_ca: Annotated[
        Path | None, typer.Option(help="PEM file of authorities: clients need a certificate of one (mutual TLS).")
    ] = None
    users: Annotated[
        Path | None, typer.Option(help="File of users, their topics, groups and quotas; see ts-endpoint user.")
    ] = None
    sasl_mechanisms: Annotated[
        list[str] | None,
        typer.Option(
            "--sasl-mechanism", help="SCRAM-SHA-256, SCRAM-SHA-512 or PLAIN; repeat it.  [default: all that are safe]"
        ),
    ] = None
    allow_plaintext_passwords: Annotated[
        bool, typer.Option("--allow-plaintext-passwords", help="Offer PLAIN without TLS.")
    ] = False
    audit_log: Annotated[
        Path | None, typer.Option(help="File of who read what, one JSON object in each line.  [default: the log]")
    ] = None
    max_connections: Annotated[int, typer.Option(help="Most connections at once.")] = 5000
    max_connections_per_host: Annotated[int, typer.Option(help="Most of one client address.")] = 2000
    in_flight_mib: Annotated[int, typer.Option(help="MiB of replies that clients have not received.")] = 256
    cache_mib: Annotated[int, typer.Option(help="MiB of segments in memory.")] = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSettings:
    """What the options mean.

    Attributes:
        archive: which one.
        listen: address of the listener.
        peers: all processes of the cluster, in order.
        tls: files of the listener; None for plain TCP.
        mechanisms: of SASL; empty without SASL.
        options: the others, which need no further check.
    """

    archive: ArchiveName
    listen: Address
    peers: Sequence[Peer]
    own: Peer
    tls: TlsFiles | None
    mechanisms: Sequence[str]
    limits: ListenerLimits
    options: Options

    @property
    def has_logins(self) -> bool:
        """Whether clients authenticate, by SASL or by a certificate."""
        return bool(self.mechanisms) or (self.tls is not None and self.tls.client_authorities is not None)

    @property
    def is_open(self) -> bool:
        """Whether everyone who reaches the listener may read everything, and others than this machine reach it."""
        return not self.has_logins and not _is_loopback(self.listen.host)


def _stated(error: ConfigurationError) -> list[str]:
    prefix = "" if error.source == SOURCE else f"{error.source}: "
    return [f"{prefix}{problem}" for problem in error.problems]


def check(options: Options) -> EndpointSettings:
    """Return what the options mean.

    Raises:
        ConfigurationError: with every mistake and its way out.
    """
    problems: list[str] = []
    archive = listen = tls = None
    listed: list[Peer] = []
    mechanisms: Sequence[str] = ()
    try:
        archive = name_archive(options.config, options.url, options.cluster, options.entropy_bits)
    except ConfigurationError as error:
        problems += _stated(error)
    try:
        listen = parse_address(options.listen, "--listen")
        listed, own = _processes(options, listen)
    except ConfigurationError as error:
        problems += _stated(error)
    try:
        tls = _tls_files(options)
        mechanisms = _mechanisms(options, listen, is_encrypted=tls is not None)
    except ConfigurationError as error:
        problems += _stated(error)
    problems += _numbers(options)
    if problems or archive is None or listen is None:
        raise ConfigurationError(SOURCE, problems)
    return EndpointSettings(
        archive=archive,
        listen=listen,
        peers=listed,
        own=own,
        tls=tls,
        mechanisms=mechanisms,
        limits=ListenerLimits(
            connections=options.max_connections,
            connections_per_host=min(options.max_connections, options.max_connections_per_host),
        ),
        options=options,
    )


def _processes(options: Options, listen: Address) -> tuple[list[Peer], Peer]:
    """Return all processes of the cluster, and this one."""
    _, http_port = host_and_port(options.http_address)
    advertised = listen if options.advertise is None else parse_address(options.advertise, "--advertise")
    if advertised.host in _ANY_ADDRESS:
        problem = f"clients would be sent to {advertised}, which is no address to connect to"
        raise ConfigurationError("--advertise", [f"{problem}: give host:port as clients reach this process"])
    if options.peers is None:
        own = Peer(0, advertised, Address(advertised.host, http_port))
        return [own], own
    listed = parse_peers(options.peers, http_port)
    own = own_entry(listed, advertised)
    _check_health_address(options, listed, own)
    return listed, own


def _check_health_address(options: Options, listed: Sequence[Peer], own: Peer) -> None:
    """Reject an HTTP address that the other processes cannot reach."""
    host, port = host_and_port(options.http_address)
    if own.health.port != port:
        problem = f"the other processes read the health of this one at {own.health}, and it serves it at port {port}"
        raise ConfigurationError("--http-address", [f"{problem}: make both equal, here or in --peers"])
    if len(listed) > 1 and _is_loopback(host) and not _is_loopback(own.health.host):
        problem = f"the other processes read the health of this one at {own.health}, and {host} is loopback"
        raise ConfigurationError("--http-address", [f"{problem}: listen on an address that they reach"])


def _tls_files(options: Options) -> TlsFiles | None:
    certificate, key = options.tls_certificate, options.tls_key
    if certificate is None and key is None:
        if options.tls_client_ca is not None:
            raise ConfigurationError("--tls-client-ca", ["it needs --tls-certificate and --tls-key"])
        return None
    if certificate is None or key is None:
        raise ConfigurationError(SOURCE, ["--tls-certificate and --tls-key belong together: give both"])
    return TlsFiles(certificate, key, options.tls_client_ca)


def _mechanisms(options: Options, listen: Address | None, *, is_encrypted: bool) -> Sequence[str]:
    """Return the mechanisms of SASL: by default there is SASL if there are users and no certificates of clients."""
    if options.users is None:
        if options.sasl_mechanisms:
            raise ConfigurationError("--sasl-mechanism", ["it needs --users, the file with the keys of users"])
        return ()
    if options.tls_client_ca is not None and not options.sasl_mechanisms:
        return ()
    return checked_mechanisms(
        options.sasl_mechanisms or (),
        is_encrypted=is_encrypted,
        is_loopback=listen is not None and _is_loopback(listen.host),
        plaintext_passwords=options.allow_plaintext_passwords,
    )


def _numbers(options: Options) -> list[str]:
    problems = []
    for name, value, least in (
        ("--max-connections", options.max_connections, 1),
        ("--max-connections-per-host", options.max_connections_per_host, 1),
        ("--in-flight-mib", options.in_flight_mib, _LEAST_MIB),
        ("--cache-mib", options.cache_mib, _LEAST_MIB),
        ("--refresh", options.refresh, 1),
    ):
        if not value >= least:  # also rejects nan
            problems.append(f"{name}={value:g}: at least {least} is expected")
    return problems


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
