"""S3, or a store that speaks its protocol, under a warehouse: settings, credentials, conditional writes, messages.

Credentials are those of the process: given as ``secrets``, or found where AWS' own tools look (environment,
``~/.aws/credentials``, the machine's role). They are sent to the object store only. Error messages are built from the
store's error code and from settings, never from what was sent or answered, because some stores answer with the key.
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Mapping

from pyarrow import fs

from strom.errors import LakeUnavailable
from strom.model.lake.lake import S3_ENDPOINT, S3_PATH_STYLE, S3_REGION, LakeConfig
from strom.runtime.objects.s3_objects import (
    ATTEMPTS,
    CONNECT_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
    S3Bucket,
    S3Objects,
)

ACCESS_KEY = "s3.access-key-id"
SECRET_KEY = "s3.secret-access-key"
SESSION_TOKEN = "s3.session-token"
SECRETS = (ACCESS_KEY, SECRET_KEY, SESSION_TOKEN)

REGION_ANYWHERE = "us-east-1"
"""Stores other than AWS have no regions, but the signature needs one."""

_ENVIRONMENT = {
    ACCESS_KEY: "AWS_ACCESS_KEY_ID",
    SECRET_KEY: "AWS_SECRET_ACCESS_KEY",
    SESSION_TOKEN: "AWS_SESSION_TOKEN",
}
_OBSTORE = {name: variable.lower() for name, variable in _ENVIRONMENT.items()}
_CODE = re.compile(r"AWS Error ([A-Za-z0-9_ ]{1,60}?) (?:\(|during)|<Code>([A-Za-z]{1,60})</Code>")
_CURL = re.compile(r"curlCode: \d+, ([A-Za-z' ]{1,60})")
_REFUSED = re.compile("access ?denied|signature|credential|token|access ?key|forbidden|unauthori", re.I)


class ObjectStore:
    """One bucket, as a warehouse's settings name it."""

    def __init__(self, config: LakeConfig, secrets: Mapping[str, str]) -> None:
        self._options = config.options
        self._secrets = secrets
        self._opened: S3Bucket | None = None
        self.bucket = config.warehouse.removeprefix("s3://").partition("/")[0]

    @property
    def endpoint(self) -> str | None:
        """Its address; None: AWS."""
        return self._options.get(S3_ENDPOINT) or None

    @property
    def region(self) -> str | None:
        """As set; None: AWS' own tools find it."""
        return self._options.get(S3_REGION) or (REGION_ANYWHERE if self.endpoint else None)

    @property
    def path_style(self) -> bool:
        """Whether the path names the bucket: what stores other than AWS expect."""
        return self._options.get(S3_PATH_STYLE, "true" if self.endpoint else "false").lower() == "true"

    def filesystem(self) -> fs.FileSystem:
        """Arrow's file system for its objects. A small object is one request; errors may only appear on close."""
        settings = {
            "access_key": self._secrets.get(ACCESS_KEY),
            "secret_key": self._secrets.get(SECRET_KEY),
            "session_token": self._secrets.get(SESSION_TOKEN),
            "region": self.region,
            "endpoint_override": self.endpoint,
        }
        return fs.S3FileSystem(
            **{name: value for name, value in settings.items() if value is not None},
            force_virtual_addressing=not self.path_style,
            connect_timeout=CONNECT_TIMEOUT_S,
            request_timeout=REQUEST_TIMEOUT_S,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
            allow_delayed_open=True,
        )

    def properties(self) -> dict[str, str]:
        """The same as PyIceberg's properties, credentials included: for its file access, never for a table."""
        found = {
            S3_ENDPOINT: self.endpoint,
            S3_REGION: self.region,
            **{n: self._secrets.get(n) for n in SECRETS},
        }
        return {
            **{name: value for name, value in found.items() if value is not None},
            "s3.force-virtual-addressing": "false" if self.path_style else "true",
            "s3.connect-timeout": str(CONNECT_TIMEOUT_S),
            "s3.request-timeout": str(REQUEST_TIMEOUT_S),
        }

    def put_if_absent(self, key: str, content: bytes) -> bool:
        """Create an object unless it exists (``If-None-Match: *``); whether it was created. Of many at once, one wins.

        After a lost answer the request is repeated, and then finds its own object: a caller that must know compares
        contents.
        """
        folder, _, name = key.rpartition("/")
        try:
            return S3Objects(self._s3(), folder).put_if_absent(name, content)
        except OSError as problem:  # a missing bucket is reported as a missing file
            raise LakeUnavailable(self.explained(problem), bucket=self.bucket) from None

    def check_bucket(self, filesystem: fs.FileSystem) -> None:
        """LakeUnavailable when the bucket does not exist: then it is not the file that is missing."""
        try:
            there = filesystem.get_file_info(self.bucket).type != fs.FileType.NotFound
        except OSError as problem:
            raise LakeUnavailable(self.explained(problem), bucket=self.bucket) from None
        if not there:
            raise LakeUnavailable(self._no_bucket(), bucket=self.bucket)

    def explained(self, problem: BaseException) -> str:
        """What went wrong and what to change, in one sentence."""
        text = str(problem)
        found = _CODE.search(text)
        code = (found[1] or found[2]).replace("_", " ").strip() if found else ""
        where = f"the object store {f'at {self.endpoint}' if self.endpoint else 'of AWS'}"
        if code.upper().replace(" ", "") == "NOSUCHBUCKET":
            return self._no_bucket()
        if _REFUSED.search(code) or _no_keys(problem, text):
            return (
                f"{where} refuses access to bucket {self.bucket!r} ({code or 'no credentials'}). Credentials are those "
                "of this process: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (on Spark's executors too), and "
                "let them read and write there"
            )
        if "REDIRECT" in code.upper():
            return f"bucket {self.bucket!r} is in another region than {self.region}: set lake.s3.region"
        curl = _CURL.search(text)
        if curl or "NETWORK" in code or "error sending request" in text:
            reason = f" ({curl[1].strip()})" if curl else ""
            return f"{where} does not answer{reason}; see lake.s3.endpoint, and whether it runs"
        return f"{where} failed{f' with {code}' if code else ''} ({type(problem).__name__})"

    def _no_bucket(self) -> str:
        where = f"at {self.endpoint}" if self.endpoint else "at AWS"
        return f"there is no bucket {self.bucket!r} {where}: create it, or correct lake.warehouse and lake.s3.endpoint"

    def _s3(self) -> S3Bucket:
        if self._opened is None:
            given = self._keys()
            keys = {_OBSTORE[name]: given[name] for name in SECRETS if given.get(name)}
            self._opened = S3Bucket(self.bucket, self.endpoint, self.region, self.path_style, keys)
        return self._opened

    def _keys(self) -> Mapping[str, str]:
        """Looks where Arrow looks: given, environment, AWS' file. Empty: the machine's role is used."""
        if self._secrets.get(ACCESS_KEY):
            return self._secrets
        named = {
            name: os.environ[variable] for name, variable in _ENVIRONMENT.items() if variable in os.environ
        }
        return named if ACCESS_KEY in named else _profile()


def _profile() -> dict[str, str]:
    """The keys of the chosen profile in AWS' file; none when there is no such file or profile."""
    path = os.environ.get("AWS_SHARED_CREDENTIALS_FILE", os.path.expanduser("~/.aws/credentials"))
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(path)
    except (configparser.Error, OSError, UnicodeDecodeError):
        return {}
    profile = os.environ.get("AWS_PROFILE", "default")
    if not parser.has_section(profile):
        return {}
    found = {
        name: parser.get(profile, variable.lower(), fallback="") for name, variable in _ENVIRONMENT.items()
    }
    return {name: value for name, value in found.items() if value}


def _no_keys(problem: BaseException, text: str) -> bool:
    """Whether no credentials were found, or they were refused without a code."""
    denied = type(problem).__name__ in ("PermissionDeniedError", "UnauthenticatedError", "PermissionError")
    return denied or "/latest/api/token" in text or "security-credentials" in text
