"""The paths in an Iceberg table's manifests, in the lists of them, and in files of position deletes.

Delete files hold the paths of data files, so they are rewritten; manifests hold their sizes and bounds, and manifest
lists hold the sizes of manifests. Each is therefore rewritten after the files it names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from strom.errors import LakeCorrupt, LakeUnsupported
from strom.model.file_uri import local_path
from strom.moving.avro_file import AvroFile
from strom.moving.moved_paths import Moved
from strom.runtime import trees

PATH_COLUMN, ROW_COLUMN = "file_path", "pos"
PATH_ID = 2_147_483_546
"""The field id of the path in a position delete file; manifests list its bounds by this id."""
_POSITION_DELETES = 1
_DELETED = 2


class MovedDeletes(NamedTuple):
    """A delete file: its size, and the first and last path it names."""

    size: int
    lowest: str
    highest: str


@dataclass
class Manifests:
    """Rewrites the files of one warehouse. New files lie beside the old ones, with ``suffix`` added."""

    moved: Moved
    suffix: str
    made: list[str] = field(default_factory=list)
    """Files that have a new version beside them."""
    sizes: dict[str, int] = field(default_factory=dict)
    """By manifest (new path): its size."""
    grown: dict[str, int] = field(default_factory=dict)
    """By manifest or list (new path): how many bytes its live files grew by."""
    _deletes: dict[str, MovedDeletes | None] = field(default_factory=dict)

    def manifest(self, path: str, file: AvroFile) -> None:
        """Rewrite one manifest, and the delete files that it names."""
        grown = 0
        for record in file.records:
            data = record.get("data_file")
            if not isinstance(data, dict):
                continue
            before = _value(data.get("file_size_in_bytes"))
            if _value(data.get("content")) == _POSITION_DELETES:
                self._delete_entry(data)
            self._path(data, "file_path")
            self._path(data, "referenced_data_file")
            if _value(record.get("status")) != _DELETED and isinstance(before, int):
                grown += _value(data["file_size_in_bytes"]) - before
        content = file.encode()
        self._write(path, content)
        self.sizes[path], self.grown[path] = len(content), grown

    def list_of(self, path: str, file: AvroFile) -> None:
        """Rewrite one manifest list."""
        grown = 0
        for record in file.records:
            self._path(record, "manifest_path")
            named = local_path(str(_value(record.get("manifest_path")))) or ""
            if named in self.sizes:
                _set(record, "manifest_length", self.sizes[named])
                grown += self.grown[named]
        self._write(path, file.encode())
        self.grown[path] = grown

    def _delete_entry(self, data: dict[str, Any]) -> None:
        uri = str(_value(data["file_path"]))
        if str(_value(data.get("file_format"))).upper() != "PARQUET":
            raise LakeUnsupported(
                f"{uri} holds deletes in another format than Parquet, and its paths cannot be rewritten: apply the "
                "table's deletes where it was (compact it) and copy the folder again",
                uri=uri,
            )
        path = local_path(self.moved.uri(uri))
        made = self._rewritten(path) if path is not None else None
        for key, end in (("lower_bounds", "lowest"), ("upper_bounds", "highest")):
            for bound in _value(data.get(key)) or ():
                if bound.get("key") != PATH_ID:
                    continue
                if made is not None:
                    bound["value"] = getattr(made, end).encode()
                else:
                    bound["value"] = self.moved.uri(bound["value"].decode(errors="replace")).encode()
        if made is not None:
            _set(data, "file_size_in_bytes", made.size)

    def _rewritten(self, path: str) -> MovedDeletes | None:
        """Rewrite a delete file, once; None when it is gone, as files of old snapshots may be."""
        if path not in self._deletes:
            self._deletes[path] = self._rewrite(path)
        return self._deletes[path]

    def _rewrite(self, path: str) -> MovedDeletes | None:
        try:
            found = pq.read_table(pa.BufferReader(trees.read(path)))
        except (FileNotFoundError, pa.ArrowException):
            return None
        place = found.schema.get_field_index(PATH_COLUMN)
        if place < 0:
            return None
        codes = pc.dictionary_encode(found.column(place)).combine_chunks()
        codes = codes.chunk(0) if isinstance(codes, pa.ChunkedArray) else codes
        names = [self.moved.uri(name) for name in codes.dictionary.to_pylist()]
        paths = pa.DictionaryArray.from_arrays(codes.indices, pa.array(names, pa.string())).cast(pa.string())
        made = found.set_column(place, found.schema.field(place).with_type(pa.string()), paths)
        made = made.sort_by([(PATH_COLUMN, "ascending"), (ROW_COLUMN, "ascending")])
        out = pa.BufferOutputStream()
        pq.write_table(made, out, compression="zstd", store_schema=False, use_dictionary=[PATH_COLUMN])
        content = out.getvalue().to_pybytes()
        self._write(path, content)
        return MovedDeletes(len(content), min(names, default=""), max(names, default=""))

    def _path(self, record: dict[str, Any], key: str) -> None:
        value = _value(record.get(key))
        if isinstance(value, str):
            _set(record, key, self.moved.uri(value))

    def _write(self, path: str, content: bytes) -> None:
        trees.replacement(path, self.suffix, content)
        self.made.append(path)


def is_list(file: AvroFile) -> bool:
    """Whether an Avro file is a manifest list of Iceberg."""
    return any(one["name"] == "manifest_path" for one in file.schema["fields"])


def is_manifest(file: AvroFile) -> bool:
    """Whether it is a manifest."""
    return any(one["name"] == "data_file" for one in file.schema["fields"])


def _value(value: Any) -> Any:
    """The value inside a union."""
    return value[1] if isinstance(value, tuple) else value


def _set(record: dict[str, Any], key: str, value: Any) -> None:
    before = record[key]
    record[key] = (before[0], value) if isinstance(before, tuple) else value


def decoded(path: str) -> AvroFile | None:
    """Read an Avro file; None when it is torn because its writer was killed: then nothing names it."""
    try:
        return AvroFile.decode(trees.read(path), path)
    except LakeCorrupt:
        return None
