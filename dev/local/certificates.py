"""A private certificate authority with certificates for loopback servers and their clients, as PEM files.

Certificates(directory).authority     the file for `ca.bundle`; .server, .server_key, .client, .client_key
"""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dev.local.ports import LOOPBACK

_LIFETIME = datetime.timedelta(days=2)


class Certificates:
    """Certificates that are written at construction.

    Attributes:
        authority: PEM file of the authority's own certificate.
        server, server_key: of a server on loopback.
        client, client_key: of its client.

    Args:
        directory: an existing directory for the files.
        server_hosts: DNS names in the server's certificate; None: the names and address of loopback.
        server_expired: whether the server's certificate expired yesterday.
    """

    def __init__(
        self, directory: Path, server_hosts: tuple[str, ...] | None = None, *, server_expired: bool = False
    ) -> None:
        self._directory = directory
        self._authority_key = ec.generate_private_key(ec.SECP256R1())
        self._issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "local authority")])
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = self._begun(self._issuer, self._authority_key).add_extension(constraints, critical=True)
        self.authority = self._write("authority.pem", self._signed(builder.add_extension(usage, critical=True)))
        self.server, self.server_key = self.issue(
            "server", ExtendedKeyUsageOID.SERVER_AUTH, server_hosts, expired=server_expired
        )
        self.client, self.client_key = self.issue("client", ExtendedKeyUsageOID.CLIENT_AUTH)

    def issue(
        self,
        name: str,
        purpose: x509.ObjectIdentifier,
        hosts: tuple[str, ...] | None = None,
        *,
        expired: bool = False,
    ) -> tuple[Path, Path]:
        """Write a certificate and its key; see the class for `hosts`."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName(
            [x509.IPAddress(ipaddress.ip_address(LOOPBACK)), x509.DNSName("localhost"), x509.DNSName("*.localhost")]
            if hosts is None
            else [x509.DNSName(host) for host in hosts]
        )
        begun = self._begun(subject, key, expired=expired)
        builder = begun.add_extension(names, critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._authority_key.public_key())
        certificate = self._write(f"{name}.pem", self._signed(builder.add_extension(authority, critical=False)))
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return certificate, self._write(f"{name}.key", private)

    def _begun(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, expired: bool = False
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        end = now - _LIFETIME / 2 if expired else now + _LIFETIME
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _LIFETIME)
            .not_valid_after(end)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )

    def _signed(self, builder: x509.CertificateBuilder) -> bytes:
        return builder.sign(self._authority_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def _write(self, name: str, content: bytes) -> Path:
        path = self._directory / name
        path.write_bytes(content)
        return path
