"""The table of calls."""

from __future__ import annotations

from strom.protocol.api_keys import (
    APIS,
    FETCH_LOG,
    FETCH_ROWS,
    KEY_APIS,
    LOG_APIS,
    LOOKUP_ROWS,
    OWN_KEYS_FROM,
    PRODUCE_LOG,
    Role,
)


def test_a_key_leads_to_its_call() -> None:
    assert APIS[1014] is PRODUCE_LOG
    assert all(key == api.key for key, api in APIS.items())
    assert PRODUCE_LOG.name == "ProduceLog"


def test_names_and_messages_are_used_once() -> None:
    assert len({api.name for api in APIS.values()}) == len(APIS)
    assert len({kind for api in APIS.values() for kind in (api.request, api.response)}) == 2 * len(APIS)


def test_a_server_of_log_tables_offers_all_but_the_calls_of_primary_keys() -> None:
    assert set(LOG_APIS) | set(KEY_APIS) == set(APIS.values())
    assert not set(LOG_APIS) & set(KEY_APIS)


def test_only_fetches_and_lookups_wait() -> None:
    assert {api for api in APIS.values() if api.waits} == {FETCH_LOG, FETCH_ROWS, LOOKUP_ROWS}


def test_a_request_may_go_to_the_leader_only_if_it_names_a_table() -> None:
    leaders = [api for api in APIS.values() if api.role is Role.LEADER]
    for api in leaders:
        assert {"table_id", "tables_req"} & api.request.fields.keys(), api.name


def test_our_own_calls_have_keys_no_peer_uses() -> None:
    assert sorted(key for key in APIS if key >= OWN_KEYS_FROM) == list(range(20000, 20008))
