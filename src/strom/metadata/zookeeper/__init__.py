"""The metadata of a cluster: a store on ZooKeeper, read and changed by many machines at once.

Promises: those of the port (``metadata/store.py``). A commit is one ``multi``; a commit whose answer was lost is looked
for, and only what cannot be known is reported as ``OutcomeUnknown``; a node that was deleted and created again never
passes for the one that was read.

The words: an *entry* is one node below ``entries``; a *change* is what one commit did, in a node of its own below
``changes``; the *head* names the newest change and counts them; the *feed* hands out changes in order; the *mirror* is
all entries in memory, as of one change; an *announcement* is an entry that ends with its session.

Does not do: start a ZooKeeper (that is ``server/zookeeper``), hold anything on disk, poll nodes one by one.

Read first: ``znodes.py`` (what lies where), ``feed.py`` (how a reader keeps up), ``commit_plan.py`` (what a commit
consists of), then ``store.py``. Only ``session.py`` knows kazoo. Layout: docs/formats/metadata.md.
"""
