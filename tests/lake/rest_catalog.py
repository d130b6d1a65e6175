"""A small Iceberg REST catalog over an SQLite one, for tests: namespaces, tables, commits, renames."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, Table

STATUS = {
    NoSuchTableError: 404,
    NoSuchNamespaceError: 404,
    TableAlreadyExistsError: 409,
    NamespaceAlreadyExistsError: 409,
    CommitFailedException: 409,
}


class _Handler(BaseHTTPRequestHandler):
    catalog: Catalog
    broken_commits = 0
    """So many commits are made and answered with a server's error."""

    def do_GET(self) -> None:
        self._answer(lambda: self._get(self._parts()))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(lambda: self._post(self._parts(), body))

    def _get(self, parts: list[str]) -> Any:
        match parts:
            case ["config"]:
                return {"defaults": {}, "overrides": {}}
            case ["namespaces", name]:
                return {"namespace": [name], "properties": self.catalog.load_namespace_properties((name,))}
            case ["namespaces", name, "tables"]:
                found = self.catalog.list_tables((name,))
                return {"identifiers": [{"namespace": [name], "name": one[-1]} for one in found]}
            case ["namespaces", name, "tables", table]:
                return _told(self.catalog.load_table((name, table)))
        raise NoSuchTableError("/".join(parts))

    def _post(self, parts: list[str], body: Any) -> Any:
        match parts:
            case ["namespaces"]:
                self.catalog.create_namespace(tuple(body["namespace"]), body.get("properties", {}))
                return {"namespace": body["namespace"], "properties": {}}
            case ["namespaces", name, "tables"]:
                return _told(
                    self.catalog.create_table(
                        (name, body["name"]),
                        Schema.model_validate(body["schema"]),
                        location=body["location"],
                        properties=body["properties"],
                    )
                )
            case ["namespaces", name, "tables", table]:
                request = CommitTableRequest.model_validate(body)
                found = self.catalog.load_table((name, table))
                made = self.catalog.commit_table(found, request.requirements, request.updates)
                if type(self).broken_commits:
                    type(self).broken_commits -= 1
                    raise ConnectionError("the answer is lost")
                return json.loads(made.model_dump_json())
            case ["tables", "rename"]:
                pair = [(*body[end]["namespace"], body[end]["name"]) for end in ("source", "destination")]
                self.catalog.rename_table(*pair)
                return {}
        raise NoSuchTableError("/".join(parts))

    def _parts(self) -> list[str]:
        return self.path.partition("?")[0].removeprefix("/v1/").split("/")

    def _answer(self, work: Any) -> None:
        try:
            status, answer = 200, work()
        except Exception as problem:
            status = STATUS.get(type(problem), 500)
            kind = type(problem).__name__
            answer = {"error": {"message": str(problem), "type": kind, "code": status}}
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        return


def _told(table: Table) -> Any:
    metadata = json.loads(table.metadata.model_dump_json())
    return {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}}


@contextmanager
def rest_catalog(folder: str, **properties: str) -> Iterator[tuple[str, Any]]:
    """Its address, and the handler's class (for ``broken_commits``). ``properties``: how its files are reached."""
    uri = f"sqlite:///{folder}/rest.db?timeout=30"
    catalog = SqlCatalog("rest", uri=uri, **{"warehouse": f"file://{folder}", **properties})
    handler = type("Handler", (_Handler,), {"catalog": catalog})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", handler
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        catalog.engine.dispose()
