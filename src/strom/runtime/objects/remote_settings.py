"""The settings of the object store in which a server keeps history; part of ``settings_list.py``."""

from __future__ import annotations

from strom.runtime.setting import Setting, SettingKind

SCOPE = "Object store"

_PLACE = (
    Setting(
        "remote.data.dir",
        SettingKind.STR,
        "",
        "The object store that logs are uploaded to: `s3://bucket/prefix`, `gs://bucket/prefix`, "
        "`az://container/prefix`, or a folder (`/a/folder` or `file:///a/folder`). The same on every server of a "
        "cluster. Empty: nothing is uploaded.",
        SCOPE,
    ),
    Setting(
        "remote.s3.endpoint",
        SettingKind.STR,
        "",
        "The address of a store other than AWS that speaks S3's protocol.",
        SCOPE,
    ),
    Setting("remote.s3.region", SettingKind.STR, "", "The region of the S3 bucket.", SCOPE),
    Setting(
        "remote.s3.path-style",
        SettingKind.STR,
        "",
        "`true`: name buckets in the path instead of in the host. Empty: with `remote.s3.endpoint` only.",
        SCOPE,
    ),
    Setting(
        "remote.s3.access-key-id",
        SettingKind.STR,
        "",
        "The S3 key. Empty: found where AWS' own tools look (environment, profile, the machine's role).",
        SCOPE,
        secret=True,
    ),
    Setting(
        "remote.s3.secret-access-key",
        SettingKind.STR,
        "",
        "The secret of the S3 key.",
        SCOPE,
        secret=True,
    ),
    Setting(
        "remote.gcs.service-account-file",
        SettingKind.STR,
        "",
        "The file of a Google service account. Empty: found where Google's own tools look.",
        SCOPE,
    ),
    Setting("remote.azure.account", SettingKind.STR, "", "The Azure storage account.", SCOPE),
    Setting(
        "remote.azure.access-key",
        SettingKind.STR,
        "",
        "The key of the Azure account. Empty: found where Azure's own tools look.",
        SCOPE,
        secret=True,
    ),
)

_WORK = (
    Setting(
        "remote.upload.size",
        SettingKind.BYTES,
        "64 mb",
        "A bucket's log is uploaded when so much of it is not in the store yet, in objects of about this size.",
        SCOPE,
        minimum=64 * 1024,
        maximum=2**30,
    ),
    Setting(
        "remote.upload.max-age",
        SettingKind.DURATION,
        "5 min",
        "What is not in the store for so long is uploaded though it is less.",
        SCOPE,
        minimum=1,
    ),
    Setting(
        "remote.delete.grace",
        SettingKind.DURATION,
        "1 h",
        "How long an object stays after its rows expired: the longest time a read that began before may take.",
        SCOPE,
        minimum=0,
    ),
    Setting(
        "remote.read.gap",
        SettingKind.BYTES,
        "64 kb",
        "Parts of an object that lie no further apart are fetched by one request; with a filter four times as far.",
        SCOPE,
        minimum=0,
    ),
    Setting(
        "remote.read.part",
        SettingKind.BYTES,
        "4 mb",
        "A longer stretch of an object is fetched in parts of this size, several at once.",
        SCOPE,
        minimum=64 * 1024,
    ),
    Setting(
        "remote.read.parallel",
        SettingKind.INT,
        "16",
        "Requests for parts of objects under way at once; a quarter of them for one bucket.",
        SCOPE,
        minimum=1,
        maximum=1000,
    ),
    Setting(
        "remote.cache.size",
        SettingKind.BYTES,
        "10 gb",
        "Room in the data folder for columns that were read from the store; 0: none. Whole reads are not kept.",
        SCOPE,
        minimum=0,
    ),
    Setting(
        "remote.read.memory",
        SettingKind.BYTES,
        "128 mb",
        "Memory for what was fetched and not asked for yet.",
        SCOPE,
        minimum=2**20,
    ),
)

REMOTE_SETTINGS: tuple[Setting, ...] = (*_PLACE, *_WORK)
