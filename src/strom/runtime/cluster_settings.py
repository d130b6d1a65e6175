"""The settings of a cluster of machines: its metadata, its servers, how they find and watch each other.

``settings_list.py`` has those of every server.
"""

from __future__ import annotations

from strom.runtime.setting import Setting, SettingKind

CLUSTER_SETTINGS: tuple[Setting, ...] = (
    Setting(
        "metadata.store",
        SettingKind.ENUM,
        "embedded",
        "Where databases, tables and leaders are kept: `embedded`, in the data folder of one machine (`strom up`), or "
        "`zookeeper`, for a cluster (`strom coordinator`, `strom tablet`).",
        "Cluster",
        choices=("embedded", "zookeeper"),
    ),
    Setting(
        "zookeeper.addresses",
        SettingKind.STR,
        "",
        "The servers of the ZooKeeper that holds the metadata: `host:port,host:port,host:port`.",
        "ZooKeeper",
    ),
    Setting(
        "zookeeper.root",
        SettingKind.STR,
        "/strom",
        "The node below which everything of this cluster lies. Clusters that share a ZooKeeper have different ones.",
        "ZooKeeper",
    ),
    Setting(
        "zookeeper.session-timeout",
        SettingKind.DURATION,
        "6 s",
        "How long after its last sign of life a server still counts as there in ZooKeeper. ZooKeeper grants from 2 to "
        "20 of its ticks: 4 s to 40 s by its defaults, 1 s to 10 s by those of `strom zookeeper`.",
        "ZooKeeper",
        minimum=500,
        maximum=600_000,
    ),
    Setting(
        "zookeeper.request-timeout",
        SettingKind.DURATION,
        "10 s",
        "How long a call of the metadata waits for ZooKeeper, reconnecting included.",
        "ZooKeeper",
        minimum=100,
        maximum=600_000,
    ),
    Setting(
        "zookeeper.user",
        SettingKind.STR,
        "",
        "Log in at ZooKeeper by this name (its `digest` scheme). Nodes created then belong to this user alone. All "
        "servers of a cluster use the same one.",
        "ZooKeeper",
    ),
    Setting(
        "zookeeper.password",
        SettingKind.STR,
        "",
        "The user's password. `${env:NAME}` or `${file:path}` keep it out of this file. ZooKeeper sends it unencrypted "
        "unless `zookeeper.tls` is on.",
        "ZooKeeper",
        secret=True,
    ),
    Setting(
        "zookeeper.tls",
        SettingKind.BOOL,
        "false",
        "Encrypt the connection; `zookeeper.addresses` then has ZooKeeper's secure ports.",
        "ZooKeeper",
    ),
    Setting(
        "zookeeper.tls.ca",
        SettingKind.STR,
        "",
        "The file (PEM) with the authorities that may have signed ZooKeeper's certificate. Empty: those of the system.",
        "ZooKeeper",
    ),
    Setting(
        "zookeeper.tls.certificate",
        SettingKind.STR,
        "",
        "The file (PEM) with this server's own certificate, if ZooKeeper asks for one.",
        "ZooKeeper",
    ),
    Setting(
        "zookeeper.tls.key",
        SettingKind.STR,
        "",
        "The file (PEM) with the key of that certificate.",
        "ZooKeeper",
    ),
    Setting(
        "zookeeper.tls.key-password",
        SettingKind.STR,
        "",
        "The password of that key, if it has one.",
        "ZooKeeper",
        secret=True,
    ),
    Setting(
        "zookeeper.tls.verify",
        SettingKind.BOOL,
        "true",
        "Whether ZooKeeper's certificate, and the name in it, are checked. Off, anybody in between can read and change "
        "everything.",
        "ZooKeeper",
    ),
    Setting(
        "server.id",
        SettingKind.INT,
        "-1",
        "The number of a tablet server, which no other server of the cluster has; it stays the same over restarts. "
        "`strom tablet` requires one from 0 up.",
        "Cluster",
        minimum=-1,
        maximum=2**31 - 1,
    ),
    Setting(
        "server.rack",
        SettingKind.STR,
        "",
        "The rack or zone of this server: the copies of a bucket are spread over racks.",
        "Cluster",
    ),
    Setting(
        "data.dirs",
        SettingKind.LIST,
        "",
        "The data folders of a tablet server, one for each disk. The buckets of a new table take turns; a copy that is "
        "made later goes where most room is. Empty: `data.dir` alone.",
        "Cluster",
    ),
    Setting(
        "cluster.listener",
        SettingKind.STR,
        "127.0.0.1:0",
        "Where a server takes the calls of the other servers: `host:port`; port 0 takes any free port.",
        "Cluster",
    ),
    Setting(
        "cluster.advertised-listener",
        SettingKind.STR,
        "",
        "The address that the other servers use, if it differs from `cluster.listener`.",
        "Cluster",
    ),
    Setting(
        "cluster.secret-file",
        SettingKind.STR,
        "",
        "A file with the secret that all servers of the cluster share, at least 32 characters, e.g. from `openssl rand "
        "-hex 32`. It belongs to the user that runs the server, and only that user may read it.",
        "Cluster",
    ),
    Setting(
        "replica.heartbeat",
        SettingKind.DURATION,
        "200 ms",
        "How often coordinators ask a tablet server whether it is there.",
        "Replication",
        minimum=10,
    ),
    Setting(
        "replica.suspect-after",
        SettingKind.DURATION,
        "600 ms",
        "A tablet server that is silent for this long loses its leaderships to others. One whose process has ended "
        "loses them at once.",
        "Replication",
        minimum=50,
    ),
    Setting(
        "replica.session.timeout",
        SettingKind.DURATION,
        "6 s",
        "A tablet server that cannot reach the metadata for this long stops serving and closes the connections of its "
        "clients, since others may lead its buckets by then.",
        "Replication",
        minimum=100,
    ),
    Setting(
        "replica.pull.wait",
        SettingKind.DURATION,
        "500 ms",
        "How long a follower's question waits at the leader for something to answer.",
        "Replication",
        minimum=1,
    ),
    Setting(
        "replica.pull.max-bytes",
        SettingKind.BYTES,
        "8 mb",
        "How much one answer to a follower holds, over all buckets it asks for. A batch that is larger comes alone.",
        "Replication",
        minimum=1,
    ),
    Setting(
        "replica.lag.max",
        SettingKind.DURATION,
        "2 s",
        "A copy that did not have everything for this long leaves the in-sync set, as far as `table.min.insync` "
        "allows; until then, writes with `acks=all` wait for it.",
        "Replication",
        minimum=10,
    ),
    Setting(
        "replica.copy.rate",
        SettingKind.BYTES,
        "200 mb",
        "Bytes per second that a server copies of the base files of other servers, all buckets together.",
        "Replication",
        minimum=1024,
    ),
    Setting(
        "replica.copy.hold-max",
        SettingKind.DURATION,
        "1 h",
        "How long a leader keeps base files, and its log behind them, for a follower that copies them and does not "
        "ask any more.",
        "Replication",
        minimum=1000,
    ),
    Setting(
        "replica.moves.max",
        SettingKind.INT,
        "4",
        "Copies that a server makes at once because somebody moved buckets there, by hand or by a rebalance; the "
        "others wait for their turn.",
        "Replication",
        minimum=1,
    ),
    Setting(
        "leader.return.interval",
        SettingKind.DURATION,
        "1 min",
        "How often the active coordinator looks whether servers lead the buckets that prefer them. One that answered "
        "all that time and whose copies are in sync gets them back, some at a time. 0 leaves leaders where they are.",
        "Replication",
        minimum=0,
    ),
    Setting(
        "leader.return.imbalance",
        SettingKind.INT,
        "10",
        "The share, in percent, of the buckets preferring a server that others may lead before they are given back.",
        "Replication",
        minimum=0,
    ),
    Setting(
        "log.sync.interval",
        SettingKind.DURATION,
        "1 s",
        "In a cluster, how often tables with `table.durability` `os` are synced though nobody waits for it. It bounds "
        "what is lost when all copies lose power at once, and how far the lake is behind.",
        "Replication",
        minimum=10,
    ),
)
