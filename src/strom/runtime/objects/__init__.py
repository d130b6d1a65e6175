"""Object stores: whole values under keys, behind one port.

``object_store.py`` has the port and the store on a folder, ``s3_objects.py`` the one in S3, ``strom.testing.objects``
the fake. One contract suite (``tests/contracts/objects_contract.py``) runs on all of them.
"""
