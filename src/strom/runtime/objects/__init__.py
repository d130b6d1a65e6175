"""Object stores: whole values under keys, behind one port.

``object_store.py`` has the port, ``folder_objects.py`` a folder of a disk behind it, ``obstore_objects.py`` S3,
Google's and Azure's stores, ``strom.testing.objects`` a fake that loses answers. Those make one attempt per call;
``patient_objects.py`` tries again until a deadline, which is what everybody uses. ``range_reader.py`` reads many
parts of an object at once, by a plan (``range_plan.py``). Everything is asynchronous; ``blocking_objects.py`` is the
same for who has no loop.

One contract suite (``tests/contracts/objects_contract.py``) runs on all of them.
"""
