"""The table of calls."""

from __future__ import annotations

from strom.protocol.api_keys import (
    APIS,
    BACKUP,
    CUT_APIS,
    CUT_BUCKETS,
    FETCH_LOG,
    FETCH_ROWS,
    INNER_APIS,
    KEY_APIS,
    LAKE_APIS,
    LOG_APIS,
    LOOKUP_ROW,
    LOOKUP_ROWS,
    OWN_KEYS_FROM,
    PRODUCE_LOG,
    PULL,
    STAGE_APIS,
    Role,
)
from strom.protocol.messages.own_keys import LookupRowQuestion


def test_a_key_leads_to_its_call() -> None:
    assert APIS[1014] is PRODUCE_LOG
    assert all(key == api.key for key, api in APIS.items())
    assert PRODUCE_LOG.name == "ProduceLog"


def test_names_and_messages_are_used_once() -> None:
    assert len({api.name for api in APIS.values()}) == len(APIS)
    assert len({kind for api in APIS.values() for kind in (api.request, api.response)}) == 2 * len(APIS)


def test_a_call_belongs_to_one_kind_of_server() -> None:
    kinds = (LOG_APIS, KEY_APIS, STAGE_APIS, CUT_APIS, LAKE_APIS, INNER_APIS)
    assert {api for kind in kinds for api in kind} == set(APIS.values())
    assert sum(map(len, kinds)) == len(APIS)


def test_only_reads_wait() -> None:
    assert {api for api in APIS.values() if api.waits} == {
        FETCH_LOG,
        FETCH_ROWS,
        LOOKUP_ROWS,
        LOOKUP_ROW,
        CUT_BUCKETS,
        BACKUP,
        PULL,
    }


def test_a_request_may_go_to_the_leader_only_if_it_names_a_table() -> None:
    leaders = [api for api in APIS.values() if api.role is Role.LEADER and api not in INNER_APIS]
    for api in leaders:
        # The question of LookupRow travels within it, encoded.
        named = LookupRowQuestion if api is LOOKUP_ROW else api.request
        assert {"table_id", "tables_req"} & named.fields.keys(), api.name


def test_our_own_calls_have_keys_no_peer_uses() -> None:
    assert sorted(key for key in APIS if key >= OWN_KEYS_FROM) == [
        *range(20000, 20009),
        *range(20010, 20024),
        20030,
        20040,
        *range(20050, 20060),
        *range(20060, 20064),
        *range(20070, 20079),
    ]
