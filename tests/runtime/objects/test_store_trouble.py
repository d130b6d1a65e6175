"""What is said when an object store does not do what it is asked: what to change, and no secret."""

from __future__ import annotations

import dataclasses
import threading
import traceback
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from lake.s3_place import BUCKET, GUEST, KEY, SECRET, S3Server
from strom.errors import StoreRefused, StoreUnavailable, StromError
from strom.lake.files.object_store import ACCESS_KEY, SECRET_KEY
from strom.runtime.objects.blocking_objects import BlockingObjects
from strom.runtime.objects.object_place import ObjectPlace
from strom.runtime.objects.obstore_objects import ObstoreObjects
from strom.runtime.objects.store_trouble import explained

AWS = ObjectPlace("s3", "mine", options={"s3.region": "eu-central-1"})
AZURE = ObjectPlace("az", "mine")
GOOGLE = ObjectPlace("gs", "mine")


def body(code: str, status: int = 403) -> str:
    return f"Server returned non-2xx status code: {status} Some: <Error><Code>{code}</Code><Key>hunter2</Key></Error>"


@pytest.mark.parametrize(
    ("text", "place", "denied", "cause", "said"),
    [
        (body("SignatureDoesNotMatch"), AWS, True, "credentials", "AWS_SECRET_ACCESS_KEY"),
        (
            body("ExpiredToken", 400),
            AWS,
            False,
            "credentials",
            r"refuses access to bucket 'mine' \(ExpiredToken\)",
        ),
        (
            "error performing PUT http://169.254.169.254/latest/api/token",
            AWS,
            False,
            "credentials",
            "no credentials",
        ),
        (body("RequestTimeTooSkewed"), AWS, True, "clock", "clock is wrong"),
        (body("NoSuchBucket", 404), AWS, False, "bucket", "no bucket 'mine' at AWS: .*remote.data.dir"),
        (
            body("ContainerNotFound", 404),
            AZURE,
            False,
            "bucket",
            "no bucket 'mine' at Azure: .*azure.account",
        ),
        (body("PermanentRedirect", 301), AWS, False, "region", r"than eu-central-1: set s3\.region"),
        (body("AuthorizationHeaderMalformed", 400), AWS, False, "region", r"set s3\.region"),
        (body("AuthenticationFailed"), AZURE, True, "credentials", "AZURE_STORAGE_ACCOUNT_KEY"),
        (body("AccessDenied"), GOOGLE, True, "credentials", "GOOGLE_APPLICATION_CREDENTIALS"),
    ],
)
def test_a_refusal_says_what_to_change(
    text: str, place: ObjectPlace, denied: bool, cause: str, said: str
) -> None:
    error = explained(text, place, denied=denied)
    with pytest.raises(StoreRefused, match=said):
        raise error
    assert error.facts["cause"] == cause
    assert "hunter2" not in f"{error} {error.facts}"


@pytest.mark.parametrize(
    ("text", "sent", "said"),
    [
        (body("SlowDown", 503), False, "slow down"),
        (body("ConditionalRequestConflict", 409), False, "slow down"),
        ("status code: 429 Too Many Requests", False, "slow down"),
        (body("InternalError", 500), True, "failed with InternalError"),
        (
            "HTTP error: error sending request | inner: Http( HttpError { kind: Connect, ",
            False,
            "does not answer",
        ),
        (
            "HTTP error: error sending request | inner: Http( HttpError { kind: Timeout, ",
            True,
            "does not answer",
        ),
    ],
)
def test_trouble_that_passes_says_whether_the_request_may_have_been_done(
    text: str, sent: bool, said: str
) -> None:
    error = explained(text, AWS)
    with pytest.raises(StoreUnavailable, match=said):
        raise error
    assert error.facts["sent"] is sent


@pytest.mark.slow
def test_a_real_store_is_understood_in_every_call(s3: S3Server) -> None:
    cases: list[tuple[type[StromError], str, dict[str, str]]] = [
        (
            StoreUnavailable,
            r"127\.0\.0\.1:1 does not answer; see s3\.endpoint",
            {"s3.endpoint": "http://127.0.0.1:1"},
        ),
        (
            StoreRefused,
            "refuses access to bucket 'lake' .SignatureDoesNotMatch",
            {SECRET_KEY: "not-the-secret"},
        ),
        (StoreRefused, "refuses access to bucket 'lake'", {ACCESS_KEY: "nobody"}),
        (StoreRefused, "refuses access to bucket 'lake'", GUEST),
        (StoreRefused, "no bucket 'nowhere' at http://127", {"bucket": "nowhere"}),
    ]
    for kind, said, changed in cases:
        place = ObjectPlace.of(f"s3://{changed.pop('bucket', BUCKET)}/x", s3.options() | changed)
        store = BlockingObjects(ObstoreObjects(place))
        for ask in (
            lambda store=store: store.put("a", b"x"),
            lambda store=store: store.put_if_absent("a", b"x"),
            lambda store=store: store.get("a"),
            lambda store=store: store.get_range("a", 0, 5),
            lambda store=store: store.list("a/"),
            lambda store=store: store.delete(["a"]),
        ):
            with pytest.raises(kind, match=said) as caught:
                ask()
            told = "".join(traceback.format_exception(caught.value)) + repr(caught.value.facts) + repr(place)
            assert not any(word in told for word in (SECRET, "not-the-secret", GUEST[SECRET_KEY])), told


class HidesBuckets(BaseHTTPRequestHandler):
    """A store in which nothing may be seen but that there is no such bucket, by who lists it."""

    def do_PUT(self) -> None:
        self.answer(403, "AccessDenied")

    def do_GET(self) -> None:
        self.answer(404, "NoSuchBucket")

    def answer(self, status: int, code: str) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        content = f"<Error><Code>{code}</Code></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def test_a_missing_bucket_that_looks_forbidden_is_called_missing() -> None:
    with HTTPServer(("127.0.0.1", 0), HidesBuckets) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        try:
            settings = {"s3.endpoint": f"http://127.0.0.1:{server.server_port}", "s3.access-key-id": "a"}
            place = ObjectPlace.of("s3://nowhere/x", settings | {"s3.secret-access-key": "b"})
            with pytest.raises(StoreRefused, match="no bucket 'nowhere'") as caught:
                BlockingObjects(ObstoreObjects(place)).put("a", b"x")
        finally:
            server.shutdown()
            serving.join()
    assert caught.value.facts["cause"] == "bucket"


@pytest.mark.slow
def test_keys_come_from_the_environment_when_none_are_set(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    place = ObjectPlace.of(f"s3://{BUCKET}/from-the-environment", {"s3.endpoint": s3.endpoint})
    store = BlockingObjects(ObstoreObjects(place))
    store.put("a", b"x")
    assert store.get("a") == b"x"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    other = BlockingObjects(ObstoreObjects(dataclasses.replace(place)))
    with pytest.raises(StoreRefused):
        other.get("a")
