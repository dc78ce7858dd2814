"""Certificates for tests, made with the `openssl` command: an authority, and those that it signs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

_LIMIT_S: Final = 30.0
_NEW_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Authority:
    """A certificate authority that lives in `folder` for two days."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._key = folder / f"{name}.key"
        self.certificate = folder / f"{name}.pem"
        self._openssl(
            *("req", "-x509", *_NEW_KEY, "-keyout", str(self._key), "-out", str(self.certificate), "-days", "2"),
            *("-subj", f"/CN=poolrt test authority {name}", "-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        )

    def issue(self, name: str, alternative: str) -> tuple[Path, Path]:
        """Return a new certificate and its key; `alternative` is the name that it certifies, like `IP:127.0.0.1`."""
        certificate, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        extensions.write_text(
            f"subjectAltName={alternative}\nbasicConstraints=critical,CA:FALSE\n"
            "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\nextendedKeyUsage=serverAuth,clientAuth\n"
        )
        self._openssl("req", "-new", *_NEW_KEY, "-keyout", str(key), "-out", str(request), "-subj", f"/CN={name}")
        self._openssl(
            *("x509", "-req", "-in", str(request), "-CA", str(self.certificate), "-CAkey", str(self._key)),
            *("-CAcreateserial", "-days", "2", "-extfile", str(extensions), "-out", str(certificate)),
        )
        return certificate, key

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self._folder, capture_output=True, timeout=_LIMIT_S, check=True)
