"""S3, or a store that speaks its protocol, under a warehouse: settings, credentials, conditional writes, messages.

Credentials are those of the process: given as ``secrets``, or found where AWS' own tools look (environment,
``~/.aws/credentials``, the machine's role). They are sent to the object store only. Error messages are built from the
store's error code and from settings, never from what was sent or answered, because some stores answer with the key.

Conditional writes go through the port of object stores (``strom.runtime.objects``); files are read, written and
listed through Arrow, because PyIceberg does so too (decision 20).
"""

from __future__ import annotations

from collections.abc import Mapping

from pyarrow import fs

from strom.errors import LakeUnavailable, StoreRefused, StoreUnavailable
from strom.model.lake.lake import S3_ENDPOINT, S3_REGION, LakeConfig
from strom.runtime.clock import SystemClock
from strom.runtime.objects.aws_keys import aws_keys
from strom.runtime.objects.blocking_objects import BlockingObjects
from strom.runtime.objects.object_place import ObjectPlace, SettingNames
from strom.runtime.objects.object_store import PutOutcome
from strom.runtime.objects.obstore_objects import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, ObstoreObjects
from strom.runtime.objects.patient_objects import PatientObjects, StorePatience
from strom.runtime.objects.store_trouble import explained, no_bucket
from strom.runtime.random import SystemRandomness

ACCESS_KEY = "s3.access-key-id"
SECRET_KEY = "s3.secret-access-key"
SESSION_TOKEN = "s3.session-token"
SECRETS = (ACCESS_KEY, SECRET_KEY, SESSION_TOKEN)

ATTEMPTS = 3
DEADLINE_S = 30.0

_OBSTORE = {
    ACCESS_KEY: "aws_access_key_id",
    SECRET_KEY: "aws_secret_access_key",
    SESSION_TOKEN: "aws_session_token",
}
_NAMES = SettingNames(address="lake.warehouse", options="lake.")


class ObjectStore:
    """One bucket, as a warehouse's settings name it."""

    def __init__(self, config: LakeConfig, secrets: Mapping[str, str]) -> None:
        self._secrets = secrets
        self.bucket = config.warehouse.removeprefix("s3://").partition("/")[0]
        self._place = ObjectPlace("s3", self.bucket, options=config.options, names=_NAMES)
        self._opened: BlockingObjects | None = None

    @property
    def endpoint(self) -> str | None:
        """Its address; None: AWS."""
        return self._place.endpoint

    @property
    def region(self) -> str | None:
        """As set; None: AWS' own tools find it."""
        return self._place.region

    @property
    def path_style(self) -> bool:
        """Whether the path names the bucket: what stores other than AWS expect."""
        return self._place.path_style == "true"

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
        """Create an object unless it exists (``If-None-Match: *``); whether it has this content now because of that.

        Of many at once with different contents, one wins. LakeUnavailable when nobody knows whether it is, or will
        be, there.
        """
        try:
            outcome = self._objects().put_if_absent(key, content)
            if outcome is PutOutcome.UNKNOWN:
                return self._objects().get(key) == content
        except FileNotFoundError:
            raise LakeUnavailable(
                f"the answer of the object store was lost, and {key} is not there (yet): try again",
                bucket=self.bucket,
            ) from None
        except (StoreUnavailable, StoreRefused) as problem:
            raise LakeUnavailable(problem.message, bucket=self.bucket) from None
        return outcome is PutOutcome.STORED

    def check_bucket(self, filesystem: fs.FileSystem) -> None:
        """LakeUnavailable when the bucket does not exist: then it is not the file that is missing."""
        try:
            there = filesystem.get_file_info(self.bucket).type != fs.FileType.NotFound
        except OSError as problem:
            raise LakeUnavailable(self.explained(problem), bucket=self.bucket) from None
        if not there:
            raise LakeUnavailable(no_bucket(self._place).message, bucket=self.bucket)

    def explained(self, problem: BaseException) -> str:
        """What went wrong and what to change, in one sentence."""
        return explained(str(problem), self._place, denied=isinstance(problem, PermissionError)).message

    def _objects(self) -> BlockingObjects:
        if self._opened is None:
            given = {_OBSTORE[name]: self._secrets[name] for name in SECRETS if self._secrets.get(name)}
            keys = given if self._secrets.get(ACCESS_KEY) else aws_keys()
            place = ObjectPlace(
                "s3", self.bucket, options=self._place.options, credentials=keys, names=_NAMES
            )
            patient = PatientObjects(
                ObstoreObjects(place),
                clock=SystemClock(),
                randomness=SystemRandomness(),
                patience=StorePatience(DEADLINE_S, ATTEMPTS),
            )
            self._opened = BlockingObjects(patient)
        return self._opened
