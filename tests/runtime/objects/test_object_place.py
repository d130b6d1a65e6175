"""Addresses of object stores, and credentials that nobody sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from strom.errors import InvalidSetting
from strom.runtime.objects.aws_keys import aws_keys
from strom.runtime.objects.object_place import ObjectPlace
from strom.runtime.objects.obstore_objects import ObstoreObjects

SECRET = "do-not-tell-anybody"


@pytest.mark.parametrize(
    ("address", "kind", "bucket", "prefix"),
    [
        ("s3://b", "s3", "b", ""),
        ("s3://b/", "s3", "b", ""),
        ("s3://b/some/prefix/", "s3", "b", "some/prefix"),
        ("gs://b/x", "gs", "b", "x"),
        ("gcs://b/x", "gs", "b", "x"),
        ("az://container/x", "az", "container", "x"),
        ("abfs://container/x", "az", "container", "x"),
        ("file:///some/folder", "file", "", "/some/folder"),
    ],
)
def test_an_address_names_a_place(address: str, kind: str, bucket: str, prefix: str) -> None:
    place = ObjectPlace.of(address, {})
    assert (place.kind, place.bucket, place.prefix) == (kind, bucket, prefix)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "b/prefix",
        "ftp://b",
        "s3://",
        "file://host/x",
        "file:///",
        "s3://b/a b",
        "s3://b/../c",
        "s3://b?x=1",
    ],
)
def test_what_is_no_address_says_what_one_looks_like(address: str) -> None:
    with pytest.raises(InvalidSetting, match=r"remote\.data\.dir"):
        ObjectPlace.of(address, {})


def test_credentials_in_an_address_are_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidSetting) as caught:
        ObjectPlace.of(f"s3://key:{SECRET}@bucket/x", {})
    assert SECRET not in f"{caught.value} {caught.value.facts}"


def test_a_setting_that_is_unknown_is_named_and_those_of_other_clouds_are_left_alone() -> None:
    with pytest.raises(InvalidSetting, match=r"s3\.endpiont"):
        ObjectPlace.of("s3://b", {"s3.endpiont": "x"})
    with pytest.raises(InvalidSetting, match="true or false"):
        ObjectPlace.of("s3://b", {"s3.path-style": "yes"})
    assert ObjectPlace.of("gs://b", {"s3.endpoint": "x", "lake.format": "y"}).options == {}


@pytest.mark.parametrize(
    ("address", "settings"),
    [
        ("s3://b", {"s3.access-key-id": "known", "s3.secret-access-key": SECRET, "s3.session-token": SECRET}),
        ("az://b", {"azure.account": "me", "azure.access-key": SECRET, "azure.client-secret": SECRET}),
        ("gs://b", {"gcs.service-account-key": SECRET}),
    ],
)
def test_credentials_are_not_shown(address: str, settings: dict[str, str]) -> None:
    place = ObjectPlace.of(address, settings)
    assert SECRET in place.credentials.values()
    assert SECRET not in f"{place!r} {place} {ObstoreObjects(place)!r}"


def test_a_store_other_than_aws_has_its_bucket_in_the_path_and_any_region() -> None:
    other = ObjectPlace.of("s3://b", {"s3.endpoint": "http://127.0.0.1:9000"})
    aws = ObjectPlace.of("s3://b", {})
    assert (other.path_style, other.region) == ("true", "us-east-1")
    assert (aws.path_style, aws.region) == ("false", None)


def test_keys_of_aws_are_found_in_the_environment_then_in_the_chosen_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "credentials"
    file.write_text(
        f"[default]\naws_access_key_id = a\n[mine]\naws_access_key_id = b\naws_secret_access_key = {SECRET}\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_PROFILE", "mine")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    assert aws_keys() == {"aws_access_key_id": "b", "aws_secret_access_key": SECRET}
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    assert aws_keys() == {}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "c")
    assert aws_keys() == {"aws_access_key_id": "c"}
