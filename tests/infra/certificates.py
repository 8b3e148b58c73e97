"""Certificate authorities and servers' certificates that Python 3.13's strict X.509 accepts."""

import datetime
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Authority:
    """A CA: `file` is what a client trusts."""

    file: Path
    name: x509.Name
    key: ec.EllipticCurvePrivateKey

    def certify(self, host: str, folder: Path) -> tuple[Path, Path]:
        """(certificate, key) of a server that is called `host`."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)]), self.name, key, self.key)
        certificate = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), False).add_extension(
            x509.BasicConstraints(ca=False, path_length=None), True
        )
        files = folder / "server.pem", folder / "server.key"
        files[0].write_bytes(certificate.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        files[1].write_bytes(_pem(key))
        return files


def make_authority(folder: Path, name: str) -> Authority:
    """A new CA called `name`."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
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
    certificate = (
        _builder(subject, subject, key, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .add_extension(usage, True)
        .sign(key, hashes.SHA256())
    )
    file = folder / f"{name}.pem"
    file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return Authority(file, subject, key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False)
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
