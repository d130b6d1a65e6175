"""What a store's error means, and a sentence that says what to change.

Sentences are made from the store's error code and from settings, never from what was sent or answered: some stores
answer with the key.
"""

from __future__ import annotations

import re

from strom.errors import StoreRefused, StoreUnavailable, StromError
from strom.runtime.objects.object_place import S3_ENDPOINT, S3_REGION, ObjectPlace

_CODE = re.compile(
    r"AWS Error ([A-Za-z0-9_ ]{1,60}?) (?:\(|during)|<Code>([A-Za-z]{1,60})</Code>"
    r"|\"code\": ?\"([A-Za-z]{1,60})\"|\bcode: \"([A-Za-z]{1,60})\""
)
_STATUS = re.compile(r"status code: (\d{3})|HTTP Status (\d{3})")
_NO_BUCKET = ("NOSUCHBUCKET", "CONTAINERNOTFOUND", "NOSUCHCONTAINER")
_CLOCK = ("REQUESTTIMETOOSKEWED", "REQUESTEXPIRED")
_MANY = ("SLOWDOWN", "TOOMANYREQUESTS", "SERVERBUSY", "CONDITIONALREQUESTCONFLICT", "OPERATIONABORTED")
_REGION = ("REDIRECT", "AUTHORIZATIONHEADERMALFORMED", "ILLEGALLOCATIONCONSTRAINT")
_REFUSED = re.compile(
    "access ?denied|signature|credential|token|access ?key|forbidden|unauthori|authenticat|authorizationfail"
    "|authorizationperm",
    re.I,
)
_NO_CREDENTIALS = re.compile("/latest/api/token|security-credentials|metadata/identity|computeMetadata")
_NOT_SENT = re.compile(r"kind: Connect\b|dns error|curlCode: [67],")


def code_in(text: str) -> str:
    """The store's error code in an error's text; empty: there is none."""
    found = _CODE.search(text)
    return next((one for one in found.groups() if one), "").replace("_", " ").strip() if found else ""


def status_in(text: str) -> int:
    """The HTTP status in an error's text; 0: there is none."""
    found = _STATUS.search(text)
    return int(next(one for one in found.groups() if one)) if found else 0


def is_no_bucket(text: str) -> bool:
    """Whether a text says that the bucket does not exist."""
    return code_in(text).upper().replace(" ", "") in _NO_BUCKET


def explained(text: str, place: ObjectPlace, *, denied: bool = False) -> StromError:
    """What went wrong at ``place`` as an error of ours; ``denied``: the library says that access is refused."""
    code = code_in(text)
    compact = code.upper().replace(" ", "")
    where, names = _where(place), place.names
    if compact in _NO_BUCKET:
        return no_bucket(place)
    if any(word in compact for word in _REGION):
        return _refused(
            f"bucket {place.bucket!r} is in another region than {place.region}: set {names.options}{S3_REGION}",
            "region",
            code,
        )
    if compact in _CLOCK:
        return _refused(
            f"{where} refuses requests because this machine's clock is wrong ({code}): set it by NTP",
            "clock",
            code,
        )
    if denied or _REFUSED.search(code) or _NO_CREDENTIALS.search(text):
        return _refused(
            f"{where} refuses access to bucket {place.bucket!r} ({code or 'no credentials'}). Credentials are those of "
            f"this process: set {place.chain} (on Spark's executors too), and let them read and write there",
            "credentials",
            code,
        )
    if compact in _MANY or status_in(text) in (429, 503):
        return _unavailable(f"{where} asks to slow down ({code or status_in(text)})", code, sent=False)
    if "NETWORK" in compact or (not code and not status_in(text)):
        return _unavailable(
            f"{where} does not answer{_reason(text)}; see {endpoint_setting(place)}, and whether it runs",
            code,
            sent=not _NOT_SENT.search(text),
        )
    return _unavailable(f"{where} failed with {code or f'status {status_in(text)}'}", code, sent=True)


def no_bucket(place: ObjectPlace) -> StromError:
    """The error for a bucket that does not exist."""
    at = f"at {place.endpoint}" if place.endpoint else f"at {_cloud(place)}"
    return _refused(
        f"there is no bucket {place.bucket!r} {at}: create it, or correct {place.names.address} and "
        f"{endpoint_setting(place)}",
        "bucket",
        "",
    )


def endpoint_setting(place: ObjectPlace) -> str:
    """What the setting of the store's address is called."""
    setting = {"gs": "gcs.endpoint", "az": "azure.account"}.get(place.kind, S3_ENDPOINT)
    return place.names.options + setting


def _refused(sentence: str, cause: str, code: str) -> StromError:
    return StoreRefused(sentence, cause=cause, code=code)


def _unavailable(sentence: str, code: str, *, sent: bool) -> StromError:
    return StoreUnavailable(sentence, sent=sent, code=code)


def _reason(text: str) -> str:
    curl = re.search(r"curlCode: \d+, ([A-Za-z' ]{1,60})", text)
    return f" ({curl[1].strip()})" if curl else ""


def _where(place: ObjectPlace) -> str:
    return (
        f"the object store at {place.endpoint}" if place.endpoint else f"the object store of {_cloud(place)}"
    )


def _cloud(place: ObjectPlace) -> str:
    return {"gs": "Google", "az": "Azure"}.get(place.kind, "AWS")
