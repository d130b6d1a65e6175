"""Where objects are: a bucket, a prefix in it, and how to reach it, as an address and settings name them.

    s3://bucket/prefix      S3, or a store that speaks its protocol (``s3.endpoint``)
    gs://bucket/prefix      Google Cloud Storage
    az://container/prefix   Azure Blob Storage (``azure.account``)
    file:///folder          a folder

Credentials are given as settings, or found where each cloud's own tools look: environment, files, the machine's role.
They go to the store only: neither ``repr`` nor an error shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from strom.errors import InvalidSetting
from strom.runtime.objects.object_store import check_key

REGION_ANYWHERE = "us-east-1"
"""Stores other than AWS have no regions, but the signature needs one."""

S3_ENDPOINT = "s3.endpoint"
S3_REGION = "s3.region"
S3_PATH_STYLE = "s3.path-style"
AZURE_ACCOUNT = "azure.account"
AZURE_ENDPOINT = "azure.endpoint"
GCS_ENDPOINT = "gcs.endpoint"

_SECRETS = {
    "s3.access-key-id": "aws_access_key_id",
    "s3.secret-access-key": "aws_secret_access_key",
    "s3.session-token": "aws_session_token",
    "gcs.service-account-key": "google_service_account_key",
    "gcs.service-account-file": "google_service_account",
    "azure.access-key": "azure_storage_account_key",
    "azure.sas-token": "azure_storage_sas_key",
    "azure.client-id": "azure_storage_client_id",
    "azure.client-secret": "azure_storage_client_secret",
    "azure.tenant-id": "azure_storage_tenant_id",
}
"""Settings that are credentials, and what obstore calls them."""
_PLAIN = (S3_ENDPOINT, S3_REGION, S3_PATH_STYLE, AZURE_ACCOUNT, AZURE_ENDPOINT, GCS_ENDPOINT)
_SETTINGS_OF = {"s3": "s3.", "gs": "gcs.", "az": "azure.", "file": "file."}
_CHAINS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_KEY",
}


@dataclass(frozen=True)
class SettingNames:
    """What the settings are called in sentences about them: the lake has its own."""

    address: str = "remote.data.dir"
    options: str = ""
    """What comes before ``s3.endpoint``."""


@dataclass(frozen=True)
class ObjectPlace:
    """A bucket and a prefix in it. ``kind``: s3, gs, az or file."""

    kind: str
    bucket: str
    prefix: str = ""
    """Without a slash at its ends; of ``file`` the folder."""
    options: Mapping[str, str] = field(default_factory=dict)
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    """By obstore's names; none: where the cloud's own tools look."""
    names: SettingNames = SettingNames()

    @classmethod
    def of(cls, address: str, settings: Mapping[str, str], names: SettingNames | None = None) -> ObjectPlace:
        """Read an address and the settings that belong to it; InvalidSetting says which one is wrong."""
        names = names or SettingNames()
        parts = urlsplit(address)
        kind = {"abfs": "az", "gcs": "gs"}.get(parts.scheme, parts.scheme)
        if (
            kind not in _SETTINGS_OF
            or (kind == "file") == bool(parts.netloc)
            or parts.query
            or "@" in address
        ):
            raise InvalidSetting(
                f"{names.address} is not s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or "
                "file:///folder (credentials are settings of their own)",
                setting=names.address,
            )
        prefix = unquote(parts.path).rstrip("/") if kind == "file" else parts.path.strip("/")
        if kind != "file" and prefix:
            try:
                check_key(prefix)
            except ValueError:
                raise InvalidSetting(
                    f"{names.address}: the prefix may have letters, digits and . _ = - in its parts, which do not "
                    "begin with a dot",
                    setting=names.address,
                ) from None
        mine = {name: value for name, value in settings.items() if name.startswith(_SETTINGS_OF[kind])}
        if unknown := sorted(mine.keys() - _SECRETS.keys() - set(_PLAIN)):
            raise InvalidSetting(
                f"there is no setting {names.options}{unknown[0]}", setting=names.options + unknown[0]
            )
        place = cls(
            kind,
            parts.netloc,
            prefix,
            {name: value for name, value in mine.items() if name in _PLAIN},
            {_SECRETS[name]: value for name, value in mine.items() if name in _SECRETS and value},
            names,
        )
        return place._checked()

    def _checked(self) -> ObjectPlace:
        if self.kind == "file" and not self.prefix:
            raise InvalidSetting(
                f"{self.names.address}: the whole disk is no place", setting=self.names.address
            )
        if self.path_style not in ("true", "false"):
            raise InvalidSetting(
                f"{self.names.options}{S3_PATH_STYLE} is true or false",
                setting=self.names.options + S3_PATH_STYLE,
            )
        return self

    @property
    def endpoint(self) -> str | None:
        """Its address; None: the cloud's own."""
        setting = {"s3": S3_ENDPOINT, "gs": GCS_ENDPOINT, "az": AZURE_ENDPOINT}.get(self.kind, "")
        return self.options.get(setting) or None

    @property
    def region(self) -> str | None:
        """As set; None: AWS' own tools find it."""
        return self.options.get(S3_REGION) or (REGION_ANYWHERE if self.endpoint else None)

    @property
    def path_style(self) -> str:
        """Whether the path names the bucket: what stores other than AWS expect."""
        return self.options.get(S3_PATH_STYLE, "true" if self.endpoint else "false").lower()

    @property
    def chain(self) -> str:
        """Where the cloud's own tools find credentials first."""
        return _CHAINS.get(self.kind, "")

    def __str__(self) -> str:
        return f"{self.kind}://{self.bucket}/{self.prefix}".rstrip("/")
